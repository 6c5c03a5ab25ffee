"""A program executed whole in the emulator, with the trace of every block of every launch: for scenes of small shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import decimal, tr
from kernels.ladders import find, ladder_of
from kernels.model import values
from kernels.model.program import INPUT, Launch, Program, RuleError
from kernels.model.shape import Shape
from kernels.runner import inputs_of

MAX_BLOCKS = 64  # of one launch
LANES = 32
SPREAD = 2  # standard deviation of the numbers of a scene


@dataclass(frozen=True)
class Accesses:
    """Accesses of one warp to one buffer, in order: elements, lanes and values, each [n]."""

    element: np.ndarray
    lane: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.element)


@dataclass(frozen=True)
class TracedLaunch:
    """One launch and the traces of its blocks, in their order."""

    launch: Launch
    traces: tuple[BlockTrace, ...]

    @property
    def file(self) -> str:
        return self.launch.source.rpartition("/")[2]

    @property
    def warps(self) -> int:
        """Returns the warps of a block."""
        return -(-int(np.prod(self.launch.block)) // LANES)

    def accesses(self, block: int, buffer: str, write: bool, warp: int | None = None) -> Accesses:
        """Returns the accesses of a block, or of one of its warps, to a buffer. `lane` is the thread of the block if no
        warp is given."""
        trace = self.traces[block]
        if buffer not in trace.buffers:
            return Accesses(np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.float32))
        at = (trace.write == write) & (trace.buffer == trace.buffers.index(buffer))
        if warp is not None:
            at &= trace.thread // LANES == warp
        lanes = trace.thread[at].astype(int) % LANES if warp is not None else trace.thread[at].astype(int)
        return Accesses(trace.element[at].astype(int), lanes, trace.value[at])


@dataclass(frozen=True)
class TracedProgram:
    """A program whose steps are all launches: its inputs, every buffer after the run, the traces, the counts."""

    program: Program
    inputs: Mapping[str, np.ndarray]
    arrays: Mapping[str, np.ndarray]
    launches: tuple[TracedLaunch, ...]
    counters: Counters

    @cached_property
    def flat(self) -> dict[str, np.ndarray]:
        """Returns every buffer after the run, float64, in the order of memory."""
        return {name: array.ravel().astype(np.float64) for name, array in self.arrays.items()}

    @cached_property
    def before(self) -> dict[str, np.ndarray]:
        """Returns every input before the run, float64, in the order of memory."""
        return {name: array.ravel().astype(np.float64) for name, array in self.inputs.items()}


Given = Callable[[Any, dict[str, np.ndarray]], dict[str, np.ndarray]]  # inputs of a shape from seeded ones


@lru_cache(maxsize=32)
def traced(
    rung: str,
    shape: Shape,
    tiles: tuple[tuple[str, int], ...] = (),
    seed: int = 0,
    decimals: int = 0,
    given: Given | None = None,
) -> TracedProgram:
    """Returns a rung's program at a small shape, executed in the emulator with every block traced.

    Inputs are random numbers with so many decimals: sums of whole numbers are exact in any order. `given(shape, inputs)`
    returns others in their place. Raises RuleError if a launch has too many blocks.
    """
    found, ladder = find(rung), ladder_of(rung)
    program = found.build(shape, found.check(shape, dict(tiles)))
    blocks = [int(np.prod(step.grid)) for step in program.launches]
    if max(blocks) > MAX_BLOCKS:
        raise RuleError(
            tr(
                "at most {most} blocks are traced, {kernel} launches {count} at {shape}",
                most=MAX_BLOCKS,
                kernel=rung,
                count=decimal(f"{max(blocks):,}"),
                shape=shape,
            )
        )
    inputs = rounded_inputs(ladder, shape, program, seed, decimals)
    inputs = given(shape, inputs) if given else inputs
    sessions = [emulator.Session(program, inputs, Options(trace_block=block)) for block in range(max(blocks))]
    for session in sessions:
        session.verify_run()
    launches = tuple(
        TracedLaunch(step, tuple(session.traced[n] for session in sessions[:count]))
        for n, (step, count) in enumerate(zip(program.launches, blocks, strict=True))
    )
    arrays = {b.name: np.array(sessions[-1].fetch(b.name)) for b in program.buffers}
    return TracedProgram(program, inputs, arrays, launches, sessions[-1].counted)


def rounded_inputs(ladder, shape, program: Program, seed: int, decimals: int) -> dict[str, np.ndarray]:
    """Returns seeded inputs with so many decimals, and those that a ladder derives from them."""
    inputs = inputs_of(ladder, shape, program, seed)
    for b in program.of_role(INPUT):
        if not values.is_whole(b.dtype):
            inputs[b.name] = np.round(SPREAD * inputs[b.name], decimals) + np.float32(0)  # no -0
    return inputs | dict(ladder.derive(shape, inputs) if ladder.derive else {})
