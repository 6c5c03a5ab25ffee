"""Engines: what runs a Program. Each is a module with the names in `Engine`, imported when first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kernels.engines.timing import Budget
from kernels.program import INPUT, OUTPUT, WORKSPACE, Program, RuleError, Rung, Tiles

NAMES = ("cuda", "cpu", "emulator")
ALLOCATED = {
    INPUT: "inputs",
    OUTPUT: "output",
    WORKSPACE: "workspace",
}  # stages before the first step, by role
COPIED = ("h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned")  # ways between host and device


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
class Status:
    """Whether an engine can run here. `text`: the device's name or the reason it cannot; `advice`: what to do then, ""
    where there is nothing; `which`: "GPU 0 of 2" where a machine has several."""

    ready: bool
    text: str
    advice: str = ""
    which: str = ""

    @property
    def why(self) -> str:
        """Returns reason and advice, a sentence each, the last without its full stop."""
        return ". ".join(filter(None, (self.text, self.advice)))


AHEAD = "ahead"


@dataclass(frozen=True)
class Timed:
    """Samples of one session in ms, in the order taken, and the median of each of its steps. `queued`: how many of the
    samples were queued whole before the GPU came to them, AHEAD where all were, "" where that was not asked."""

    samples_ms: tuple[float, ...]
    parts_ms: tuple[tuple[str, float], ...]
    queued: str = ""


def total_bytes(stage: dict) -> int:
    """All bytes of one stage of a timeline."""
    return sum(stage[role] for role in ALLOCATED)


def load(name: str) -> Engine:
    if name not in NAMES:
        raise RuleError(f"no engine {name!r}; there are: {', '.join(NAMES)}")
    return importlib.import_module(f"kernels.engines.{name}")


def available() -> dict[str, Status]:
    """Every engine by name and whether it runs on this machine."""
    return {name: load(name).status() for name in NAMES}


def refusal(name: str, rung: Rung, shape: Any, tiles: Tiles) -> str:
    """Returns why this machine cannot run a rung at a shape and all its tile sizes on an engine; "" if nothing is known
    against it. Only the cuda engine has devices and libraries that differ from machine to machine."""
    return load(name).refusal(rung, shape, tiles) if name == "cuda" else ""


def default() -> str:
    """The engine used where none is named: the GPU where there is one."""
    return "cuda" if load("cuda").status().ready else "cpu"
