"""What a thread, a warp or a block knows of the order of accesses: whose come before its own, up to which time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.engines.emulator.threads import LANES


@dataclass
class Known:
    """Accesses that come before those of who knows this: of each block of the grid up to a time, and of single warps and threads, by
    number in the grid, up to a later one. In a large grid `blocks` has one element and nothing is kept of blocks."""

    blocks: np.ndarray
    warps: dict[int, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)

    def add(self, other: Known) -> None:
        np.maximum(self.blocks, other.blocks, out=self.blocks)
        self.add_warps(other.warps)
        self.add_threads(other.threads)

    def add_block(self, block: int, time: int) -> None:
        if self.blocks.size > 1 or block == 0:
            self.blocks[block] = max(self.blocks[block], time)

    def add_warps(self, times: Mapping[int, int]) -> None:
        _raise(self.warps, times)

    def add_threads(self, times: Mapping[int, int]) -> None:
        _raise(self.threads, times)

    def until(self, who: np.ndarray, padded: int) -> np.ndarray:
        """Returns up to which time the accesses of threads come before, by number in the grid. `padded`: of threads in a block."""
        single = [max(self.threads.get(n, 0), self.warps.get(n // LANES, 0)) for n in who.tolist()]
        return np.maximum(self.blocks[np.minimum(who // padded, self.blocks.size - 1)], single)


def _raise(mine: dict[int, int], theirs: Mapping[int, int]) -> None:
    for number, time in theirs.items():
        if time > mine.get(number, 0):
            mine[number] = time
