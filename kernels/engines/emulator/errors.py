"""The error that the emulator raises about a kernel."""

from __future__ import annotations

from kernels.engines.emulator.printer import Printed
from kernels.model.program import RuleError


class EmulatorError(RuleError):
    """An error in a kernel, with its CUDA line, thread and block. `printed`: lines that its threads printed before."""

    printed: tuple[Printed, ...] = ()
