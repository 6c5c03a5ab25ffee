"""What a thread, a warp or a block knows of the order of accesses: whose come before its own, up to which time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.engines.emulator.threads import LANES


@dataclass(frozen=True)
class Known:
    """Accesses that come before those of who knows this: of each block of the grid up to a time, and of single warps and threads, by
    number in the grid, up to a later one. In a large grid `blocks` has one element and nothing is kept of blocks. It never changes, so
    many may share it."""

    blocks: np.ndarray
    warps: Mapping[int, int] = field(default_factory=dict)
    threads: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.warps or self.threads or self.blocks.any())

    def plus(self, *others: Known) -> Known:
        """Returns what who knows all of these knows."""
        others = tuple(other for other in others if other is not self)
        if not others:
            return self
        blocks = np.maximum.reduce([self.blocks, *(other.blocks for other in others)])
        warps = _latest([self.warps, *(other.warps for other in others)])
        return Known(blocks, warps, _latest([self.threads, *(other.threads for other in others)]))

    def until(self, who: np.ndarray, padded: int) -> np.ndarray:
        """Returns up to which time the accesses of threads come before, by number in the grid. `padded`: of threads in a block."""
        single = [max(self.threads.get(n, 0), self.warps.get(n // LANES, 0)) for n in who.tolist()]
        return np.maximum(self.blocks[np.minimum(who // padded, self.blocks.size - 1)], single)


def _latest(times: list[Mapping[int, int]]) -> Mapping[int, int]:
    """Returns the latest time of each number."""
    first, *others = sorted((of for of in times if of), key=len, reverse=True) or [{}]
    if not others:
        return first
    out = dict(first)
    for number, time in (pair for of in others for pair in of.items()):
        if time > out.get(number, 0):
            out[number] = time
    return out
