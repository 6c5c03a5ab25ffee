"""What the scenes of the norms share: which numbers belong together, in which order threads take them, and steps as data.

Forward and backward have one plan. A `Unit` is a channel, or a row: the numbers that one mean and one deviation belong
to. Forward, y of a number depends on every x of its unit. Backward, dx depends on every dy over the same links.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.ladders import find, ladder_of
from kernels.model.program import Launch, Program
from kernels.model.shape import S, Shape
from kernels.norm.shape import NHWC, MapsShape, RowsShape
from kernels.runner import inputs_of
from visuals.scene.fold import repeats

State = dict[str, np.ndarray]  # registers by name: float32, one a thread
Cells = np.ndarray


@dataclass(frozen=True)
class Step:
    """One step: kind and numbers of its caption, the threads that work (None: no single block), reads and writes by tensor
    (flat cells; new values), which launch runs, and values so far, by name."""

    kind: str
    args: tuple[float, ...] = ()
    active: np.ndarray | None = None
    reads: Mapping[str, Cells] = field(default_factory=dict)
    writes: Mapping[str, tuple[Cells, np.ndarray]] = field(default_factory=dict)
    launch: int = 0
    totals: Mapping[str, float] = field(default_factory=dict)
    line: str = ""  # the kind whose line is lit, if it is another


@dataclass(frozen=True)
class Executed(Generic[S]):
    """A rung that the emulator has executed: the program, every buffer after it (flat), and its counters."""

    shape: S
    tiles: Mapping[str, int]
    program: Program
    arrays: Mapping[str, np.ndarray]
    counters: Counters

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.program.launches

    def defines(self, n: int) -> dict[str, int]:
        return dict(self.launches[n].defines)


def execute(rung: str, shape: Shape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Executed:
    """Runs a rung in the emulator. Missing inputs are seeded. RuleError if the rung cannot run the shape."""
    given = tuple((name, np.ascontiguousarray(a, np.float32).tobytes()) for name, a in inputs.items())
    return _execute(rung, shape, tuple(sorted(tiles.items())), given)


@lru_cache(maxsize=64)
def _execute(rung: str, shape: Shape, tiles: tuple, given: tuple[tuple[str, bytes], ...]) -> Executed:
    found = find(rung)
    all_tiles = found.check(shape, dict(tiles))
    program = found.build(shape, all_tiles)
    inputs = inputs_of(ladder_of(rung), shape, program)
    own = {name: np.frombuffer(data, np.float32).reshape(inputs[name].shape) for name, data in given}
    derive = ladder_of(rung).derive
    if own and derive:
        own = dict(derive(shape, inputs | own)) | own
    session = emulator.Session(program, inputs | own, Options())
    session.verify_run()
    arrays = {b.name: np.array(session.fetch(b.name)).ravel() for b in program.buffers}
    return Executed(shape, all_tiles, program, arrays, session.counted)


# -- numbers that belong together ------------------------------------------------------------------------
def units(shape: MapsShape | RowsShape) -> np.ndarray:
    """Returns int64[units, n]: where the numbers of each channel or row are in memory, in the order of the kernels."""
    if not isinstance(shape, MapsShape):
        return np.arange(shape.elements).reshape(shape.M, shape.N)
    flat = np.arange(shape.elements)
    if shape.layout == NHWC:
        return flat.reshape(shape.count, shape.C).T
    return flat.reshape(shape.N, shape.C, shape.HW).transpose(1, 0, 2).reshape(shape.C, shape.count)


def links(shape: MapsShape | RowsShape) -> np.ndarray:
    """Returns int64[elements, n]: the numbers that a number depends on, forward and backward: those of its unit."""
    found = units(shape)
    linked = np.empty((shape.elements, found.shape[1]), int)
    for cells in found:
        linked[cells] = cells
    return linked


# -- arithmetic of the kernels, in float32 ---------------------------------------------------------------
def added(a: State, b: State) -> State:
    return {name: a[name] + b[name] for name in a}


def merged(a: State, b: State) -> State:
    """Returns the moments of both parts, by Chan's rule."""
    n, distance = a["n"] + b["n"], b["mean"] - a["mean"]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(n > 0, b["n"] / n, np.float32(0)).astype(np.float32)
    return {
        "n": n,
        "mean": a["mean"] + distance * share,
        "M2": a["M2"] + b["M2"] + distance * distance * a["n"] * share,
    }


def part(state: State, at: np.ndarray) -> State:
    return {name: values[at] for name, values in state.items()}


def put(state: State, at: np.ndarray, values: State) -> State:
    """Returns the state with the values of the threads `at` replaced."""
    updated = {name: array.copy() for name, array in state.items()}
    for name in updated:
        updated[name][at] = values[name]
    return updated


def zeros(threads: int, *names: str) -> State:
    return {name: np.zeros(threads, np.float32) for name in names}


def numbers(state: State, k: int) -> tuple[float, ...]:
    """Returns the values of thread k."""
    return tuple(float(values[k]) for values in state.values())


# -- one unit in one block -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Unit:
    """The first channel or row, computed by so many threads of one block."""

    run: Executed
    threads: int
    number: int = 0

    @property
    def cells(self) -> np.ndarray:
        return units(self.run.shape)[self.number]

    @property
    def n(self) -> int:
        return len(self.cells)

    @property
    def iterations(self) -> int:
        return -(-self.n // self.threads)

    def iteration(self, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (numbers of the unit, threads) of an iteration."""
        j = np.arange(iteration * self.threads, min(self.n, (iteration + 1) * self.threads))
        return j, j - iteration * self.threads

    def of(self, name: str) -> np.ndarray:
        """Returns the numbers of the unit in a tensor of the size of x, float32 [n]."""
        return self.run.arrays[name][self.cells]

    def scalar(self, name: str) -> np.float32:
        """Returns the unit's own number of a vector with one number a unit."""
        return self.run.arrays[name][self.number]

    def factor(self, name: str) -> np.ndarray:
        """Returns gamma or beta of each number of the unit, float32 [n]."""
        values = self.run.arrays[name]
        return np.full(self.n, values[self.number]) if self.by_channel else values

    @property
    def by_channel(self) -> bool:
        return isinstance(self.run.shape, MapsShape)

    def factor_cells(self, j: np.ndarray) -> np.ndarray:
        """Returns which cells of gamma and beta the numbers j of the unit need."""
        return np.array([self.number]) if self.by_channel else j


def rest(run: Executed, done: Mapping[str, np.ndarray], names: tuple[str, ...]) -> dict[str, tuple[Cells, np.ndarray]]:
    """Returns writes of all cells of these buffers that are not in `done`, with the values that the kernel stored."""
    writes = {}
    for name in names:
        values = run.arrays[name]
        left = np.setdiff1d(np.arange(values.size), done.get(name, np.zeros(0, int)))
        if left.size:
            writes[name] = (left, values[left])
    return writes


def written(steps: list[Step]) -> dict[str, np.ndarray]:
    """Returns by tensor the cells that steps have written."""
    found: dict[str, list[np.ndarray]] = {}
    for step in steps:
        for name, (cells, _) in step.writes.items():
            found.setdefault(name, []).append(cells)
    return {name: np.unique(np.concatenate(cells)) for name, cells in found.items()}


def with_others(run: Executed, steps: Iterator[Step], launch: int = 0, reads: tuple[str, ...] = ()) -> Iterator[Step]:
    """Yields steps, then one in which all other blocks of the launch compute the rest of the outputs."""
    kept = []
    for step in steps:
        kept.append(step)
        yield step
    names = tuple(b.name for b in run.program.outputs if b.name in run.launches[launch].args)
    writes = rest(run, written(kept), names)
    if writes:
        tensor = max(writes, key=lambda name: run.arrays[name].size)
        others = len(units(run.shape)) - 1
        cells = writes[tensor][0]
        yield Step("others", (others,), None, dict.fromkeys(reads, cells), writes, launch)


# -- repetitions -----------------------------------------------------------------------------------------
def folded(steps: Sequence[Step], same: Collection[str]) -> list[Step]:
    """Returns the steps with long runs of one kind of `same` shortened: the first two and the last stay, those between
    become one step."""
    names = list(dict.fromkeys(step.kind for step in steps))
    kinds = [names.index(step.kind) for step in steps]
    found, done = [], 0
    for first, last in repeats(kinds, [n for n, name in enumerate(names) if name in same]):
        found += [*steps[done:first], _joined(steps[first : last + 1])]
        done = last + 1
    return [*found, *steps[done:]]


def _joined(steps: Sequence[Step]) -> Step:
    """Returns steps as one. A cell that several of them write has the last value."""
    reads: dict[str, Cells] = {}
    writes: dict[str, dict[int, float]] = {}
    for step in steps:
        for name, cells in step.reads.items():
            reads[name] = np.append(reads.get(name, np.zeros(0, int)), cells)
        for name, (cells, values) in step.writes.items():
            writes.setdefault(name, {}).update(zip(cells.tolist(), values.tolist(), strict=True))
    kept = {name: (np.array(list(of)), np.array(list(of.values()), np.float32)) for name, of in writes.items()}
    last = steps[-1]
    return Step("repeat", (len(steps),), last.active, reads, kept, last.launch, last.totals, last.kind)
