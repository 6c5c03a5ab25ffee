"""Softmax as a scene: one row in one kernel, pass by pass, with m and l as numbers and the tree or butterfly that reduces
all threads' values. Infinities and NaN are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from kernels.i18n import mark, tr, trn
from kernels.ladders import find
from visuals.scene.parts import Annotation, Captions, Group, Reading, Source, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import BITS, LANES, mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of
from visuals.softmax import long_rows
from visuals.softmax.captions import MARKS, SECOND_LAUNCH, template
from visuals.softmax.plan import RunResult, blocks_of, run_rung, steps_of, threads_of
from visuals.softmax.rows import Step

ORDER = mark("step by step")
ORDER_NOTE = mark(
    "One step is one loop iteration, one level of the tree or one exchange of all threads of the row. A barrier "
    "is a point where all threads of a block wait. Between two barriers, the scheduler of the GPU chooses the order of the "
    "warps. Other rows run at the same time. m and l are computed here as in the kernel. y is the output of the kernel in the "
    "emulator."
)
FLOAT = 4  # bytes
ONLINE = "softmax/online"
PARTIAL = ("partial_m", "partial_l")  # two arrays in 03_online.cu; one array used twice in the others
MAX_COLUMNS = 1024  # shown of a row
MAX_ANNOTATED = 32  # threads; with more, cells have no notes
# Every tensor but x, and its role.
ROLES = {
    "values": "input",
    "m": "filter",
    "l": "workspace",
    "partial_m": "filter",
    "partial_l": "workspace",
    "warp_m": "filter",
    "warp_l": "workspace",
    "part_m": "filter",
    "part_l": "workspace",
    "y": "output",
}
MAX_THREADS = 1024  # shown of a row in several blocks


def visible_columns(N: int) -> int:
    """Returns how many columns of a row are shown."""
    return min(N, MAX_COLUMNS)


def softmax_scene(rung: str, tiles: Mapping[str, int], row: np.ndarray, row_note: str = "") -> Scene:
    """Returns the scene of one of our rungs at a row, float32 [n]; NaN and infinities are allowed. `row_note`: which row
    this is. Raises RuleError if the rung cannot run the row."""
    x = np.ascontiguousarray(row, np.float32)
    result = run_rung(rung, tuple(tiles.items()), x.tobytes())
    steps = steps_of(rung, tiles, x, result.output)
    r = _record(rung, steps)
    threads = threads_of(rung, tiles)
    tensors = _tensors(rung, tiles, x, steps, row_note)
    first_source, *next_sources = _sources(rung, result, steps)
    sizes = ",".join(f"{name}={value}" for name, value in tiles.items())
    return Scene(
        key=f"{rung} {sizes} {_digest(x)} {row_note}",
        title=tr(find(rung).title),
        tensors=tuple(tensors.values()),
        groups=_part_groups(tensors, blocks_of(rung, tiles)) if rung in long_rows.BLOCKS else _groups(tensors, threads),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(),
        readings=_readings(rung, steps, r, x.size),
        annotations=tuple(_annotations(tensors, threads, steps)),
        source=first_source,
        next_sources=tuple(next_sources),
        lanes=r.lanes(),
        finite=False,
    )


def _sources(rung: str, result: RunResult, steps: Sequence[Step]) -> Iterator[Source]:
    """Yields the source of each launch, from its first step on."""
    second = [step.kind in SECOND_LAUNCH.get(rung, ()) for step in steps]
    starts = [0, second.index(True)] if True in second else [0]
    for launch, start, stop in zip(result.launches, starts, [*starts[1:], len(steps)], strict=True):
        kinds = list(dict.fromkeys(step.kind for step in steps[start:stop]))
        yield source_of(
            launch.source,
            [MARKS[rung][kind] for kind in kinds],
            np.array([kinds.index(step.kind) for step in steps[start:stop]]),
            notes=margin(result.counters, launch.source.rpartition("/")[2]),
            detail=resources(launch),
            since=start,
        )


def _digest(x: np.ndarray) -> str:
    """Returns a row's length and a digest of its bits, for the scene's key."""
    return f"{x.size}:{blake2b(x.tobytes(), digest_size=6).hexdigest()}"


# -- tensors ---------------------------------------------------------------------------------------------
def _tensors(
    rung: str, tiles: Mapping[str, int], x: np.ndarray, steps: Sequence[Step], row_note: str
) -> dict[str, Tensor]:
    """Returns x and the tensors that the steps write, by name."""
    blocks = blocks_of(rung, tiles)
    threads = threads_of(rung, tiles) // blocks  # of a block
    last: dict[str, int] = {}
    for step in steps:
        for name, (cells, _) in step.writes.items():
            last[name] = max(last.get(name, 0), int(cells.max()))
    x_note = row_note or trn("{n} number", "{n} numbers", x.size)
    tensors = {"x": Tensor("x", "x", "x", "input", 1, 1, x.size, x, note=x_note)}
    for name in sorted(last, key=lambda name: list(ROLES).index(_base(name))):
        base = _base(name)
        cols = {"y": x.size, "warp_m": threads // LANES, "part_m": blocks}.get(base.replace("_l", "_m"), threads)
        rows = last[name] // cols + 1
        title, note = _title_and_note(rung, base, rows, tiles.get("PER", 0))
        note = note if name in (base, f"{base}_0") else ""
        symbol = "partial" if name in PARTIAL and rung != ONLINE else base
        tensors[name] = Tensor(name, symbol, title, ROLES[base], 1, rows, cols, note=note)
    return tensors


def _base(name: str) -> str:
    """Returns the name of a tensor without the number of its block: "warp_m" for "warp_m_1"."""
    return name.rstrip("0123456789").rstrip("_")


def _title_and_note(rung: str, name: str, rows: int, per: int) -> tuple[str, str]:
    """Returns (title, note) of a tensor with so many rows. `per`: registers of a thread for its part of the row."""
    if name == "values":
        note = tr("one row per register")
        if rows < per:
            note = trn("one row per register; {n} more holds −∞", "one row per register; {n} more hold −∞", per - rows)
        return tr("the row in registers"), note
    if name in ("m", "l"):
        title = tr("m, largest so far") if name == "m" else tr("l, sum so far")
        exchanged = rows > 1
        note = tr("one row after each exchange") if exchanged else tr("one column per thread")
        return title, note
    if name in PARTIAL:
        note = tr("one row per level, all in the same cells of shared memory")
        if rung == ONLINE:
            return name, note
        return (tr("partial, for m") if name == "partial_m" else tr("partial, for l")), note
    if name in ("part_m", "part_l"):
        return name, tr("one value per part")
    return {"y": ("y = softmax(x)", "")}.get(name, (name, tr("one value per warp")))


def _groups(tensors: Mapping[str, Tensor], threads: int) -> tuple[Group, ...]:
    def rows(*names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        existing = (tuple(n for n in row if n in tensors) for row in names)
        return tuple(row for row in existing if row)

    registers = tr("registers of lanes 0 to 31 of the warp")
    if threads != LANES:
        registers = trn("registers of the block’s {n} thread", "registers of the block’s {n} threads", threads)
    has_exchanges = tensors["m" if "m" in tensors else "l"].rows > 1
    register_rows = rows(("values",), ("m",), ("l",)) if has_exchanges else rows(("values",), ("m", "l"))
    many_threads = threads > 2 * LANES
    warps = ("warp_m", "warp_l")
    shared = rows(PARTIAL[:1], PARTIAL[1:], warps) if many_threads else rows(PARTIAL, warps)
    groups = [Group((("x",), ("y",)), "global", tr("global memory")), Group(register_rows, "registers", registers)]
    return (*groups, *([Group(shared, "shared", tr("shared memory of the block"))] if shared else []))


def _part_groups(tensors: Mapping[str, Tensor], blocks: int) -> tuple[Group, ...]:
    """Returns global memory, the registers of each block, then the shared memory of all."""
    groups = [Group((("x",), ("y",)), "global", tr("global memory"))]
    if "part_m" in tensors:
        groups.append(Group((("part_m", "part_l"),), "workspace", tr("workspace in global memory")))
    for b in range(blocks):
        names = [f"{name}_{b}" for name in ("values", "m", "l")]
        rows = tuple((name,) for name in names if name in tensors)
        groups.append(Group(rows, "registers", tr("registers of block {n}", n=b)))
    groups.append(Group((("warp_m", "warp_l"),), "shared", tr("shared memory, one row per block")))
    return tuple(groups)


# -- steps -----------------------------------------------------------------------------------------------
def _record(rung: str, steps: Sequence[Step]) -> Recorder:
    """Returns the steps, with the bytes of x read and of y written."""
    marks = list(MARKS[rung])
    kinds = dict.fromkeys(step.kind for step in steps)
    r = Recorder({kind: (marks.index(kind), template(kind)) for kind in kinds})
    for step in steps:
        warp = int(step.active[0]) // LANES
        lanes = step.active[step.active // LANES == warp] % LANES
        y_cells, _ = step.writes.get("y", ((), ()))
        counts = {"read": FLOAT * len(step.reads.get("x", ())), "written": FLOAT * len(y_cells)}
        r.step(step.kind, *step.args, warp=warp, mask=mask_of(lanes), **counts)
        for name, cells in step.reads.items():
            r.look(name, cells)
        for name, (cells, values) in step.writes.items():
            r.put(name, values, cells)
    return r


def _readings(rung: str, steps: Sequence[Step], r: Recorder, n: int) -> tuple[Reading, ...]:
    values = [] if rung.endswith("unsafe") else [Reading(tr("m so far"), np.array([s.m for s in steps]), role="filter")]
    return (
        *values,
        Reading(tr("l so far"), np.array([s.l for s in steps]), role="workspace"),
        Reading(tr("bytes of x read"), r.so_far("read"), "counted"),
        Reading(tr("passes over x"), r.so_far("read") / (FLOAT * n), "counted"),
        Reading(tr("bytes of y written"), r.so_far("written"), "counted"),
    )


# -- notes on cells ----------------------------------------------------------------------------------------
_NOTES = {
    "m": mark("The larger of {0} and {1}."),
    "l": mark("The sum of {0} and {1}."),
    "both": mark("The sum of {0} and {1}, each first rescaled to the larger m."),
}


def _annotations(tensors: Mapping[str, Tensor], threads: int, steps: Sequence[Step]) -> list[Annotation]:
    """Returns notes on the cells of trees and butterflies: the two cells that each was computed from."""
    if threads > MAX_ANNOTATED:
        return []
    merged = any(step.kind.endswith("_ml") for step in steps)
    l_note = "both" if merged else "l"
    note_of = {"partial_m": "m", "partial_l": l_note, "m": "m", "l": l_note}
    return [
        _annotation(tensors[name], name in PARTIAL, note, steps)
        for name, note in note_of.items()
        if name in tensors and tensors[name].rows > 1
    ]


def _annotation(t: Tensor, tree: bool, note: str, steps: Sequence[Step]) -> Annotation:
    """Returns the notes of one tensor, row by row. A tree halves the number of cells; a butterfly pairs lanes by one bit."""
    values = np.full(t.size, np.nan)
    for step in steps:
        if t.name in step.writes:
            cells, cell_values = step.writes[t.name]
            values[cells] = cell_values
    links, args = np.full((t.size, 2), -1), np.zeros((t.size, 2))
    is_made = np.zeros(t.size, bool)
    for level in range(1, min(t.rows, len(BITS) + 1) if not tree else t.rows):
        distance = (t.cols >> level) if tree else BITS[level - 1]
        column = np.arange(distance if tree else t.cols)
        cells = level * t.cols + column
        links[cells] = (level - 1) * t.cols + np.stack(
            [column, column + distance if tree else column ^ distance], axis=1
        )
        args[cells], is_made[cells] = values[links[cells]], True
    kind = np.where(is_made, 0, 1)
    return Annotation(t.name, Captions((tr(_NOTES[note]), ""), kind, args), {t.name: links})
