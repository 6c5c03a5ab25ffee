"""Times a work on the GPU as the plainest program does it: copy in, launch, wait, copy back. Each part is waited for, so the
parts of a run add up to its total. The host's clock times them.

A round is a run without copies, one with pinned and one with pageable memory, in this order, each on host arrays of its own.
The GPU's caches are overwritten before each run, the processor's once before the round. So the first call reads its code
from kernels.model.row import Json
from memory, as the processor's work does; the later runs find it in the caches. kernels.offload.figures says how that counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.engines.cuda.device import free_bytes, refused_when_full
from kernels.engines.cuda.timing import MIN_FLUSH
from kernels.machine.timing import Budget, interleave
from kernels.model.program import INPUT, RuleError
from kernels.model.row import Json
from kernels.offload.works import COPIES, NONE, PINNED, Case
from kernels.transfers.cuda import CudaBackend

PARTS = ("in", "call", "kernel", "out")  # of a run, in their order
Run = tuple[float, float, float, float]  # the ms of each part


def samples(case: Case, flush: Callable[[], object], budget: Budget) -> dict[str, tuple[Run, ...]]:
    """Returns the runs of a case, by which copies they have; they take turns. `flush` overwrites the processor's caches before
    each round. RuntimeError if a result is wrong, RuleError if the arrays do not fit."""
    needed = case.point.shape.bytes + MIN_FLUSH
    if needed > free_bytes():
        raise RuleError(f"{needed:,} bytes are needed, {free_bytes():,} bytes are free on the GPU")
    with refused_when_full():
        program = _Program(case)
        try:
            for copies in COPIES:
                program.check(copies)
            runs: Mapping[str, list[Run]] = {copies: [] for copies in COPIES}
            samplers = [program.sampler(copies, runs[copies]) for copies in COPIES]
            interleave([lambda: _then(flush, samplers[0]), *samplers[1:]], budget)
        finally:
            program.backend.close()
    return {copies: tuple(found) for copies, found in runs.items()}


def _then(flush: Callable[[], object], sampler: Callable[[], float]) -> float:
    flush()
    return sampler()


@dataclass
class _Host:
    """The arrays of the host, in memory of one kind."""

    inputs: Json
    out: Any


class _Program:
    """The arrays of a work on both sides, and its launches."""

    def __init__(self, case: Case):
        self.case, self.backend = case, CudaBackend()
        self.program = case.work.gpu_program(case.point.shape)
        self.stream = self.backend.stream("offload")
        self.device = {b.name: self.backend.allocate(b.shape, "pool") for b in self.program.buffers}
        self.hosts = {copies: self._host(copies == PINNED) for copies in COPIES if copies != NONE}
        self.launches = [(step, tuple(self._argument(a) for a in step.args)) for step in self.program.launches]
        self._copy_in(PINNED)
        self.trash = self.backend.allocate((MIN_FLUSH // 4,), "pool")

    @property
    def out(self) -> str:
        return self.program.outputs[0].name

    def _argument(self, a: Any) -> Any:
        if isinstance(a, str):
            return self.device[a]
        return np.asarray(a) if a.dtype.names else a  # CuPy takes a struct as an array

    def _host(self, pinned: bool) -> _Host:
        arrays = {b.name: self.backend.pinned(b.shape, pinned) for b in self.program.of_role(INPUT)}
        for name, array in arrays.items():
            array.array[...] = self.case.inputs[name]
        return _Host(arrays, self.backend.pinned(self.program.outputs[0].shape, pinned))

    def check(self, copies: str) -> None:
        """Runs it once on arrays full of NaN, and compares: all, or the result alone if nothing is copied. The next runs find
        everything compiled."""
        host = self.hosts[PINNED if copies == NONE else copies]
        result = self.device[self.out]
        for array in [result] if copies == NONE else self.device.values():
            array.data.memset(0xFF, array.nbytes)
        host.out.array[...] = np.nan
        self.run(copies)
        if copies == NONE:
            self.backend.copy_out(result, host.out, self.stream)
            self.wait()
        else:
            self.run(copies)  # the clocks of an idle GPU rise
        self.case.verify(host.out.array, "GPU")

    def sampler(self, copies: str, runs: list[Run]) -> Callable[[], float]:
        """Returns a function that adds a run to `runs` at each call, and returns its ms."""

        def once() -> float:
            runs.append(self.run(copies))
            return sum(runs[-1])

        return once

    def _copy_in(self, copies: str) -> None:
        for name, array in self.hosts[copies].inputs.items():
            self.backend.copy_in(self.device[name], array, self.stream)
        self.wait()

    def wait(self) -> None:
        self.backend.synchronize([self.stream])

    def run(self, copies: str) -> Run:
        """Returns the ms of each part of one run."""
        host, device = self.hosts.get(copies), self.device
        self.backend.zero(self.trash)
        self.backend.restart()  # waits for the GPU
        marks = [time.perf_counter()]
        if host:
            self._copy_in(copies)
        marks.append(time.perf_counter())
        for step, args in self.launches:
            self.backend.launch(step, args, self.stream)
        marks.append(time.perf_counter())
        self.wait()
        marks.append(time.perf_counter())
        if host:
            self.backend.copy_out(device[self.out], host.out, self.stream)
            self.wait()
        marks.append(time.perf_counter())
        first, *rest = (1e3 * float(ms) for ms in np.diff(marks))
        return (first if host else 0.0, rest[0], rest[1], rest[2] if host else 0.0)
