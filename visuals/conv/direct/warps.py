"""Direct convolution as its warps run it: the same tensors, one memory request of a warp a step, as the emulator saw
block 0 execute them."""

from __future__ import annotations

import dataclasses

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.trace import BlockTrace
from kernels.ladders import find
from visuals.conv.part import Part
from visuals.scene.parts import Captions, Group, Lanes, Read, Reading, Write
from visuals.scene.requests import ORDER, ORDER_NOTE, lanes_of, sectors_asked
from visuals.scene.scene import Scene
from visuals.scene.source import margin

NOTE = f"Block 0 as the emulator executed it, one memory request of one warp a step. {ORDER_NOTE}"
MOST_REQUESTS = 4_096  # of block 0: more steps than anyone will watch
PIXELS, ONE, TAP, TAPS, STORE, OTHERS = range(6)
TEMPLATES = (
    "Warp {0}: {1} of its {11} lanes ask for a [pixel](input) each, x[{4}, {5}, {6}] to x[{7}, {8}, {9}], {10} different ones: "
    "sectors {2}, fewest possible {3}.",
    "Warp {0}: {1} of its {11} lanes ask for [pixel](input) x[{4}, {5}, {6}]: sectors {2}.",
    "Warp {0}: {1} lanes ask for the same [tap](filter), at address {4}: one sector, one load serves them all.",
    "Warp {0}: {1} lanes ask for {10} [taps](filter), of filters {4} to {7}: sectors {2}, fewest possible {3}.",
    "Warp {0} stores its {1} [sums](output): sectors {2}, fewest possible {3}.",
    "The other {0} blocks did the same at the same time, on other SMs: the [output](output) is whole.",
)


def requests(s: ConvShape) -> int:
    """At most so many requests come from block 0."""
    rung = find("conv/direct")
    threads = min(s.K * s.PQ, rung.default_tiles["BLOCK"])
    return -(-threads // 32) * (2 * s.CRS + 1)


def why_not(s: ConvShape, part: Part) -> str:
    """Why the warps' order cannot be shown at a shape; "" where it can."""
    if s.N > 1 or (s.C, s.K, s.P, s.Q) != (part.C, part.K, part.P, part.Q):
        return "The order of the warps is shown for shapes that stand on the stage whole; this one is shown in part."
    if requests(s) > MOST_REQUESTS:
        return f"The order of the warps is shown for up to {MOST_REQUESTS:,} requests of a block, this one has up to {requests(s):,}."
    return ""


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request: of which tensor, by which lanes of which warp, for which elements, one a lane."""

    name: str
    warp: int
    mask: int
    line: int
    element: np.ndarray
    sectors: int
    fewest: int

    def kind(self) -> int:
        alone = len(np.unique(self.element)) == 1
        return {"x": ONE if alone else PIXELS, "w": TAP if alone else TAPS, "y": STORE}[self.name]

    def args(self, s: ConvShape) -> tuple[int, ...]:
        low, high = int(self.element.min()), int(self.element.max())
        first, last = (0, 0, 0), (0, 0, 0)
        if self.name == "x":
            first, last = (tuple(map(int, np.unravel_index(e, (s.C, s.H, s.W)))) for e in (low, high))
        elif self.name == "w":
            first, last = (low if low == high else low // s.CRS, 0, 0), (high // s.CRS, 0, 0)
        lanes = min(32, s.K * s.PQ - 32 * self.warp)
        told = self.warp, len(self.element), self.sectors, self.fewest
        return (*told, *first, *last, len(np.unique(self.element)), lanes)


def asked_of(trace: BlockTrace) -> list[Asked]:
    """Every request of the block, in the order of the trace."""
    found, of = [], trace.requests
    for n in range(len(of)):
        mask, byte, width = int(of.mask[n]) & 0xFFFFFFFF, of.byte[n], int(of.width[n])
        line = trace.lines[trace.line[of.step[n]]]
        element = byte[lanes_of(mask)].astype(np.int64) // 4
        name = trace.buffers[of.buffer[n]]
        found.append(
            Asked(name, int(of.warp[n]), mask, line.number, element, *sectors_asked(byte, mask, width))
        )
    return found


def in_warp_order(scene: Scene, s: ConvShape, trace: BlockTrace, counters: Counters, blocks: int) -> Scene:
    """`scene` (the whole of a small convolution) with its steps in the order of `trace`, block 0 of `blocks` of the
    launch; `counters` of that launch go to the margin of its source."""
    asked = asked_of(trace)
    more = int(blocks > 1)
    steps = len(asked) + more
    y = scene.cells("y")
    written = np.full(y.size, steps - 1)
    for n, one in enumerate(asked):
        if one.name == "y":
            written[one.element] = n
    args = np.zeros((steps, 12), np.int64)
    args[: len(asked)] = [one.args(s) for one in asked]
    args[len(asked) :, 0] = blocks - 1
    return dataclasses.replace(
        scene,
        key=f"{scene.key} warps",
        tensors=scene.tensors[:3],
        groups=(Group((("x", "w", "y"),)),),
        steps=steps,
        step_name="request",
        order_name=ORDER,
        order_note=NOTE,
        writes=(Write("y", written, y),),
        reads=tuple(_reads(name, asked, more) for name in ("x", "w")),
        readings=_readings(asked, more),
        captions=Captions(TEMPLATES, np.array([one.kind() for one in asked] + [OTHERS] * more), args),
        source=dataclasses.replace(
            scene.source,
            lines=np.array([one.line for one in asked] + [asked[-1].line] * more),
            notes=margin(counters, scene.source.file),
        ),
        lanes=Lanes(
            np.array([one.warp for one in asked] + [-1] * more),
            np.array([one.mask for one in asked] + [0] * more, np.uint32),
        ),
    )


def _reads(name: str, asked: list[Asked], more: int) -> Read:
    """What each step asks of a tensor."""
    cells = [np.unique(one.element) if one.name == name else np.zeros(0, int) for one in asked]
    count = np.array([0, *map(len, cells), *[0] * more])
    return Read(name, np.cumsum(count), np.concatenate(cells))


def _readings(asked: list[Asked], more: int) -> tuple[Reading, ...]:
    """Sectors and requests of block 0 so far; nothing more once it is done."""

    def so_far(values) -> np.ndarray:
        return np.cumsum([*values, *[0] * more])

    return (
        Reading("sectors of x", so_far(one.sectors * (one.name == "x") for one in asked), "counted"),
        Reading("sectors of w", so_far(one.sectors * (one.name == "w") for one in asked), "counted"),
        Reading("sectors stored", so_far(one.sectors * (one.name == "y") for one in asked), "counted"),
        Reading("requests", so_far(1 for _ in asked), "counted"),
    )
