"""Direct convolution in the order of its warps: the same tensors, one memory request of a warp per step, as the
emulator executed block 0."""

from __future__ import annotations

import dataclasses

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from visuals.conv.part import SHOWN_IN_PART, Part
from visuals.scene.parts import Captions, Group, Lanes, Read, Reading, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.requests import ORDER, ORDER_NOTE, lanes_of, requested_sectors
from visuals.scene.scene import Scene
from visuals.scene.source import margin

NOTE = mark("Each step is one memory request of one warp of block 0, in the order of the emulator.")
MAX_REQUESTS = 4_096  # of block 0: more steps are too many to watch
PIXELS, ONE_PIXEL, TAP, TAPS, STORE, OTHER_BLOCKS = range(6)
LOADS = (
    mark(
        "Warp {0} loads {10} different [pixels](input), from x[{4}, {5}, {6}] to x[{7}, {8}, {9}]. "
        "Active lanes: {1} of {11}. Sectors (32 bytes) touched: {2}, minimum {3}."
    ),
    mark(
        "Warp {0} loads one [pixel](input), x[{4}, {5}, {6}]. Active lanes: {1} of {11}. The GPU loads one sector (32 bytes) for all of them."
    ),
    mark(
        "Warp {0} loads one [tap](filter), at address {4}. Active lanes: {1} of {11}. The GPU loads one sector (32 bytes) for all of them."
    ),
    mark(
        "Warp {0} loads {10} [taps](filter), of filters {4} to {7}. "
        "Active lanes: {1} of {11}. Sectors (32 bytes) touched: {2}, minimum {3}."
    ),
    mark(
        "Warp {0} stores its [sums](output). Active lanes: {1} of {11}. Sectors (32 bytes) touched: {2}, minimum {3}."
    ),
)


def templates(other_blocks: int) -> tuple[str, ...]:
    """Returns the captions of the kinds of steps, from PIXELS to OTHER_BLOCKS."""
    others = trn(
        "The other block computes its [outputs](output) in the same way. The [output](output) is complete.",
        "The other {n} blocks compute their [outputs](output) in the same way. The [output](output) is complete.",
        other_blocks,
    )
    return *map(tr, LOADS), others


def max_requests(s: ConvShape, block: int = 0) -> int:
    """Returns an upper limit of the number of requests of block 0. `block`: its threads, the default if 0."""
    threads = min(s.K * s.PQ, block or find("conv/direct").default_tiles["BLOCK"])
    return -(-threads // 32) * (2 * s.CRS + 1)


def why_not(s: ConvShape, part: Part, block: int = 0) -> str:
    """Returns why the order of the warps cannot be shown for a shape; "" if it can. `block` as in max_requests."""
    if s.N > 1 or (s.C, s.K, s.P, s.Q) != (part.C, part.K, part.P, part.Q):
        return tr(SHOWN_IN_PART)
    if (count := max_requests(s, block)) > MAX_REQUESTS:
        return tr(
            "The warp order is limited to {limit} memory requests per block. This block has up to {count}.",
            limit=decimal(f"{MAX_REQUESTS:,}"),
            count=decimal(f"{count:,}"),
        )
    return ""


@dataclasses.dataclass(frozen=True)
class Request:
    """One memory request: its tensor, the warp, the mask of active lanes, and one element per lane."""

    name: str
    warp: int
    mask: int
    line: int
    element: np.ndarray
    sectors: int
    min_sectors: int

    def kind(self) -> int:
        alone = len(np.unique(self.element)) == 1
        return {"x": ONE_PIXEL if alone else PIXELS, "w": TAP if alone else TAPS, "y": STORE}[self.name]

    def args(self, s: ConvShape) -> tuple[int, ...]:
        low, high = int(self.element.min()), int(self.element.max())
        first, last = (0, 0, 0), (0, 0, 0)
        if self.name == "x":
            first, last = (tuple(map(int, np.unravel_index(e, (s.C, s.H, s.W)))) for e in (low, high))
        elif self.name == "w":
            first, last = (low if low == high else low // s.CRS, 0, 0), (high // s.CRS, 0, 0)
        lanes = min(32, s.K * s.PQ - 32 * self.warp)
        counts = self.warp, len(self.element), self.sectors, self.min_sectors
        return (*counts, *first, *last, len(np.unique(self.element)), lanes)


def requests_of(trace: BlockTrace) -> list[Request]:
    """Returns every request of the block, in the order of the trace."""
    requests, traced = [], trace.requests
    for n in range(len(traced)):
        mask, byte, width = int(traced.mask[n]) & 0xFFFFFFFF, traced.byte[n], int(traced.width[n])
        line = trace.lines[trace.line[traced.step[n]]]
        element = byte[lanes_of(mask)].astype(np.int64) // 4
        name = trace.buffers[traced.buffer[n]]
        requests.append(
            Request(
                name,
                int(traced.warp[n]),
                mask,
                line.number if line else 0,
                element,
                *requested_sectors(byte, mask, width),
            )
        )
    return requests


def in_warp_order(scene: Scene, s: ConvShape, trace: BlockTrace, counters: Counters, blocks: int) -> Scene:
    """Returns `scene` (the whole of a small convolution) with its steps in the order of `trace`, block 0 of
    `blocks` of the launch. `counters` of that launch go to the margin of its source."""
    source = scene.source
    assert source is not None  # of a kernel
    requests = requests_of(trace)
    extra_steps = int(blocks > 1)
    steps = len(requests) + extra_steps
    y = scene.cells("y")
    written = np.full(y.size, steps - 1)
    for n, request in enumerate(requests):
        if request.name == "y":
            written[request.element] = n
    args = np.zeros((steps, 12), np.int64)
    args[: len(requests)] = [request.args(s) for request in requests]
    args[len(requests) :, 0] = blocks - 1
    return dataclasses.replace(
        scene,
        key=f"{scene.key} warps",
        tensors=scene.tensors[:3],
        groups=(Group((("x", "w", "y"),)),),
        steps=steps,
        step_name=tr("request"),
        order_name=tr(ORDER),
        order_note=f"{tr(NOTE)} {tr(ORDER_NOTE)}",
        writes=(Write("y", written, y),),
        reads=tuple(_reads(name, requests, extra_steps) for name in ("x", "w")),
        readings=_readings(requests, extra_steps),
        captions=Captions(
            templates(blocks - 1),
            np.array([request.kind() for request in requests] + [OTHER_BLOCKS] * extra_steps),
            args,
        ),
        source=dataclasses.replace(
            source,
            lines=np.array([request.line for request in requests] + [requests[-1].line] * extra_steps),
            notes=margin(counters, source.file),
        ),
        lanes=Lanes(
            np.array([request.warp for request in requests] + [-1] * extra_steps),
            np.array([request.mask for request in requests] + [0] * extra_steps, np.uint32),
        ),
    )


def _reads(name: str, requests: list[Request], extra_steps: int) -> Read:
    """Returns the cells of a tensor that each step reads."""
    none = np.zeros(0, int)
    cells = [np.unique(request.element) if request.name == name else none for request in requests]
    return read_per_step(name, [*cells, *[none] * extra_steps])


def _readings(requests: list[Request], extra_steps: int) -> tuple[Reading, ...]:
    """Returns sectors and requests of block 0 so far. They stay constant after the block is done."""

    def so_far(values) -> np.ndarray:
        return np.cumsum([*values, *[0] * extra_steps])

    return (
        Reading(tr("sectors of x"), so_far(request.sectors * (request.name == "x") for request in requests), "counted"),
        Reading(tr("sectors of w"), so_far(request.sectors * (request.name == "w") for request in requests), "counted"),
        Reading(
            tr("sectors stored"), so_far(request.sectors * (request.name == "y") for request in requests), "counted"
        ),
        Reading(tr("requests"), so_far(1 for _ in requests), "counted"),
    )
