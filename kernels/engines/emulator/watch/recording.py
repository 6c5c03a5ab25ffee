"""A program that runs twice: as it is measured, for its counts, and in the build for watching, for what its threads do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernels import sources
from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.watch.trace import Watched
from kernels.engines.emulator.watch.watch import Variable, Watch
from kernels.model.program import INPUT, Launch, LibraryCall, Program, buffer_of

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Recording:
    """A launch. `files`: the texts of its source and headers, by name, the source first. `counters`: of the measured build. `before` and
    `after`: the program's buffers, by name. `written`: bool, which elements have values after the launch. `given`: the buffers that have
    values before the program. `arguments`: which buffer each pointer of the kernel begins in. `blocks`: how many are watched. `fault`:
    what ended the launch, "" if nothing did."""

    launch: Launch
    files: Mapping[str, str]
    watched: Watched
    counters: Counters
    before: Arrays
    after: Arrays
    written: Arrays
    given: frozenset[str]
    arguments: Mapping[str, str]
    blocks: int
    fault: str = ""

    @property
    def block_threads(self) -> int:
        return math.prod(self.launch.block)

    @property
    def threads(self) -> int:
        """Returns the threads of all blocks that are watched."""
        return self.block_threads * self.blocks

    def buffer(self, name: str) -> str:
        """Returns the program's name of a buffer, by that or by the kernel's."""
        return name if name in self.before else self.arguments.get(name, name)

    @property
    def others(self) -> int:
        """Returns how many blocks are not watched."""
        return math.prod(self.launch.grid) - self.blocks


@dataclass(frozen=True)
class Called:
    """A call of a library after `launches` launches, with the program's buffers `before` and `after` it, by name."""

    call: LibraryCall
    launches: int
    before: Arrays
    after: Arrays


@dataclass(frozen=True)
class Recorded:
    """A program's launches. `difference`: the largest of its outputs between the two builds, as a part of the largest number of the
    output; 0 for equal bits."""

    launches: tuple[Recording, ...]
    arrays: Arrays  # after the program, of the measured build
    difference: float
    calls: tuple[Called, ...] = ()


def record(
    program: Program,
    inputs: Arrays,
    blocks: Callable[[Launch], tuple[int, ...]],
    names: Callable[[Launch], frozenset[str] | None],
    order: str = "forward",
) -> Recorded:
    """Run a program. `blocks`: of a launch, those that are watched. `names`: of the variables whose values are kept,
    None for all of the kernel's own function. `order`: as of Options, of the build for watching."""
    measured, watched = (
        emulator.Session(program, inputs, Options(count=count, seconds=math.inf)) for count in (True, False)
    )
    given = frozenset(b.name for b in program.buffers if b.role == INPUT or b.zeroed)
    launches, calls = [], []
    for step in program.steps:
        if not isinstance(step, Launch):
            assert isinstance(step, LibraryCall)  # a loop of the processor is run by the cpu engine only
            before = _arrays(program, watched)
            for session in (measured, watched):
                session.call(step)
            calls.append(Called(step, len(launches), before, _arrays(program, watched)))
            continue
        chosen, wanted = blocks(step), names(step)
        before = _arrays(program, watched)
        counters = measured.launch(step).counted
        watch = Watch(chosen, _is_one_of(wanted))
        watched.options = Options(count=False, seconds=math.inf, order=order, watch=watch)
        trace = watched.launch(step).watched
        assert trace is not None  # the options have a Watch
        names_and_args = zip(trace.parameters, step.args, strict=True)
        arguments = {name: buffer for name, arg in names_and_args if (buffer := buffer_of(arg))}
        after, written = _arrays(program, watched), {b.name: watched.memory.written(b.name) for b in program.buffers}
        files = sources.files(step.source)
        launches.append(Recording(step, files, trace, counters, before, after, written, given, arguments, len(chosen)))
    arrays = _arrays(program, measured)
    difference = max(_difference(arrays[b.name], watched.fetch(b.name)) for b in program.outputs)
    return Recorded(tuple(launches), arrays, difference, tuple(calls))


def _is_one_of(names: frozenset[str] | None) -> Callable[[Variable], bool]:
    if names is None:
        return lambda variable: not variable.calls
    return lambda variable: variable.name in names or (variable.is_parameter and not variable.calls)


def _arrays(program: Program, session: emulator.Session) -> dict[str, np.ndarray]:
    return {b.name: np.array(session.fetch(b.name)) for b in program.buffers}


def _difference(measured: np.ndarray, watched: np.ndarray) -> float:
    if measured.tobytes() == watched.tobytes():
        return 0.0
    a, b = measured.astype(np.float64), watched.astype(np.float64)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    if equal.all():
        return 0.0
    if not (np.isfinite(a) & np.isfinite(b))[~equal].all():
        return np.inf
    return float(np.abs(a - b)[~equal].max() / np.abs(a[np.isfinite(a)]).max())
