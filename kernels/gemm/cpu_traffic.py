"""Bytes that the loops of kernels/gemm/cpu_loops.py move past a cache: a formula, no simulation.

The cache is ideal and serves one thread. It has lines of `line_bytes`, replaces the least recently used line,
and is fully associative. Real caches are sets of a few lines, in which rows a power of two apart replace each
other. Real caches also prefetch. The method is that of footprints (Wolf and Lam, "A data locality optimizing
algorithm", PLDI 1991; Lam, Rothberg and Wolf, "The cache performance and optimizations of blocked
algorithms", ASPLOS 1991). Take the outermost loop whose body's data, all arrays together, fit in the cache.
Data that one iteration of that loop shares with the next is still in the cache. Data of loops further out is not.
So over that whole loop each line is loaded once, and again for every iteration of the loops around it. A
line that was written is also written back. Pure functions. Counts are averages: fractions if tiles do not divide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd, prod

from kernels.gemm.shape import GemmShape

FLOAT = 4  # bytes


@dataclass(frozen=True)
class ArrayAccess:
    """An array in a loop nest: the loops over its rows and columns, and the floats from row to row.

    `transfers`: how often a line is moved (twice if it is written: in and out).
    """

    rows: str
    cols: str
    stride: int
    transfers: int = 1


@dataclass(frozen=True)
class Cache:
    lines: float  # capacity in lines
    floats: int  # in one line

    def footprint(self, rows: float, cols: int, stride: int) -> float:
        """Returns the number of lines that a rectangle of an array occupies; its rows begin `stride` floats apart."""
        line_count = ceil(rows * stride / self.floats)
        if cols >= stride:
            return line_count
        step = gcd(cols, stride, self.floats)  # a row may begin at multiples of this within a line
        return min(rows * (cols + self.floats - step) / self.floats, line_count + 1)


def traffic(order: str, s: GemmShape, line_bytes: int, cache_bytes: int, block: int | None = None) -> float:
    """Returns the bytes that "naive", "reordered" or "blocked" (with squares of `block`) moves past such a cache."""
    cache = Cache(cache_bytes / line_bytes, line_bytes // FLOAT)
    if order == "blocked" and block:
        return line_bytes * _blocked(s, block, cache)
    A, B, C = (ArrayAccess("row", "k", s.K), ArrayAccess("k", "col", s.N), ArrayAccess("row", "col", s.N, transfers=2))
    nest = {"naive": ("row", "col", "k"), "reordered": ("row", "k", "col")}[order]
    return line_bytes * _nest(nest, {"row": s.M, "col": s.N, "k": s.K}, {}, (A, B, C), cache)


def traffic_ratio(s: GemmShape, block: int, line_bytes: int, cache_bytes: int) -> float:
    """Returns the bytes of the blocked loops as a fraction of those of the naive loops."""
    blocked = traffic("blocked", s, line_bytes, cache_bytes, block)
    return blocked / traffic("naive", s, line_bytes, cache_bytes)


def _nest(
    order: Sequence[str],
    extents: Mapping[str, int],
    grain: Mapping[str, int],
    arrays: Sequence[ArrayAccess],
    cache: Cache,
    resident: float = 0,
) -> float:
    """Returns the lines moved by loops in this order, from the outermost.

    `grain` is the step of each loop (1 by default). `resident` lines are in use all the time.
    """
    step = {loop: min(grain.get(loop, 1), extent) for loop, extent in extents.items()}

    def lines_touched(depth: int) -> list[float]:
        """Returns the lines of each array that one iteration of the loops outside `depth` uses."""
        size = {loop: extents[loop] if loop in order[depth:] else step[loop] for loop in order}
        return [cache.footprint(size[a.rows], size[a.cols], a.stride) for a in arrays]

    fits = (d for d in range(len(order)) if sum(lines_touched(d)) + resident <= cache.lines)
    outer = max(next(fits, len(order)) - 1, 0)
    iterations = prod(extents[loop] / step[loop] for loop in order[:outer])
    return iterations * sum(a.transfers * lines for a, lines in zip(arrays, lines_touched(outer), strict=True))


def _blocked(s: GemmShape, block: int, cache: Cache) -> float:
    """Returns the lines moved: A and B are copied to As and Bs, multiplied into Cs, and Cs is copied to C."""
    extents = {"row": s.M, "col": s.N, "k": s.K}
    rows, cols, depth = (min(block, extents[loop]) for loop in ("row", "col", "k"))
    A, B, C = (ArrayAccess("row", "k", s.K), ArrayAccess("k", "col", s.N), ArrayAccess("row", "col", s.N, transfers=2))
    As, Bs, Cs = (cache.footprint(*size, block) for size in ((rows, depth), (depth, block), (rows, block)))
    squares = As + Bs + Cs
    read = cache.footprint(rows, depth, s.K) + cache.footprint(depth, cols, s.N)
    if squares + read <= cache.lines:  # they stay in the cache, and only A, B and C are moved
        grain = dict.fromkeys(extents, block)
        return _nest(("row", "col", "k"), extents, grain, (A, B, C), cache, squares) + 2 * squares
    multiply = 2 * Cs  # As and Bs are still in the cache
    if squares > cache.lines:
        extents = {"row": rows, "k": depth, "col": block}
        accesses = tuple(ArrayAccess(t.rows, t.cols, block, t.transfers) for t in (A, B, C))
        multiply = _nest(("row", "k", "col"), extents, {}, accesses, cache)
    iterations = s.M / rows * ceil(s.N / cols)  # a square at C's edge is multiplied in its whole width
    copied_out = 3 * Cs + 2 * cache.footprint(rows, cols, s.N)  # Cs set to 0, read; C in and out
    return iterations * (s.K / depth * (read + 2 * (As + Bs) + multiply) + copied_out)
