"""What an engine is: its session, its times, its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kernels.machine.status import Status
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Program

ALLOCATED = {
    INPUT: "inputs",
    OUTPUT: "output",
    WORKSPACE: "workspace",
}  # stages before the first step, by role


COPIED = ("h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned")  # ways between host and device


AHEAD = "ahead"


class Session(Protocol):
    """One program with its buffers allocated, compiled, ready to run again and again."""

    program: Program
    bytes: dict[str, int]  # as allocated: input, output, workspace, peak
    timeline: list[dict]  # of a measuring engine: each stage's name ("at") and its most bytes by role
    counters: object | None  # what the emulator counted
    trace: object | None  # what it traced

    def verify_run(self) -> np.ndarray:
        """Run once with output and workspace poisoned with NaN; the output as a NumPy array."""

    def close(self) -> None: ...


class Engine(Protocol):
    """What an engine module offers. One that does not measure has none of what follows open()."""

    MEASURES: bool

    def status(self) -> Status: ...

    def free_bytes(self) -> int: ...

    def open(self, program: Program, inputs: dict[str, np.ndarray], trace: int | None) -> Session: ...

    def sample(
        self,
        sessions: Sequence[Session],
        mode: str,
        budget: Budget,
        progress: Callable[[float], None],
    ) -> list[Timed]: ...

    def conditions(self) -> dict: ...

    def ceilings(self) -> dict: ...

    def copies(self, session: Session) -> dict | None: ...


@dataclass(frozen=True)
class Timed:
    """Samples of one session in ms, in the order taken, and the median of each of its steps. `queued`: how many of the
    samples were queued whole before the GPU came to them, AHEAD where all were, "" where that was not asked."""

    samples_ms: tuple[float, ...]
    parts_ms: tuple[tuple[str, float], ...]
    queued: str = ""


def total_bytes(stage: dict) -> int:
    """Return all bytes of one stage of a timeline."""
    return sum(stage[role] for role in ALLOCATED)
