"""A program executed whole in the emulator, with the trace of the first block of every launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.engines import emulator
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.trace import BlockTrace
from kernels.ladders import find, ladder_of
from kernels.model.program import Program
from kernels.model.shape import Shape
from visuals.scene.inputs import rounded_inputs


@dataclass(frozen=True)
class TracedProgram:
    """A program: its inputs, every buffer after the run, a trace of each launch, the counts."""

    program: Program
    inputs: Mapping[str, np.ndarray]
    arrays: Mapping[str, np.ndarray]
    traces: tuple[BlockTrace, ...]
    counters: Counters


@lru_cache(maxsize=32)
def traced(
    rung: str, shape: Shape, tiles: tuple[tuple[str, int], ...] = (), seed: int = 0, decimals: int = 0
) -> TracedProgram:
    """Returns a rung's program at a small shape, executed at the inputs of a scene with so many decimals."""
    found = find(rung)
    program = found.build(shape, found.check(shape, dict(tiles)))
    inputs = rounded_inputs(ladder_of(rung), shape, program, seed, decimals)
    session = emulator.Session(program, inputs, Options(trace_block=0))
    session.verify_run()
    arrays = {b.name: np.array(session.fetch(b.name)) for b in program.buffers}
    return TracedProgram(program, inputs, arrays, tuple(session.traced), session.counted)
