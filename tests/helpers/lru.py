"""A least-recently-used cache, simulated access by access, to check the formula of cpu_traffic."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from kernels.gemm.shape import GemmShape

Access = tuple[str, int, bool]  # array, element from its start, written


class Cache:
    """A cache of `lines` lines of `elements` elements with LRU replacement; `moved` counts lines in and out."""

    def __init__(self, lines: int, elements: int):
        self.lines, self.elements, self.moved = lines, elements, 0
        self._lines: OrderedDict[tuple[str, int], bool] = OrderedDict()  # whether it was written

    def access(self, array: str, element: int, written: bool) -> None:
        line = array, element // self.elements
        if line not in self._lines:
            self.moved += 1
            if len(self._lines) == self.lines:
                self.moved += self._lines.popitem(last=False)[1]
            self._lines[line] = False
        self._lines.move_to_end(line)
        self._lines[line] |= written

    def flushed(self) -> int:
        """Returns the lines moved in total, including those still to be written back."""
        return self.moved + sum(self._lines.values())


def moved(accesses: Iterator[Access], lines: int, elements: int) -> int:
    cache = Cache(lines, elements)
    for access in accesses:
        cache.access(*access)
    return cache.flushed()


# -- the loops of kernels/gemm/cpu_loops.py on one thread, access by access -----------------------------------------
def naive(s: GemmShape) -> Iterator[Access]:
    for row in range(s.M):
        for col in range(s.N):
            for k in range(s.K):
                yield "A", row * s.K + k, False
                yield "B", k * s.N + col, False
            yield "C", row * s.N + col, True


def reordered(s: GemmShape) -> Iterator[Access]:
    for row in range(s.M):
        for col in range(s.N):
            yield "C", row * s.N + col, True
        for k in range(s.K):
            yield "A", row * s.K + k, False
            for col in range(s.N):
                yield "B", k * s.N + col, False
                yield "C", row * s.N + col, True


def blocked(s: GemmShape, block: int) -> Iterator[Access]:
    for row0 in range(0, s.M, block):
        for col0 in range(0, s.N, block):
            rows, cols = min(block, s.M - row0), min(block, s.N - col0)
            for i in range(block * block):
                yield "Cs", i, True
            for k0 in range(0, s.K, block):
                depth = min(block, s.K - k0)
                yield from _copy("A", s.K, row0, k0, "As", block, rows, depth)
                yield from _copy("B", s.N, k0, col0, "Bs", block, depth, cols)
                for row in range(rows):
                    for k in range(depth):
                        yield "As", row * block + k, False
                        for col in range(block):
                            yield "Bs", k * block + col, False
                            yield "Cs", row * block + col, True
            for row in range(rows):
                for col in range(cols):
                    yield "Cs", row * block + col, False
                    yield "C", (row0 + row) * s.N + col0 + col, True


def _copy(source: str, stride: int, row0: int, col0: int, to: str, block: int, rows: int, cols: int):
    for row in range(rows):
        for col in range(cols):
            yield source, (row0 + row) * stride + col0 + col, False
            yield to, row * block + col, True
