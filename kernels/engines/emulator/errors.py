"""The error that the emulator raises about a kernel."""

from __future__ import annotations

from kernels.engines.emulator.printer import Printed
from kernels.model.program import RuleError


class EmulatorError(RuleError):
    """What a kernel did wrong, with its CUDA line, thread and block. `printed`: lines its threads printed before."""

    printed: tuple[Printed, ...] = ()
