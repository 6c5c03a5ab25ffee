"""An optimiser's step as a scene: which block of which launch updates which elements of which tensor.

Every array is shown tensor by tensor, one row each. The gaps between the tensors are left out: no kernel touches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.optimizer.shape import AdamShape, OptimizerShape, SgdShape
from visuals.optimizer.captions import IDLE, LOAD, NUMBERS, STORE, TABLE, UPDATE, WIDTH, lit, template
from visuals.scene.parts import Group, Reading, Source, Tensor
from visuals.scene.program_traces import TracedLaunch, TracedProgram, traced
from visuals.scene.recorder import Recorder
from visuals.scene.requests import ORDER, ORDER_NOTE, mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of

MAX_ELEMENTS, MAX_TENSORS = 1024, 12
DECIMALS = 2  # of the numbers shown
NOTE = mark("The picture shows one warp per step, launch by launch and block by block, as the emulator executed them.")
ROLES = {"w": "filter", "g": "output", "m": "input", "v": "workspace"}
TITLES = {
    "sgd": {"w": mark("w, weights"), "g": mark("g, gradient"), "v": mark("v, running sum of gradients")},
    "adam": {
        "w": mark("w, weights"),
        "g": mark("g, gradient"),
        "m": mark("m, average of gradients"),
        "v": mark("v, average of their squares"),
    },
}
TABLE_NAME = "chunks"


@dataclass
class Step:
    """What one step does: elements of the allocation that are read, and (elements, values) that are written."""

    kind: str
    launch: int
    block: int
    warp: int
    lanes: np.ndarray
    element: int = -1  # of the allocation, the first one; -1: none
    reads: dict[str, np.ndarray] = field(default_factory=dict)
    writes: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


def optimizer_scene(rung: str, s: OptimizerShape, tiles: Mapping[str, int], seed: int = 0) -> Scene:
    """Returns the scene of one of our rungs at a list of tensors. RuleError above MAX_ELEMENTS elements or MAX_TENSORS."""
    if s.elements > MAX_ELEMENTS or len(s.counts) > MAX_TENSORS:
        raise RuleError(
            tr(
                "at most {most} elements of {tensors} tensors are shown, there are {count} of {number}",
                most=decimal(f"{MAX_ELEMENTS:,}"),
                tensors=MAX_TENSORS,
                count=decimal(f"{s.elements:,}"),
                number=len(s.counts),
            )
        )
    t = traced(rung, s, tuple(sorted(tiles.items())), seed, DECIMALS)
    ladder, places = ladder_of(rung).name, _Places(s)
    per_tensor = len(t.launches) > 1 or t.program.launch().entry.endswith("tensor")
    r, kinds, marks = Recorder(), [], []
    for step in (step for n in range(len(t.launches)) for step in _steps(t, n)):
        if step.kind not in kinds:
            kinds.append(step.kind)
        marks.append((step.launch, lit(step.kind, per_tensor)))
        _record(r, kinds.index(step.kind), t, s, ladder, places, step)
    arrays = [name for name in t.inputs if name != TABLE_NAME]
    tensors = {array: [_tensor(t, places, ladder, array, n) for n in range(len(s.counts))] for array in arrays}
    table = [] if per_tensor else [_table(t, s)]
    source, *others = _sources(t, marks)
    return Scene(
        key=f"{rung} {s.params()} {seed} " + ",".join(f"{k}={v}" for k, v in sorted(tiles.items())),
        title=tr(find(rung).title),
        tensors=(*(tensor for of in tensors.values() for tensor in of), *table),
        groups=(
            *(
                Group(tuple((tensor.name,) for tensor in of), "global", tr(TITLES[ladder][array]))
                for array, of in tensors.items()
            ),
            *([Group(((TABLE_NAME,),), "global", tr("table of chunks"))] if table else []),
        ),
        steps=r.steps,
        step_name=tr("warp"),
        order_name=tr(ORDER),
        order_note=f"{tr(NOTE)} {tr(ORDER_NOTE)}",
        writes=r.writes(),
        reads=r.reads(),
        readings=(
            Reading(tr("launches so far"), np.array([n + 1 for n, _ in marks]), "counted"),
            Reading(tr("bytes read from global memory"), r.so_far("read"), "counted"),
            Reading(tr("bytes written to global memory"), r.so_far("written"), "counted"),
        ),
        captions=r.captions([template(kind, ladder, per_tensor) for kind in kinds]),
        source=source,
        next_sources=tuple(others),
        lanes=r.lanes(),
    )


class _Places:
    """Which tensor each element of the allocation belongs to, and its index there; -1 in a gap."""

    def __init__(self, s: OptimizerShape):
        self.tensor, self.index = np.full(s.extent, -1), np.full(s.extent, -1)
        for n, (first, count) in enumerate(s.tensors):
            self.tensor[first : first + count] = n
            self.index[first : first + count] = np.arange(count)


# -- steps -----------------------------------------------------------------------------------------
def _steps(t: TracedProgram, n: int) -> Iterator[Step]:
    """Yields the steps of launch n: of a launch with a table, each block begins with its line."""
    of = t.launches[n]
    for block in range(len(of.traces)):
        if len(line := of.accesses(block, TABLE_NAME, write=False)):
            chunk = int(t.inputs[TABLE_NAME][block, 0])
            yield Step(TABLE, n, block, -1, np.zeros(0, int), chunk, {TABLE_NAME: np.unique(line.element)})
        for warp in range(of.warps):
            yield from _iterations(t, of, Step(UPDATE, n, block, warp, np.zeros(0, int)))


def _iterations(t: TracedProgram, of: TracedLaunch, at: Step) -> Iterator[Step]:
    """Yields the steps of one warp: of float4 the loads, then the update; else one step per iteration of its lanes."""
    found = of.accesses(at.block, "g", write=False, warp=at.warp)
    if not len(found):
        yield Step(IDLE, at.launch, at.block, at.warp, at.lanes)
        return
    wide = of.launch.entry.endswith("float4")
    per, block = dict(of.launch.defines).get("PER", 1), of.launch.block[0]
    start = (
        int(t.inputs[TABLE_NAME][at.block, 0])
        if not of.launch.entry.endswith("tensor")
        else int(np.array(of.launch.args[-3]))
    )
    iteration_of = lambda element: (element - start) // (4 * block * per if wide else block)  # noqa: E731
    for iteration in np.unique(iteration_of(found.element)):
        kinds = (LOAD, STORE) if wide else (UPDATE,)
        steps = [
            _iteration(t, of, at, kind, lambda element, iteration=iteration: iteration_of(element) == iteration)
            for kind in kinds
        ]
        if wide:
            steps[0].writes.clear()
            steps[1].reads.clear()
        yield from steps


def _iteration(
    t: TracedProgram, of: TracedLaunch, at: Step, kind: str, is_here: Callable[[np.ndarray], np.ndarray]
) -> Step:
    step = Step(kind, at.launch, at.block, at.warp, at.lanes)
    for name in t.inputs:
        if name == TABLE_NAME:
            continue
        read, written = (of.accesses(at.block, name, write, at.warp) for write in (False, True))
        here = is_here(read.element)
        step.reads[name] = read.element[here]
        step.lanes, step.element = np.unique(read.lane[here]), int(read.element[here].min())
        if len(written):
            here = is_here(written.element)
            step.writes[name] = written.element[here], written.value[here]
    return step


def _record(
    r: Recorder, kind: int, t: TracedProgram, s: OptimizerShape, ladder: str, places: _Places, step: Step
) -> None:
    of_table = step.kind == TABLE
    threads = t.launches[step.launch].launch.block[0]
    read = 8 * threads if of_table else 4 * sum(map(len, step.reads.values()))
    written = 4 * sum(len(cells) for cells, _ in step.writes.values())
    r.step(
        kind, *_args(t, s, ladder, places, step), warp=step.warp, mask=mask_of(step.lanes), read=read, written=written
    )
    for name, elements in step.reads.items():
        for tensor, cells, _ in [(None, elements, None)] if of_table else _by_tensor(places, elements):
            r.look(name if of_table else f"{name}{tensor}", cells)
    for name, (elements, values) in step.writes.items():
        for tensor, cells, at in _by_tensor(places, elements):
            r.put(f"{name}{tensor}", values[at], cells)


def _by_tensor(places: _Places, elements: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields (tensor, indices in it, which of the elements they are)."""
    for tensor in np.unique(places.tensor[elements]):
        at = np.flatnonzero(places.tensor[elements] == tensor)
        yield int(tensor), places.index[elements[at]], at


def _args(t: TracedProgram, s: OptimizerShape, ladder: str, places: _Places, step: Step) -> np.ndarray:
    """Returns the numbers of a step's caption."""
    args = np.zeros(WIDTH)
    args[:4] = step.launch, step.block, step.warp, len(step.lanes)
    if step.element < 0:
        return args
    i = step.element
    args[4:6] = places.tensor[i], places.index[i]
    if step.kind == TABLE:
        args[6:8] = t.inputs[TABLE_NAME][step.block]
        return args
    old, new = ({name: array[i] for name, array in of.items()} for of in (_floats(t.before), _floats(t.flat)))
    assert isinstance(s, SgdShape | AdamShape)
    gradient = old["g"] + s.weight_decay * old["w"]
    if isinstance(s, SgdShape):
        numbers = s.momentum, old["v"], gradient, new["v"], old["w"], s.lr, new["w"]
    else:
        change = float(new["w"]) - float(old["w"])  # shown itself: it is far below the last digit of w
        numbers = gradient, old["m"], new["m"], old["v"], new["v"], old["w"], change
    args[NUMBERS : NUMBERS + len(numbers)] = numbers
    return args


def _floats(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if name != TABLE_NAME}


# -- parts -----------------------------------------------------------------------------------------
def _tensor(t: TracedProgram, places: _Places, ladder: str, array: str, n: int) -> Tensor:
    """Returns one tensor of an array: a row of its elements before the step."""
    values = t.before[array][places.tensor == n].astype(np.float32)
    return Tensor(
        f"{array}{n}",
        array,
        tr("tensor {n}", n=n),
        ROLES[array],
        1,
        1,
        len(values),
        values,
        note=decimal(f"{len(values):,}"),
    )


def _table(t: TracedProgram, s: OptimizerShape) -> Tensor:
    values = t.before[TABLE_NAME].astype(np.float32)
    return Tensor(
        TABLE_NAME,
        "table",
        tr("first element, elements"),
        "output",
        1,
        len(s.chunks),
        2,
        values,
        note=tr("one line per block"),
    )


def _sources(t: TracedProgram, marks: list[tuple[int, str]]) -> list[Source]:
    """Returns the kernel's file: all launches of a rung are of one kernel."""
    lines = [line for _, line in marks]
    patterns = list(dict.fromkeys(lines))
    of = t.launches[0]
    return [
        source_of(
            of.launch.source,
            patterns,
            np.array([patterns.index(line) for line in lines]),
            notes=margin(t.counters, of.file),
            detail=resources(of.launch),
        )
    ]
