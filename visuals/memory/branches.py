"""Divergence: what each lane of a warp executes over time, from the emulator's trace.

A row of a warp's table is a moment. A cell is the line that the lane runs then. A lane that is masked runs nothing: its cell
stays empty. The lines that only count the loop or compute addresses are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels import sources
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.memory.shape import BranchShape
from visuals.memory.threads import Traced, source_at, touched, traced
from visuals.scene.parts import Captions, Group, Lanes, Reading, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.requests import LANES, lanes_of
from visuals.scene.scene import Scene

WARPS = 2
LOAD, TEST, FIRST, SECOND, STORE = range(5)  # kinds of moments
MARKS = ("value = x[i]", "if (i % 2 == 0)", "sum = sum * 0.5f", "sum = sum * 0.25f", "y[i] = sum")
ORDER = mark("moment by moment")
ORDER_NOTE = mark(
    "Each row is a moment of a warp, as the emulator executed it. Lines that count the loop or compute addresses are left "
    "out. On a GPU the scheduler chooses when each warp runs."
)


@dataclass(frozen=True)
class Moment:
    """What a warp runs at a moment: the kind, the line, and the active lanes as a mask."""

    kind: int
    line: int
    mask: int


def moments(trace: BlockTrace, warp: int) -> list[Moment]:
    """Returns the moments of a warp in order: its load, the test, each multiply-add of the branches, its store."""
    found = []
    moved = {LOAD: _steps_of(trace, warp, "x", write=False), STORE: _steps_of(trace, warp, "y", write=True)}
    for step in range(trace.steps):
        line, mask = trace.lines[trace.line[step]], int(trace.masks[step, warp])
        kind = LINES.get(line.number if line else 0)
        if not mask or kind is None or (kind in moved and step not in moved[kind]):
            continue
        if kind != TEST or all(moment.kind != TEST for moment in found):
            found.append(Moment(kind, line.number, mask))
    return found


def _steps_of(trace: BlockTrace, warp: int, buffer: str, write: bool) -> set[int]:
    """Returns the steps at which a warp accesses a buffer."""
    at = (trace.write == write) & (trace.thread // LANES == warp) & (trace.buffer == trace.buffers.index(buffer))
    return set(trace.step[at].tolist())


def _lines() -> dict[int, int]:
    """Returns the kind of moment of each line that has one."""
    text = sources.text("memory/07_branch.cu").splitlines()
    numbers = [next(n for n, line in enumerate(text, 1) if re.search(re.escape(mark), line)) for mark in MARKS]
    return {number: kind for kind, number in enumerate(numbers)}


LINES = _lines()


def branches_scene(name: str, rounds: int, seed: int = 0) -> Scene:
    """Returns the scene of two warps of branch/lanes or branch/warps. Of warps that run the same, the first is shown."""
    rung, shape = f"branch/{name}", BranchShape(WARPS * LANES, rounds)
    t = traced(rung, shape, (("BLOCK", WARPS * LANES),), seed)
    of_warp = [moments(t.traces[0], warp) for warp in range(WARPS)]
    shown = of_warp[:1] if of_warp[0] == of_warp[1] else of_warp
    steps = max(map(len, shown))
    return Scene(
        key=f"branches {name} {rounds}",
        title=tr(find(rung).title),
        tensors=_tensors(t, shown),
        groups=(Group((("x",), *((f"warp{n}",) for n in range(len(shown))), ("y",)), table=True),),
        steps=steps,
        step_name=tr("moment"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=tuple(_writes(t, shown)),
        reads=(_loads(t, shown, steps),),
        readings=_readings(shown, steps),
        captions=_captions(shown, rounds, steps),
        source=source_at(t, MARKS, [shown[0][min(k, len(shown[0]) - 1)].kind for k in range(steps)]),
        lanes=Lanes(np.zeros(steps, int), np.array([_at(shown[0], k).mask for k in range(steps)], np.uint32)),
    )


def _at(warp: Sequence[Moment], step: int) -> Moment:
    return warp[min(step, len(warp) - 1)]


def _tensors(t: Traced, shown: Sequence[Sequence[Moment]]) -> tuple[Tensor, ...]:
    both = tr("both warps run the same") if len(shown) < WARPS else ""
    return (
        Tensor("x", "x", "x", "input", 1, WARPS, LANES, t.inputs["x"], note=tr("32 per row")),
        *(
            Tensor(
                f"warp{n}",
                tr("line"),
                tr("warp {n}: the line that each lane runs", n=n),
                "workspace",
                1,
                len(warp),
                LANES,
                note=both or tr("time runs down"),
            )
            for n, warp in enumerate(shown)
        ),
        Tensor("y", "y", "y", "output", 1, WARPS, LANES, note=tr("32 per row")),
    )


def _writes(t: Traced, shown: Sequence[Sequence[Moment]]):
    """Yields the writes: the active lanes of each moment get its line, and y its sums at the store."""
    for n, warp in enumerate(shown):
        lanes = [lanes_of(moment.mask) for moment in warp]
        step = np.repeat(np.arange(len(warp)), [len(some) for some in lanes])
        lines = np.array([moment.line for moment in warp], np.float32)[step]
        yield Write(f"warp{n}", step, lines, cells=step * LANES + np.concatenate(lanes))
    for n in range(WARPS):
        cells, _ = touched(t.traces[0], "y", write=True, warp=n)
        stored = len(shown[min(n, len(shown) - 1)]) - 1
        yield Write("y", np.array([stored]), t.output[cells], cells=cells)


def _loads(t: Traced, shown: Sequence[Sequence[Moment]], steps: int):
    cells = np.concatenate([touched(t.traces[0], "x", write=False, warp=n)[0] for n in range(WARPS)])
    none = np.zeros(0, int)
    return read_per_step("x", [cells if _at(shown[0], k).kind == LOAD else none for k in range(steps)])


def _readings(shown: Sequence[Sequence[Moment]], steps: int) -> tuple[Reading, ...]:
    inside = [m.kind in (FIRST, SECOND) for m in shown[0]]
    idle = [LANES - len(lanes_of(m.mask)) for m in shown[0]]
    return (
        Reading(tr("moments of warp 0 in a branch"), np.cumsum(inside), "counted"),
        Reading(tr("of its lanes masked so far"), np.cumsum(idle), "counted"),
    )


# -- captions ------------------------------------------------------------------------------------------
_TOGETHER = (
    mark("All {1} lanes of each warp load their number of [x](input)."),
    mark("The test: even elements take line {3}, odd elements line {4}. All lanes of a warp agree."),
    mark("Each warp runs its own branch, with all {1} lanes. Warp 0 is at line {2}. No lane waits."),
    mark("Each warp runs its own branch, with all {1} lanes. Warp 0 is at line {2}. No lane waits."),
    mark("Each warp stores its sums to [y](output). {0} rounds took {5} moments in a branch."),
)
_APART = (
    mark("All {1} lanes of the warp load their number of [x](input)."),
    mark(
        "The test: even lanes take line {3}, odd lanes line {4}. The lanes disagree, so the warp must run both branches."
    ),
    mark("First pass: {1} lanes run line {2}. The other {6} lanes are masked: they wait."),
    mark("Second pass: {1} lanes run line {2}. Now the other {6} lanes are masked."),
    mark("All {1} lanes run together again and store to [y](output). {0} rounds took {5} moments in a branch."),
)


def _captions(shown: Sequence[Sequence[Moment]], rounds: int, steps: int) -> Captions:
    inside = sum(moment.kind in (FIRST, SECOND) for moment in shown[0])
    lines = {kind: line for line, kind in LINES.items()}
    rows = []
    for k in range(steps):
        moment = _at(shown[0], k)
        active = len(lanes_of(moment.mask))
        rows.append((rounds, active, moment.line, lines[FIRST], lines[SECOND], inside, LANES - active))
    texts = _APART if len(shown) == 1 else _TOGETHER
    return Captions(tuple(map(tr, texts)), np.array([_at(shown[0], k).kind for k in range(steps)]), np.array(rows))
