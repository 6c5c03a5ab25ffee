"""The closures that run an instruction for all active threads, and the functions that build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.engines.emulator.ptx.kernel import Instruction, PtxError
from kernels.engines.emulator.state import Machine

Run = Callable[[], Any]  # at a wait it returns which threads may continue
Build = Callable[[Machine, int, Instruction], Run]  # of the instruction at an index

# Opcodes that only order memory or give hints. They do nothing here, because every write is visible at once.
NOTHING = (
    "membar",
    "fence",
    "pragma",
    "prefetch",
    "prefetchu",
    "discard",
    "applypriority",
    "nanosleep",
    "griddepcontrol",
)


class Unknown(PtxError):
    """An opcode that is not in the table."""
