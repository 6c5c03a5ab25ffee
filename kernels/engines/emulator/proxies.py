"""Two ways to shared memory: the threads' loads and stores, and the asynchronous proxy of bulk copies and wgmma.

What a thread stores is visible to the asynchronous proxy only after the thread's fence.proxy.async. The emulator
remembers, for each 16 bytes, the thread that stored there and has executed no fence since.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.state import Machine

UNIT = np.uint64(4)  # log2 of the bytes that are tracked together


class Proxies:
    """The stores to shared memory that the asynchronous proxy may not see yet."""

    def __init__(self, m: Machine):
        self.m = m
        self._writer = np.full(m.shared.bytes.size >> int(UNIT), -1)

    def wrote(self, offsets: np.ndarray) -> None:
        """Note stores of the active threads at byte offsets of shared memory, one a thread."""
        m = self.m
        slots = m.active_slots()
        self._writer[offsets >> UNIT] = slots

    def fence(self) -> None:
        """Make the stores of the active threads visible."""
        active = self.m.active_mask
        if active is None:
            self._writer[:] = -1
            return
        pending = np.flatnonzero(self._writer >= 0)
        self._writer[pending[active[self._writer[pending]]]] = -1

    def check(self, pc: int, offsets: np.ndarray, slot: int, verb: str = "reads") -> None:
        """Raise EmulatorError if the asynchronous proxy accesses bytes that a thread stored without a fence."""
        writers = self._writer[offsets.reshape(-1) >> UNIT]
        bad = np.flatnonzero(writers >= 0)
        if bad.size:
            m, at = self.m, bad[0]
            where = m.shared.describe(int(offsets.reshape(-1)[at]))
            writer = m.threads.thread(int(writers[at]))
            m.fail(
                pc,
                f"this instruction {verb} shared memory {where} that thread {writer} stored with no fence.proxy.async "
                f"after the store (warp {int(m.thread_of[slot]) // 32})",
                slot,
            )

    def overwritten(self, offsets: np.ndarray) -> None:
        """Note that a bulk copy wrote bytes."""
        self._writer[offsets.reshape(-1) >> UNIT] = -1
