"""The error that the emulator raises about a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.engines.emulator.printer import Printed
from kernels.model.program import RuleError

if TYPE_CHECKING:
    from kernels.engines.emulator.watch.trace import Watched


class EmulatorError(RuleError):
    """An error in a kernel, with its CUDA line, thread and block. `printed`: lines that its threads printed before. `before`: what
    went wrong before and may be the cause. `watched`: what the blocks of a Watch have done before."""

    printed: tuple[Printed, ...] = ()
    before: tuple[str, ...] = ()
    watched: Watched | None = None


class BadCall(EmulatorError):
    """A call through a pointer that holds the address of no function of the call's type."""


class RemovedCode(EmulatorError):
    """A thread reached code that the compiler removed, because CUDA does not define what it does."""


class UnwrittenRead(EmulatorError):
    """A thread reads memory that nobody has written."""
