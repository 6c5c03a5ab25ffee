"""The emulator engine: the same CUDA C++ as on a GPU, compiled to PTX and executed in NumPy.

It returns results, counters and traces, never times. NumPy computes library calls; they are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kernels.engines.emulator import precompiled
from kernels.engines.emulator.counters import Counters, add_up
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.engines.emulator.trace import BlockTrace
from kernels.machine.processor import free_bytes
from kernels.machine.status import Status
from kernels.model import values
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Launch, Program, RuleError, Step, cpu_of, refuse_steps

__all__ = ["MEASURES", "Session", "check", "free_bytes", "open", "order_of_launch", "status", "trace_launch"]

MEASURES = False  # its times say nothing about a GPU
MAX_THREADS = 1 << 22  # of a launch of a rung: all blocks of some rungs run together, with gigabytes of registers


def status() -> Status:
    return Status(
        ready=True, text=f"NumPy {np.__version__}, PTX for {precompiled.compile.PTX_TARGET.replace('compute', 'sm')}"
    )


def check(step: Launch) -> None:
    """Raises RuleError if a launch has more threads than can be emulated."""
    threads = math.prod(step.grid) * math.prod(step.block)
    if threads > MAX_THREADS:
        raise RuleError(
            f"{step.entry} launches {threads:,} threads; the emulator runs at most {MAX_THREADS:,} of a launch: "
            "take a smaller shape"
        )


class Session:
    """A program with its buffers in emulated memory. Output and workspace are unwritten until a kernel writes them."""

    def __init__(self, program: Program, inputs: Mapping[str, np.ndarray], options: Options):
        self.program, self.options = program, options
        arrays = {b.name: np.ascontiguousarray(inputs[b.name]) for b in program.of_role(INPUT)}
        arrays |= {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(WORKSPACE) if b.zeroed}
        empty = {
            b.name: np.full(b.shape, values.poison(b.dtype), b.dtype)
            for b in program.buffers
            if b.role in (OUTPUT, WORKSPACE) and not b.zeroed
        }
        self.memory = device_memory(arrays | empty, list(arrays))
        for view in program.views:
            self.memory.add_view(view)
        self._in_place = {b.name: arrays[b.name] for b in program.in_place}
        self.counters: Counters | None = None
        self.trace: tuple[BlockTrace, ...] | None = None

    def verify_run(self) -> np.ndarray:
        runs: list[Run] = []
        uncounted = []
        for name, array in self._in_place.items():
            self.memory.write(name, array)
        for step in self.program.steps:
            if isinstance(step, Launch):
                runs.append(self.launch(step))
            else:
                self.call(step)
                uncounted.append(step.name)
        if self.options.count:
            self.counters = add_up([r.counted for r in runs], uncounted)
        if self.options.trace_block is not None:
            self.trace = tuple(r.traced for r in runs)
        return self.fetch(self.program.outputs[0].name)

    @property
    def counted(self) -> Counters:
        """Returns the counters of the last run. ValueError if the options do without."""
        if self.counters is None:
            raise ValueError("nothing was counted")
        return self.counters

    @property
    def traced(self) -> tuple[BlockTrace, ...]:
        """Returns the traces of the last run, launch by launch. ValueError if the options have no block to trace."""
        if self.trace is None:
            raise ValueError("no block was traced")
        return self.trace

    def fetch(self, name: str) -> np.ndarray:
        return self.memory.array(name)

    def launch(self, step: Launch) -> Run:
        check(step)
        options = self.options
        if options.trace_block is not None:  # in a launch with fewer blocks, the last is traced
            options = options.tracing(min(options.trace_block, math.prod(step.grid) - 1))
        return launch(
            _ptx(step, watch=bool(options.watch)),
            step.entry,
            step.grid,
            step.block,
            step.args,
            self.memory,
            step.shared,
            options,
        )

    def call(self, step: Step) -> None:
        """Run a library call's NumPy implementation on copies of the buffers, and write its results back."""
        arrays = {a: self.memory.array(a) for a in step.args if isinstance(a, str)}
        cpu_of(step)(*(arrays[a] if isinstance(a, str) else a for a in step.args))
        for b in self.program.buffers:
            if b.name in arrays and (b.role != INPUT or b.in_place):
                self.memory.write(b.name, arrays[b.name])

    def close(self) -> None:
        pass


def _ptx(step: Launch, watch: bool) -> str:
    if not watch:
        return precompiled.ptx(step.source, step.defines)
    from kernels.engines.emulator.watch import build  # needs pyelftools and Pygments

    return build.ptx(step.source, step.defines)


def trace_launch(
    program: Program, n: int, inputs: Mapping[str, np.ndarray], block: int = 0, values: bool = True
) -> tuple[BlockTrace, Counters]:
    """Run a program up to its n-th step, a launch, and trace one block of that launch, without accesses if `values` is
    false."""
    session = Session(program, inputs, Options(count=False, seconds=math.inf))
    for step in program.steps[:n]:
        session.launch(step) if isinstance(step, Launch) else session.call(step)
    session.options = Options(trace_block=block, trace_values=values, seconds=math.inf)
    run = session.launch(program.launch(n))
    return run.traced, run.counted


def order_of_launch(program: Program, until: tuple[str, int] | None = None, order: str = "forward") -> BlockTrace:
    """Returns the trace of block 0 of a program's only step, a launch, with all inputs zero: the order of what it does, if
    this does not depend on values. `until` and `order` as in Options."""
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(INPUT)}
    session = Session(
        program,
        zeros,
        Options(count=True, trace_block=0, trace_values=False, order=order, seconds=math.inf, until=until, zeros=True),
    )
    return session.launch(program.launch()).traced


def open(program: Program, inputs: Mapping[str, np.ndarray], trace: int | None = None) -> Session:
    refuse_steps(program, "emulator")
    return Session(program, inputs, Options(trace_block=trace, seconds=math.inf))  # its kernels end
