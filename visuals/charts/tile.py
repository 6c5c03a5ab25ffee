"""The tile size that a curve varies: what fits into a cache at each value, and the predicted traffic past the cache."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from kernels.machine.memory_levels import Cache
from visuals.charts.sweeps import Row

MAX_VALUE = 2**12  # of a tile size, at most


@dataclass(frozen=True)
class Tile:
    """The tile size that varies. At a value of it, `what` needs `bytes_at(value)` bytes. `share(value, cache)` is the
    predicted traffic past a cache, as a share of the traffic of the naive loops."""

    name: str
    what: str  # in the plural
    bytes_at: Callable[[int], int]
    share: Callable[[int, Cache], float]

    def value_in(self, row: Row) -> int:
        return row["tiles"][self.name]

    def largest_fitting(self, bytes_: int) -> int:
        """Returns the largest value, up to MAX_VALUE, at which `what` fits into so many bytes; 0 if none does."""
        return bisect_right(range(1, MAX_VALUE + 1), bytes_, key=self.bytes_at)
