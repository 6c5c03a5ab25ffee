"""How many bytes the loops of kernels/gemm/cpu_loops.py move past a cache: a formula, no simulation.

The cache is an ideal one of one thread: lines of `line_bytes`, the least recently used one makes room, any
line may stand anywhere. Real caches are sets of a few lines, in which rows a power of two apart crowd each
other out, and real ones fetch ahead. The reasoning is that of footprints (Wolf and Lam, "A data locality
optimizing algorithm", PLDI 1991; Lam, Rothberg and Wolf, "The cache performance and optimizations of blocked
algorithms", ASPLOS 1991): take the outermost loop whose body's data, all arrays together, fit in the cache.
What a turn of that loop shares with its next turn is then still there; what lies in loops further out is not.
So over that whole loop each line is fetched once, and that again for every turn of the loops around it. A
line that was written goes back as well. Pure functions; counts are averages, fractions where tiles do not divide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd, prod

from kernels.gemm.shape import GemmShape

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Touched:
    """An array in a loop nest: the loops that walk its rows and columns, floats from row to row, and how
    often a line passes (twice where it is written: in and out)."""

    rows: str
    cols: str
    stride: int
    passes: int = 1


@dataclass(frozen=True)
class Cache:
    lines: float  # how many it holds
    floats: int  # of one line

    def footprint(self, rows: float, cols: int, stride: int) -> float:
        """Lines under a rectangle of an array whose rows begin `stride` floats apart."""
        whole = ceil(rows * stride / self.floats)
        if cols >= stride:
            return whole
        step = gcd(cols, stride, self.floats)  # where a row of it may begin within a line
        return min(rows * (cols + self.floats - step) / self.floats, whole + 1)


def traffic(order: str, s: GemmShape, line_bytes: int, cache_bytes: int, block: int | None = None) -> float:
    """Bytes that "naive", "reordered" or "blocked" (with squares of `block`) moves past such a cache."""
    cache = Cache(cache_bytes / line_bytes, line_bytes // FLOAT)
    if order == "blocked":
        return line_bytes * _blocked(s, block, cache)
    A, B, C = (Touched("row", "k", s.K), Touched("k", "col", s.N), Touched("row", "col", s.N, passes=2))
    nest = {"naive": ("row", "col", "k"), "reordered": ("row", "k", "col")}[order]
    return line_bytes * _nest(nest, {"row": s.M, "col": s.N, "k": s.K}, {}, (A, B, C), cache)


def traffic_ratio(s: GemmShape, block: int, line_bytes: int, cache_bytes: int) -> float:
    """What the blocked loops move past such a cache, as a share of what the naive ones move."""
    blocked = traffic("blocked", s, line_bytes, cache_bytes, block)
    return blocked / traffic("naive", s, line_bytes, cache_bytes)


def _nest(
    order: Sequence[str],
    extents: Mapping[str, int],
    grain: Mapping[str, int],
    arrays: Sequence[Touched],
    cache: Cache,
    resident: float = 0,
) -> float:
    """Lines moved by loops in this order, from the outermost; a turn of one goes on by its `grain` (1 where it
    has none). `resident` lines are in use all the time."""
    step = {loop: min(grain.get(loop, 1), extent) for loop, extent in extents.items()}

    def touched(depth: int) -> list[float]:
        """Lines of each array under one turn of all loops from `depth` on."""
        size = {loop: extents[loop] if loop in order[depth:] else step[loop] for loop in order}
        return [cache.footprint(size[a.rows], size[a.cols], a.stride) for a in arrays]

    fits = (d for d in range(len(order)) if sum(touched(d)) + resident <= cache.lines)
    around = max(next(fits, len(order)) - 1, 0)
    turns = prod(extents[loop] / step[loop] for loop in order[:around])
    return turns * sum(a.passes * lines for a, lines in zip(arrays, touched(around), strict=True))


def _blocked(s: GemmShape, block: int, cache: Cache) -> float:
    """Lines moved: squares of A and B go to As and Bs, are multiplied there into Cs, which goes to C."""
    extents = {"row": s.M, "col": s.N, "k": s.K}
    rows, cols, deep = (min(block, extents[loop]) for loop in ("row", "col", "k"))
    A, B, C = (Touched("row", "k", s.K), Touched("k", "col", s.N), Touched("row", "col", s.N, passes=2))
    As, Bs, Cs = (cache.footprint(*of, block) for of in ((rows, deep), (deep, block), (rows, block)))
    squares = As + Bs + Cs
    read = cache.footprint(rows, deep, s.K) + cache.footprint(deep, cols, s.N)
    if squares + read <= cache.lines:  # they stay, and only A, B and C pass
        grain = dict.fromkeys(extents, block)
        return _nest(("row", "col", "k"), extents, grain, (A, B, C), cache, squares) + 2 * squares
    multiply = 2 * Cs  # As and Bs were copied just now
    if squares > cache.lines:
        extents = {"row": rows, "k": deep, "col": block}
        of = tuple(Touched(t.rows, t.cols, block, t.passes) for t in (A, B, C))
        multiply = _nest(("row", "k", "col"), extents, {}, of, cache)
    turns = s.M / rows * ceil(s.N / cols)  # a square that C's edge cuts is multiplied in its whole width
    copied_out = 3 * Cs + 2 * cache.footprint(rows, cols, s.N)  # Cs set to 0, read; C in and out
    return turns * (s.K / deep * (read + 2 * (As + Bs) + multiply) + copied_out)
