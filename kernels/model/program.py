"""Program: what an engine runs, as data, with its buffers and steps, and the errors of requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from kernels.model.tensor_map import TensorMap

INPUT, OUTPUT, WORKSPACE = "input", "output", "workspace"

# An argument of a launch: a Buffer's name, a map of one, or a value with the kernel's own type (a NumPy scalar,
# structured for a struct).
Arg = str | np.generic | TensorMap
Tiles = Mapping[str, int]


class AnyArray(Protocol):
    """What NumPy's and CuPy's arrays have in common and a view needs."""

    def reshape(self, shape: tuple[int, ...], /) -> Self: ...

    def view(self, dtype: str, /) -> Self: ...

    def __getitem__(self, part: slice, /) -> Self: ...


Array = TypeVar("Array", bound=AnyArray)


def buffer_of(arg: Arg) -> str | None:
    """Returns the name of the buffer that an argument points to; None for a value."""
    return arg.buffer if isinstance(arg, TensorMap) else arg if isinstance(arg, str) else None


class RuleError(ValueError):
    """A request that breaks a rule of a rung, an engine or the machine; the message names it."""


class RefusedError(RuleError):
    """A rung that this machine cannot run: it lacks a library, memory or a newer GPU. Others may run."""


class UnsupportedError(RefusedError):
    """A request that a vendor's library reports as unsupported; the message quotes the library."""


@dataclass(frozen=True)
class Buffer:
    name: str
    role: str  # INPUT, OUTPUT or WORKSPACE
    shape: tuple[int, ...]
    dtype: str = "float32"
    positive: bool = False  # an input without values below 0, a variance say
    below: int = 0  # an input of whole numbers in 0 .. below - 1, labels say; 0: no such bound
    mask: bool = False  # of attention: a caller may give it as PyTorch takes it (values.checked)
    in_place: bool = False  # an input that the program overwrites with a result: the weights of an optimiser
    zeroed: bool = False  # a workspace of zeros before the first run; each run leaves it as the next run needs it
    used: int = 0  # elements that a run reads, expected for random inputs: rows of a table say; 0: all

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def used_bytes(self) -> int:
        return (self.used or math.prod(self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class View:
    """Elements `offset` and following of a buffer, in a shape and under a name of their own: one of the weights that
    lie in one buffer. With a `dtype` the buffer's bytes are read as elements of that type."""

    name: str
    of: str
    offset: int
    shape: tuple[int, ...]
    dtype: str = ""  # that of the buffer

    def __post_init__(self):
        if self.offset < 0:
            raise ValueError(f"{self.name} begins before {self.of}")

    def cut(self, array: Array) -> Array:
        """Returns the view of the buffer's array, NumPy's or CuPy's."""
        flat = array.reshape((-1,))
        if self.dtype:
            flat = flat.view(self.dtype)
        return flat[self.offset : self.offset + math.prod(self.shape)].reshape(self.shape)


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `cpu` is the NumPy implementation of this step, called with the kernel's own arguments."""

    source: str  # "topic/file.cu" (kernels.sources.file), or the name of one that kernels.fusion.codegen generates
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    cpu: Callable[..., object]
    defines: tuple[tuple[str, int], ...] = ()
    shared: int = 0  # bytes of dynamic shared memory
    label: str = ""  # a name of its own if a program launches a kernel twice
    cpu_name: str = ""  # of `cpu`, if the kernel's name names hardware that a processor does not have

    @property
    def name(self) -> str:
        return self.label or self.entry

    @property
    def name_on_cpu(self) -> str:
        return self.cpu_name or self.name


@dataclass(frozen=True)
class LibraryCall:
    """One call into a vendor library; `routine` is its name in records. `bind` takes the arguments on the GPU and returns
    the call, which can be repeated on the current stream. `cpu` is the NumPy implementation; without one only the cuda
    engine runs the call."""

    routine: str
    args: tuple[Arg, ...]
    cpu: Callable[..., object] | None
    bind: Callable[..., Callable[[], None]]
    cpu_name: str = ""  # of `cpu`: NumPy is not the vendor's library

    @property
    def name(self) -> str:
        return self.routine

    @property
    def name_on_cpu(self) -> str:
        return self.cpu_name or self.name


@dataclass(frozen=True)
class HostLoop:
    """Loops for the processor, or its library instead: only the cpu engine runs them, in place on the arrays. `prepare`
    compiles what `cpu` calls, before anything is timed or counted."""

    name: str
    source: str  # the file that a page shows, under kernels
    args: tuple[Arg, ...]
    cpu: Callable[..., object]
    prepare: Callable[[], None]

    @property
    def name_on_cpu(self) -> str:
        return self.name


Step = Launch | LibraryCall | HostLoop


@dataclass(frozen=True)
class Program:
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    views: tuple[View, ...] = ()  # of buffers; a step takes one by its name

    def launch(self, n: int = 0) -> Launch:
        """Returns the n-th step, which must be a launch."""
        step = self.steps[n]
        if not isinstance(step, Launch):
            raise TypeError(f"{step.name} is no launch")
        return step

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    def of_role(self, role: str) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.role == role)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Returns the buffers that hold results: the outputs, then the inputs that are overwritten."""
        return self.of_role(OUTPUT) + self.in_place

    @property
    def in_place(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.in_place)

    def nbytes(self, *roles: str) -> int:
        """Returns the bytes of the buffers with these roles (of all if none is given)."""
        return sum(b.nbytes for b in self.buffers if not roles or b.role in roles)


def no_processor(*args: object) -> None:
    """The `cpu` of a launch that only the emulator records. RuleError if it is called."""
    raise RuleError("this kernel has no implementation for the processor")


def cpu_of(step: Step) -> Callable[..., object]:
    """Returns the NumPy implementation of a step. RuleError for a library call without one."""
    if step.cpu is None:
        raise RuleError(f"{step.name} is a library of the GPU")
    return step.cpu


def refuse_steps(program: Program, engine: str) -> None:
    """Check that an engine can run each step of a program. RuleError if a step needs another engine."""
    for step in program.steps:
        if isinstance(step, HostLoop) and engine != "cpu":
            raise RuleError(f"{step.name} is loops for the processor: the cpu engine runs them, not {engine}")
        if isinstance(step, LibraryCall) and not step.cpu and engine != "cuda":
            raise RuleError(f"{step.name} is a library of the GPU: the cuda engine runs it, not {engine}")
