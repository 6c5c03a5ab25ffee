"""The type of a closure that runs an instruction for all active threads."""

from __future__ import annotations

from collections.abc import Callable

from kernels.engines.emulator.ptx.kernel import PtxError

Run = Callable[[], None]


# Opcodes that only order memory or give hints. They do nothing here, because every write is visible at once.
NOTHING = ("membar", "fence", "pragma", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep")


class Unknown(PtxError):
    """An opcode that is not in the table."""
