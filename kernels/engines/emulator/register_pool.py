"""The registers of a block's warps, which setmaxnreg moves from one warpgroup to another."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

REGISTERS = 65_536  # of a multiprocessor
MAX_OF_THREAD = 256
WARPS = 4  # of a warpgroup


class RegisterPool:
    """The registers per thread of each warp. At the launch, all threads of a block have equally many."""

    def __init__(self, m: Machine):
        self.m = m
        threads = -(-int(np.prod(m.block)) // LANES) * LANES
        start = min(REGISTERS // threads, MAX_OF_THREAD) // 8 * 8
        self.start, self.count = start, np.full(m.slots // LANES, start)
        self._raised: dict[int, int] = {}  # by block: the last instruction that took registers

    def set(self, pc: int, count: int, more: bool) -> None:
        """Give the active warps `count` registers per thread, `more` of them or fewer."""
        m = self.m
        rows = np.arange(m.slots // LANES)
        if m.active_mask is not None:
            rows = rows[m.active_mask.reshape(-1, LANES).any(axis=1)]
        bad = rows[self.count[rows] > count if more else self.count[rows] < count]
        if bad.size:
            had, verb = int(self.count[bad[0]]), "takes" if more else "gives back"
            m.fail(pc, f"setmaxnreg {verb} registers: {count} after {had}", int(bad[0]) * LANES)
        self.count[rows] = count
        if more:
            self._raised.update((int(b), pc) for b in m.block_of[rows * LANES])

    def check(self) -> None:
        """Raise EmulatorError at the launch's end if a block requested more registers than it has, or if the warps of a
        warpgroup did not agree."""
        m, rows = self.m, self.m.threads.warp_rows()
        for block, pc in self._raised.items():
            counts = self.count[rows[block]]
            slot = int(rows[block][counts.argmax()]) * LANES
            had = self.start * len(counts) * LANES
            if (total := int(counts.sum()) * LANES) > had:
                m.fail(pc, f"deadlock: setmaxnreg waits for registers: {total:,} of the block's {had:,}", slot)
            for first in range(0, len(counts), WARPS):
                if len(set(counts[first : first + WARPS].tolist())) > 1:
                    m.fail(pc, "not all warps of a warpgroup execute the same setmaxnreg", slot)
