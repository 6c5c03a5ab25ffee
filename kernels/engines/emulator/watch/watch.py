"""What is recorded of a launch that is watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.engines.emulator.ptx.kernel import Line
from kernels.engines.emulator.watch.types import Type


@dataclass(frozen=True)
class Variable:
    """A C++ variable of the kernel, or of one copy of a function in it. `calls`: the lines of the calls around it, the outermost first; () in
    the kernel itself. It is visible in instructions start .. stop-1."""

    name: str
    function: str
    type: Type
    line: int
    calls: tuple[Line | None, ...]
    start: int
    stop: int
    is_parameter: bool

    def is_visible(self, pc: int) -> bool:
        return self.start <= pc < self.stop


def in_the_kernel(variable: Variable) -> bool:
    """Returns whether a variable is one of the kernel itself."""
    return not variable.calls


@dataclass(frozen=True)
class Watch:
    """The blocks, whose threads are numbered one block after the other, and which variables."""

    blocks: tuple[int, ...] = (0,)
    is_watched: Callable[[Variable], bool] = in_the_kernel
