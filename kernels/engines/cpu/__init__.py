"""The cpu engine: each step's NumPy implementation, measured on this machine."""

from __future__ import annotations

import platform
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from kernels.engines.cpu.by_need import allocate_by_need
from kernels.engines.protocol import ALLOCATED, RESOLUTION, Timed, memory_of
from kernels.machine import others, processor
from kernels.machine.status import Status
from kernels.machine.timing import Budget, interleave, warm_up
from kernels.model import values
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, HostLoop, Program, Step, buffer_of, cpu_of, refuse_steps
from kernels.model.result import Memory, Stage

__all__ = [
    "MEASURES",
    "Session",
    "allocate_by_need",
    "ceilings",
    "conditions",
    "copies",
    "free_bytes",
    "open",
    "product_rate",
    "sample",
    "status",
]

MEASURES = True


def status() -> Status:
    return Status(ready=True, text=processor.device_name())


def free_bytes() -> int:
    """Returns the bytes of memory that a run may take."""
    return processor.free_bytes()


def conditions() -> dict:
    return {"numpy": np.__version__, "python": platform.python_version(), "system": platform.platform()}


@cache
def ceilings() -> dict:
    """Returns this processor's ceilings as a row (machine.ceilings.Ceilings). They are measured once in a process."""
    from kernels.engines.cpu import probes as cpu_probes

    return cpu_probes.ceilings().to_row()


@cache
def product_rate() -> float:
    """Returns the FLOP/s of an FP32 matrix product of NumPy's BLAS on this processor. It is measured once in a process."""
    from kernels.engines.cpu import probes as cpu_probes

    return cpu_probes.product()[0]


def copies(session: Session) -> None:
    """Return None: the processor reads the inputs where they are, so nothing is copied."""


class Session:
    """Buffers as NumPy arrays.

    Memory is what NumPy allocates while tracemalloc traces the first run: the buffers, and what the steps allocate
    beyond them (a padded copy, for example), which counts as workspace. Python's own small objects are traced too, so
    an excess below RESOLUTION bytes does not count.
    """

    counters = trace = None  # this engine counts and traces nothing

    def __init__(self, program: Program, inputs: Mapping[str, np.ndarray]):
        self.program = program
        self._inputs = inputs
        self.arrays = {b.name: np.ascontiguousarray(inputs[b.name]) for b in program.of_role(INPUT)}
        self._timeline: list[Stage] = []
        self.first_run_s = 0.0
        for step in program.steps:
            if isinstance(step, HostLoop):
                step.prepare()

    def verify_run(self) -> np.ndarray:
        self._timeline = []
        for b in (*self.program.of_role(OUTPUT), *self.program.of_role(WORKSPACE)):
            self.arrays.pop(b.name, None)
        for b in self.program.in_place:
            self.arrays[b.name] = np.array(self._inputs[b.name])
        tracemalloc.start()
        try:
            self._stage(ALLOCATED[INPUT])
            for role in (OUTPUT, WORKSPACE):
                if buffers := self.program.of_role(role):
                    self.arrays |= {b.name: np.full(b.shape, values.poison(b.dtype), b.dtype) for b in buffers}
                    self._stage(ALLOCATED[role])
            self.arrays |= {view.name: view.cut(self.arrays[view.of]) for view in self.program.views}
            start = time.perf_counter()
            for step in self.program.steps:
                tracemalloc.reset_peak()
                self.run_step(step)
                self._stage(step.name_on_cpu)
            self.first_run_s = time.perf_counter() - start
        finally:
            tracemalloc.stop()
        return self.fetch(self.program.outputs[0].name)

    def fetch(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def put(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays |= {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        self.arrays |= {v.name: v.cut(self.arrays[v.of]) for v in self.program.views if v.of in arrays}

    def execute(self, program: Program) -> None:
        self.program = program
        self.run()

    replay = execute  # a processor has no graph to capture

    def _stage(self, at: str) -> None:
        """Append the most bytes by role since the previous stage."""
        allocated = {
            role: sum(self.arrays[b.name].nbytes for b in self.program.of_role(role) if b.name in self.arrays)
            for role in ALLOCATED
        }
        excess = tracemalloc.get_traced_memory()[1] - allocated[OUTPUT] - allocated[WORKSPACE]
        allocated[WORKSPACE] += excess if excess >= RESOLUTION else 0
        self._timeline.append(Stage(at=at, **allocated))

    @property
    def memory(self) -> Memory:
        peaks = {role: max((stage[role] for stage in self._timeline), default=0) for role in ALLOCATED}
        return memory_of(peaks, self._timeline)

    def run_step(self, step: Step) -> None:
        cpu_of(step)(*(self.arrays[name] if (name := buffer_of(a)) else a for a in step.args))

    def run(self) -> None:
        for step in self.program.steps:
            self.run_step(step)

    def close(self) -> None:
        self.arrays.clear()


def open(program: Program, inputs: Mapping[str, np.ndarray], trace: None = None) -> Session:
    refuse_steps(program, "cpu")
    return Session(program, inputs)


def sample(
    sessions: Sequence[Session], mode: str, budget: Budget, progress: Callable[[float], None] = lambda share: None
) -> list[Timed]:
    """Time every session, interleaved. Cold: the last-level cache is overwritten before each run."""
    flush = flusher() if mode == "cold" else lambda: None

    def timed(work: Callable[[], object], waits: others.Waits) -> float:
        flush()
        return waits.timed_s(work) * 1e3

    cores, waits = others.Cores(), [others.Waits() for _ in sessions]
    for session in sessions:
        warm_up(session.run, budget.warm_up_s - session.first_run_s)
    samplers = [lambda s=s, w=w: timed(s.run, w) for s, w in zip(sessions, waits, strict=True)]
    all_samples = interleave(samplers, budget, progress)
    used = cores.readings()
    return [
        Timed(
            samples, _parts(session, lambda work: timed(work, others.Waits()), budget), others={**w.readings(), **used}
        )
        for session, samples, w in zip(sessions, all_samples, waits, strict=True)
    ]


def _parts(session: Session, timed, budget: Budget) -> tuple[tuple[str, float], ...]:
    """Returns the median in ms of each step, in separate rounds; nothing for a program of one step."""
    steps = session.program.steps
    if len(steps) < 2:
        return ()
    short = Budget(samples=15, seconds=budget.seconds / 4, min_samples=2)
    samples = interleave([lambda step=step: timed(lambda: session.run_step(step)) for step in steps], short)
    return tuple((step.name_on_cpu, float(np.median(s))) for step, s in zip(steps, samples, strict=True))


def flusher() -> Callable[[], object]:
    trash = np.zeros(2 * processor.last_level_cache() // 8)
    return lambda: np.add(trash, 1.0, out=trash)
