"""What an instruction becomes: a closure that runs it for all active threads."""

from __future__ import annotations

from collections.abc import Callable

from kernels.engines.emulator.ptx.parse import PtxError

Run = Callable[[], None]


# Opcodes that only order memory or hint at something: nothing to do where every write is seen at once.
NOTHING = ("membar", "fence", "pragma", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep")


class Unknown(PtxError):
    """An opcode the table does not know."""
