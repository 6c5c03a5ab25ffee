"""im2col in the order of its warps: the same matrices, in the order in which the emulator executed block 0.

`im2col/scene.py` goes column by column so that it is easy to follow. Here every step is one store of one warp: 32
lanes write 32 neighbouring columns of one row. The product is one step at the end.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from visuals.conv.im2col import captions
from visuals.conv.im2col.captions import reshape
from visuals.conv.part import SHOWN_IN_PART, Part
from visuals.scene.parts import Captions, Lanes, Reading, Write
from visuals.scene.requests import ORDER, ORDER_NOTE, mask_of, traffic
from visuals.scene.scene import Scene
from visuals.scene.source import margin

NOTE = mark("Each step is one store of one warp of block 0, in the order of the emulator.")


@dataclasses.dataclass(frozen=True)
class Store:
    """One store of one warp, and the loads of that warp whose values it writes. Elements are flat."""

    warp: int
    mask: int  # bit i: lane i stores
    line: int
    cells: np.ndarray  # of the data matrix
    read: np.ndarray  # of the input


def stores_of(trace: BlockTrace) -> list[Store]:
    """Returns every store into the data matrix, in the order of the trace."""
    names = trace.buffers
    stores, loads = [], {}
    warps, lanes = trace.thread // 32, trace.thread % 32
    bounds = np.flatnonzero(np.diff(trace.step.astype(np.int64) * 2 + trace.write, prepend=-1, append=-1))
    for start, stop in itertools.pairwise(bounds):
        for warp in np.unique(warps[start:stop]):
            indices = start + np.flatnonzero(warps[start:stop] == warp)
            if not trace.write[start]:
                if names[trace.buffer[start]] == "x":
                    loads.setdefault(warp, []).append(trace.element[indices])
                continue
            line = trace.lines[trace.line[trace.step[start]]]
            read = np.concatenate(loads.pop(warp, [np.zeros(0, np.uint32)]))
            cells = trace.element[indices].astype(int)
            stores.append(
                Store(int(warp), mask_of(lanes[indices]), line.number if line else 0, cells, read.astype(int))
            )
    return stores


MAX_WINDOWS = 1 << 16  # threads that the emulator runs at once: the reader waits for it


def blocks(s: ConvShape) -> int:
    """Returns the number of blocks along x of the im2col launch at its default size."""
    rung = find("conv/im2col-gemm")
    return rung.build(s, rung.default_tiles).launch().grid[0]


def why_not(s: ConvShape, part: Part, block: int = 0) -> str:
    """Returns why the order of the warps cannot be shown for a shape; "" if it can. The size of a block does not matter."""
    if s.N > 1 or (s.C, s.P, s.Q) != (part.C, part.P, part.Q):
        return tr(SHOWN_IN_PART)
    if s.C * s.PQ > MAX_WINDOWS:
        return tr(
            "The warp order is limited to {limit} windows (one per channel and output pixel). This shape has {count}.",
            limit=decimal(f"{MAX_WINDOWS:,}"),
            count=decimal(f"{s.C * s.PQ:,}"),
        )
    return ""


def in_warp_order(scene: Scene, s: ConvShape, trace: BlockTrace, counters: Counters, blocks: int) -> Scene:
    """Returns `scene` (the whole of a small convolution) with its steps in the order of `trace`, block 0 of
    `blocks` of the im2col launch. `counters` of that launch go to the margin of its source."""
    source = scene.source
    assert source is not None  # of a kernel
    stores = stores_of(trace)
    has_others = blocks > 1
    steps = len(stores) + has_others + 2
    product = steps - 2  # the second launch; after it the reshape
    written = np.full(s.CRS * s.PQ, len(stores))  # writes of other blocks come after block 0
    for n, store in enumerate(stores):
        written[store.cells] = n
    args = np.zeros((steps, 11), np.int64)
    for n, store in enumerate(stores):
        rows, columns = store.cells // s.PQ, store.cells % s.PQ
        numbers = (rows[0], rows[-1], columns[0], columns[-1], *traffic(store.read), *traffic(store.cells))
        args[n] = (store.warp, *numbers)
    masks = [store.mask for store in stores] + [0] * (2 + has_others)
    warps = [store.warp for store in stores] + [-1] * (2 + has_others)
    lines = np.array([store.line for store in stores] + [stores[-1].line] * has_others)
    gemm = dataclasses.replace(scene.next_sources[0], lines=np.array([_summing(scene), 0]), since=product)
    return dataclasses.replace(
        scene,
        key=f"{scene.key} warps",
        tensors=tuple(t for t in scene.tensors if t.name != "sum"),
        groups=tuple(g for g in scene.groups if g.rows != (("sum",),)),
        steps=steps,
        step_name=tr("store"),
        order_name=tr(ORDER),
        order_note=f"{tr(NOTE)} {tr(ORDER_NOTE)}",
        writes=(
            dataclasses.replace(scene.write("D"), steps=written),
            Write("C", np.array([product]), scene.cells("C")),
            dataclasses.replace(scene.write("y"), steps=np.array([product + 1])),
        ),
        reads=(),
        readings=_readings(args[: len(stores)], steps),
        captions=Captions(_templates(s, blocks - 1), np.array(_kinds(stores, s.PQ, has_others)), args),
        source=dataclasses.replace(source, lines=lines, notes=margin(counters, source.file)),
        next_sources=(gemm,),
        lanes=Lanes(np.array(warps), np.array(masks, np.uint32)),
    )


def _summing(scene: Scene) -> int:
    """Returns the line of the product's kernel that adds a term; of a library its call."""
    adding = [captions.KINDS.index(kind) for kind in (*captions.MULTIPLY, "library")]
    return scene.source_at(int(np.flatnonzero(np.isin(scene.captions.kind, adding))[-1]))[1]


def _readings(args: np.ndarray, steps: int) -> tuple[Reading, ...]:
    """Returns sectors and store instructions of block 0 so far. They stay constant after its stores are done."""

    def so_far(column):
        return np.cumsum(np.pad(column, (0, steps - len(column))))

    return (
        Reading(tr("sectors loaded by block 0"), so_far(args[:, 6]), "counted"),
        Reading(tr("sectors stored by block 0"), so_far(args[:, 9]), "counted"),
        Reading(tr("stores of block 0"), so_far(np.ones(len(args), int)), "counted"),
    )


def _templates(s: ConvShape, other_blocks: int) -> tuple[str, ...]:
    """Returns the templates of a store in one row, in several rows, both with zeros alone, of other blocks, of the product
    and of the reshape.
    {0} warp, {1} {2} rows, {3} {4} columns, {5} {6} {7} lanes, sectors and fewest sectors of the loads, {8} {9} {10} of
    the store."""
    one_row = tr("Warp {0} stores row {1}, columns {3} to {4} of the [data matrix](workspace).")
    rows = tr("Warp {0} stores in rows {1} to {2} of the [data matrix](workspace), one row per channel.")
    stored = tr("Active lanes: {8}. Sectors (32 bytes) touched: {9}, minimum {10}.")
    loaded = tr("The values are loaded from the [input](input): lanes {5}, sectors {6}, minimum {7}.")
    zeros = tr("All values are zeros of the padding. No lane loads from the [input](input).")
    return (
        f"{one_row} {stored} {loaded}",
        f"{rows} {stored} {loaded}",
        f"{one_row} {stored} {zeros}",
        f"{rows} {stored} {zeros}",
        trn(
            "The other block copies its windows in the same way. The [data matrix](workspace) is complete.",
            "The other {n} blocks copy their windows in the same way. The [data matrix](workspace) is complete.",
            other_blocks,
        ),
        tr(
            "A second launch multiplies the [filters](filter) by the [data matrix](workspace). The result is the [output matrix](output)."
        ),
        reshape(s.P, s.Q),
    )


def _kinds(stores: list[Store], row: int, has_others: bool) -> list[int]:
    """Returns the template index of each step; `row` is the length of a row."""
    several = [int(store.cells[0] // row != store.cells[-1] // row) for store in stores]
    zeros = [2 * (not len(store.read)) for store in stores]
    return [a + b for a, b in zip(several, zeros, strict=True)] + [4] * has_others + [5, 6]
