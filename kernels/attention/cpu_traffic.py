"""Bytes that the loops of kernels/attention/cpu_loops.py move past a cache: a formula, no simulation.

The cache and the method are those of kernels.gemm.cpu_traffic, for loops with several parts inside. If one iteration
of a loop fits in the cache, each line is moved once. Otherwise the parts inside move their lines in every iteration.
A line that was written is also written back. Data that one part leaves in the cache for the next is not counted, so
the result is rather too large. If causal, every query is assumed to see half of the keys. Pure functions. Counts are
averages: fractions if tiles do not divide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernels.attention.shape import AttentionShape
from kernels.gemm.cpu_traffic import FLOAT, Cache

DEEP = 32  # as in kernels/attention/cpu_loops.py
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class ArrayAccess:
    """An element of an array, and the loops over its rows and columns. Rows begin `stride` floats apart.

    `max_sizes` limits the rows and columns of an array that is reused, such as a tile.
    """

    array: str
    rows: tuple[str, ...]
    cols: str
    stride: int
    written: bool = False
    max_sizes: Sizes = field(default_factory=dict)

    def lines(self, sizes: Sizes, cache: Cache) -> float:
        rows, cols = 1, self._size(self.cols, sizes)
        for name in self.rows:
            rows *= self._size(name, sizes)
        return cache.footprint(rows, cols, self.stride)

    def _size(self, name: str, sizes: Sizes) -> int:
        return min(sizes.get(name, 1), self.max_sizes.get(name, sizes.get(name, 1)))


@dataclass(frozen=True)
class Loop:
    """A loop over `name` in steps of `grain`, and its parts inside, in order."""

    name: str
    extent: int
    body: tuple[Loop | ArrayAccess, ...]
    grain: int = 1

    @property
    def iterations(self) -> float:
        return self.extent / self.step

    @property
    def step(self) -> int:
        return min(self.grain, self.extent)


# -- past a cache ---------------------------------------------------------------------------------------
def traffic(name: str, s: AttentionShape, line_bytes: int, cache_bytes: int, sides: Sizes) -> float:
    """Returns the bytes that a rung moves past such a cache. `sides` are its BLOCK, or Br and Bc, if it has them."""
    cache = Cache(cache_bytes / line_bytes, line_bytes // FLOAT)
    return line_bytes * _lines_moved(Loop("head", s.heads, tuple(NESTS[name](s, sides))), {}, cache)


def _lines_moved(node: Loop | ArrayAccess, sizes: Sizes, cache: Cache) -> float:
    """Returns the lines moved by a node within one iteration of the loops around it, whose steps are `sizes`."""
    if isinstance(node, ArrayAccess):
        return (1 + node.written) * node.lines(sizes, cache)
    step_sizes = {**sizes, node.name: node.step}
    if sum(lines for lines, _ in _footprints(node.body, step_sizes, cache)) <= cache.lines:
        return sum(lines * transfers for lines, transfers in _footprints((node,), sizes, cache))
    return node.iterations * sum(_lines_moved(each, step_sizes, cache) for each in node.body)


def _footprints(nodes: tuple[Loop | ArrayAccess, ...], sizes: Sizes, cache: Cache) -> list[tuple[float, int]]:
    """Returns (lines, transfers) of each array that the nodes access."""
    footprints: dict[str, tuple[float, int]] = {}
    for access, extents in _accesses(nodes, sizes):
        lines, transfers = footprints.get(access.array, (0, 1))
        footprints[access.array] = (max(lines, access.lines(extents, cache)), max(transfers, 1 + access.written))
    return list(footprints.values())


def _accesses(nodes: tuple[Loop | ArrayAccess, ...], sizes: Sizes) -> Iterator[tuple[ArrayAccess, Sizes]]:
    """Yields each element that is accessed, with the full extents of the loops around it."""
    for node in nodes:
        if isinstance(node, ArrayAccess):
            yield node, sizes
        else:
            extents = {**sizes, node.name: max(sizes.get(node.name, 1), node.extent)}
            yield from _accesses(node.body, extents)


# -- the loops of each rung, for one head ---------------------------------------------------------------
def _head_arrays(s: AttentionShape) -> tuple[ArrayAccess, ...]:
    """Returns an access to an element of each of Q, K, V and O."""
    rows = {"Q": "i", "K": "j", "V": "j", "O": "i"}
    return tuple(ArrayAccess(name, ("head", row), "x", s.d, name == "O") for name, row in rows.items())


def _keys(s: AttentionShape) -> int:
    return (s.N + 2) // 2 if s.causal else s.N


def _softmax(scores: ArrayAccess, keys: int) -> Loop:
    """Returns the loop of a softmax: its maximum, its exponentials with their sum, the factor 1 / sum."""
    return Loop("pass", 3, (Loop("j", keys, (scores,)),))


def _naive(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (q, k, v, o), n, keys = _head_arrays(s), s.N, _keys(s)
    S = ArrayAccess("S", ("i",), "j", n, written=True)
    read = ArrayAccess("S", ("i",), "j", n)
    yield Loop("i", n, (Loop("j", keys, (Loop("x", s.d, (q, k)), S)),))
    yield Loop("i", n, (_softmax(S, keys),))
    yield Loop("i", n, (Loop("x", s.d, (Loop("j", keys, (read, v)), o)),))


def _blocked(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (_, _, v, o), n, keys, block = _head_arrays(s), s.N, _keys(s), sides["BLOCK"]
    S, read = ArrayAccess("S", ("i",), "j", n, written=True), ArrayAccess("S", ("i",), "j", n)
    yield Loop("i", n, (Loop("j", keys, _square(s, block, block, S), block),), block)
    yield Loop("i", n, (_softmax(S, keys),))
    rows = Loop("i", block, (Loop("j", block, (read, Loop("x", s.d, (v, o)))),))
    yield Loop("i", n, (Loop("j", keys, (rows,), block),), block)


def _fused(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (q, k, v, o), n, keys = _head_arrays(s), s.N, _keys(s)
    row, read = (ArrayAccess("rows", (), "j", n, written=w) for w in (True, False))
    scores = Loop("j", keys, (Loop("x", s.d, (q, k)), row))
    values = Loop("j", keys, (read, Loop("x", s.d, (v, o))))
    yield Loop("i", n, (scores, _softmax(row, keys), values))


def _flash(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (_, _, v, o), n, keys, Br, Bc = _head_arrays(s), s.N, _keys(s), sides["Br"], sides["Bc"]
    tile = {"i": Br, "j": Bc}
    S, read = (ArrayAccess("S", ("i",), "j", Bc, w, tile) for w in (True, False))
    rescaled = Loop("pass", 2, (Loop("j", Bc, (S,)),)), Loop("x", s.d, (o,))
    rows = Loop("i", Br, (*rescaled, Loop("j", Bc, (read, Loop("x", s.d, (v, o))))))
    yield Loop("i", n, (Loop("j", keys, (*_square(s, Br, Bc, S), rows), Bc),), Br)


def _square(s: AttentionShape, rows: int, keys: int, S: ArrayAccess) -> tuple[Loop, ...]:
    """Returns the loops of a square of scores. The keys are first transposed to Kt, DEEP columns at a time."""
    q, k, _, _ = _head_arrays(s)
    depth, max_sizes = min(DEEP, s.d), {"x": DEEP, "j": keys}
    Kt, read = (ArrayAccess("Kt", ("x",), "j", keys, w, max_sizes) for w in (True, False))
    transposed = Loop("j", keys, (Loop("x", depth, (k, Kt)),))
    multiplied = Loop("i", rows, (Loop("x", depth, (q, Loop("j", keys, (read, S)))),))
    return (Loop("x", s.d, (transposed, multiplied), DEEP),)


NESTS = {"naive": _naive, "blocked": _blocked, "fused": _fused, "flash": _flash}
