"""Program: what an engine runs, as data. Rung, Ladder: what a reader chooses from. Result: what came out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

INPUT, OUTPUT, WORKSPACE = "input", "output", "workspace"

# An argument of a launch: a Buffer's name, or a value with the kernel's own type (a NumPy scalar,
# a structured NumPy scalar for a struct).
Arg = str | np.generic
Tiles = Mapping[str, int]


class RuleError(ValueError):
    """A request that breaks a rule of a rung, an engine or the machine; the message names it."""


class RefusedError(RuleError):
    """A rung that this machine cannot run, for want of a library, of memory or of a newer GPU; others may run."""


class UnsupportedError(RefusedError):
    """A request that a vendor's library, asked, does not support; the message says so in its words."""


@dataclass(frozen=True)
class Buffer:
    name: str
    role: str  # INPUT, OUTPUT or WORKSPACE
    shape: tuple[int, ...]
    dtype: str = "float32"
    positive: bool = False  # an input that holds nothing below 0, a variance say

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `twin` is the same step in NumPy, called with the kernel's own arguments."""

    source: str  # file under kernels/cuda, or the name of one that kernels.fusion.codegen writes
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    twin: Callable[..., None]
    defines: tuple[tuple[str, int], ...] = ()
    shared: int = 0  # bytes of dynamic shared memory
    label: str = ""  # where a program launches a kernel twice: what tells them apart

    @property
    def name(self) -> str:
        return self.label or self.entry


@dataclass(frozen=True)
class LibraryCall:
    """One call into a vendor library; `routine` is its name in records. `bind` takes the arguments on the GPU and returns
    the call, ready to be made many times on the current stream. Without a `twin` only the cuda engine runs it: nothing
    here repeats what the library does inside."""

    routine: str
    args: tuple[Arg, ...]
    twin: Callable[..., None] | None
    bind: Callable[..., Callable[[], None]]

    @property
    def name(self) -> str:
        return self.routine


@dataclass(frozen=True)
class HostLoop:
    """Loops written for the processor (or its library in their place): only the cpu engine runs them, on the
    arrays themselves. `prepare` compiles what `twin` will call, before anything is timed or counted."""

    name: str
    source: str  # the file a reader is shown, under kernels
    args: tuple[Arg, ...]
    twin: Callable[..., None]
    prepare: Callable[[], None]


Step = Launch | LibraryCall | HostLoop


@dataclass(frozen=True)
class Program:
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    def of_role(self, role: str) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.role == role)

    def nbytes(self, *roles: str) -> int:
        """Bytes of the buffers of these roles (of all where none is named)."""
        return sum(b.nbytes for b in self.buffers if not roles or b.role in roles)


def refuse_steps(program: Program, engine: str) -> None:
    """RuleError where a step is another engine's alone."""
    for step in program.steps:
        if isinstance(step, HostLoop) and engine != "cpu":
            raise RuleError(f"{step.name} is loops for the processor: the cpu engine runs them, not {engine}")
        if isinstance(step, LibraryCall) and not step.twin and engine != "cuda":
            raise RuleError(f"{step.name} is a library of the GPU: the cuda engine runs it, not {engine}")
