"""What an engine is: its session, its times, its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kernels.machine.others import Readings
from kernels.machine.status import Status
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Program
from kernels.model.result import Memory, Stage

if TYPE_CHECKING:
    from kernels.engines.emulator.counters import Counters
    from kernels.engines.emulator.trace import BlockTrace

ALLOCATED = {INPUT: "inputs", OUTPUT: "output", WORKSPACE: "workspace"}  # the stages before the first step, by role
COPIED = ("h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned")  # between host and device
AHEAD = "ahead"
RESOLUTION = 16 * 2**10  # bytes: what is traced beyond the buffers counts from here on


class Session(Protocol):
    """One program with its buffers allocated, compiled, ready to run again and again."""

    program: Program
    memory: Memory  # of a measuring engine
    counters: Counters | None  # what the emulator counted
    trace: Sequence[BlockTrace] | None  # what it traced, launch by launch

    # Runs once with outputs and workspace poisoned with NaN. Returns the first output as a NumPy array.
    def verify_run(self) -> np.ndarray: ...

    # Returns the content of a buffer after the last run.
    def fetch(self, name: str) -> np.ndarray: ...

    def put(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replaces the content of inputs. Of an engine that measures."""

    def execute(self, program: Program) -> None:
        """Runs a program on the buffers once and waits for its end: the session's own, or one that differs from it in
        the arguments of its steps only. Of an engine that measures."""

    def replay(self, program: Program) -> None:
        """As `execute`, with as few submissions to the device as it needs."""

    def close(self) -> None: ...


class Engine(Protocol):
    """What an engine module offers. One that does not measure offers nothing after open()."""

    MEASURES: bool

    def status(self) -> Status: ...

    def free_bytes(self) -> int: ...

    def open(self, program: Program, inputs: Mapping[str, np.ndarray], trace: int | None = None) -> Session: ...

    def sample(
        self, sessions: Sequence[Session], mode: str, budget: Budget, progress: Callable[[float], None]
    ) -> list[Timed]: ...

    # Runs a program once. Each workspace buffer exists from its first to its last step, as `lives` says.
    def allocate_by_need(
        self, program: Program, inputs: Mapping[str, np.ndarray], lives: Mapping[str, tuple[int, int]]
    ) -> list[Allocated]: ...

    def conditions(self) -> dict: ...

    def ceilings(self) -> dict: ...

    def copies(self, session: Session) -> dict | None: ...


@dataclass(frozen=True)
class Timed:
    """Samples of one session in ms, in the order taken, and the median of each of its steps. `queued`: how many samples
    were queued whole before the GPU reached them, AHEAD if all were, "" if the engine has no queue. `others`: what other
    programs used meanwhile (kernels.machine.others), empty if the system does not say."""

    samples_ms: tuple[float, ...]
    parts_ms: tuple[tuple[str, float], ...]
    queued: str = ""
    others: Readings = field(default_factory=dict)


@dataclass(frozen=True)
class Allocated:
    """The bytes that were allocated while one step ran: those of each buffer, and what the step allocated beyond them."""

    buffers: Mapping[str, int]
    other: int


def total_bytes(stage: Stage) -> int:
    """Returns all bytes of one stage of a timeline."""
    return sum(stage[role] for role in ALLOCATED)


def memory_of(peaks: Mapping[str, int], timeline: Sequence[Stage]) -> Memory:
    """Returns the memory of a program from the maximum of each role and the stages."""
    return Memory(**peaks, peak=max(map(total_bytes, timeline), default=0), timeline=tuple(timeline))
