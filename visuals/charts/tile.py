"""The tile size that a curve over tile sizes varies: what fits into a cache at it, and what share passes the cache."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from kernels.machine.memory_levels import Level
from visuals.charts.sweeps import Row

MOST_VALUE = 2**12  # of a tile size: larger ones are not told of


@dataclass(frozen=True)
class Tile:
    """The tile size that is turned. At a value of it `what` takes `taken(value)` bytes; `share(value, cache)` is what is
    predicted to pass a cache, as a share of what the naive loops move past it."""

    name: str
    what: str  # in the plural
    taken: Callable[[int], int]
    share: Callable[[int, Level], float]

    def of(self, row: Row) -> int:
        return row["tiles"][self.name]

    def fills(self, bytes_: int) -> int:
        """The largest value at which they fit in so many bytes, MOST_VALUE if not less; 0 where none does."""
        return bisect_right(range(1, MOST_VALUE + 1), bytes_, key=self.taken)
