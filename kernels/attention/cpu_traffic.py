"""How many bytes the loops of kernels/attention/cpu_loops.py move past a cache: a formula, no simulation.

The cache and the reasoning are those of kernels.gemm.cpu_traffic, for loops with several things inside: of a
loop one turn of which fits in the cache, each line passes once; of another one the things inside pass at every turn.
A line that was written goes back as well. What one thing inside leaves for the next is not taken into account, so rather
too much is told. If causal, every query is taken to see half of the keys. Pure functions; counts are averages, fractions
where tiles do not divide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernels.attention.shape import AttentionShape
from kernels.gemm.cpu_traffic import FLOAT, Cache

DEEP = 32  # as in kernels/attention/cpu_loops.py
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Touched:
    """An element of an array, at the loops that walk its rows and columns; rows begin `stride` floats apart. What is
    used over and over, a tile say, has no more of them than `most` says."""

    array: str
    rows: tuple[str, ...]
    cols: str
    stride: int
    written: bool = False
    most: Sizes = field(default_factory=dict)

    def lines(self, sizes: Sizes, cache: Cache) -> float:
        rows, cols = 1, self._size(self.cols, sizes)
        for name in self.rows:
            rows *= self._size(name, sizes)
        return cache.footprint(rows, cols, self.stride)

    def _size(self, name: str, sizes: Sizes) -> int:
        return min(sizes.get(name, 1), self.most.get(name, sizes.get(name, 1)))


@dataclass(frozen=True)
class Loop:
    """A loop over `name`, each turn of which goes on by `grain`, and what is inside, in order."""

    name: str
    extent: int
    inside: tuple[Loop | Touched, ...]
    grain: int = 1

    @property
    def turns(self) -> float:
        return self.extent / self.turn

    @property
    def turn(self) -> int:
        return min(self.grain, self.extent)


# -- past a cache ---------------------------------------------------------------------------------------
def traffic(name: str, s: AttentionShape, line_bytes: int, cache_bytes: int, sides: Sizes) -> float:
    """Bytes that a rung moves past such a cache, `sides` its BLOCK, or Br and Bc, where it has them."""
    cache = Cache(cache_bytes / line_bytes, line_bytes // FLOAT)
    return line_bytes * _moved(Loop("head", s.heads, tuple(NESTS[name](s, sides))), {}, cache)


def _moved(node: Loop | Touched, sizes: Sizes, cache: Cache) -> float:
    """Lines moved by a node within one turn of the loops around it, which go on by `sizes`."""
    if isinstance(node, Touched):
        return (1 + node.written) * node.lines(sizes, cache)
    turn = {**sizes, node.name: node.turn}
    if sum(lines for lines, _ in _held(node.inside, turn, cache)) <= cache.lines:
        return sum(lines * passes for lines, passes in _held((node,), sizes, cache))
    return node.turns * sum(_moved(each, turn, cache) for each in node.inside)


def _held(nodes: tuple[Loop | Touched, ...], sizes: Sizes, cache: Cache) -> list[tuple[float, int]]:
    """(lines, passes) of each array that the nodes touch."""
    found: dict[str, tuple[float, int]] = {}
    for touched, at in _touched(nodes, sizes):
        lines, passes = found.get(touched.array, (0, 1))
        found[touched.array] = max(lines, touched.lines(at, cache)), max(passes, 1 + touched.written)
    return list(found.values())


def _touched(nodes: tuple[Loop | Touched, ...], sizes: Sizes) -> Iterator[tuple[Touched, Sizes]]:
    """Each element that is touched, with how far the loops around it go in all."""
    for node in nodes:
        if isinstance(node, Touched):
            yield node, sizes
        else:
            whole = {**sizes, node.name: max(sizes.get(node.name, 1), node.extent)}
            yield from _touched(node.inside, whole)


# -- the loops of each rung, for one head ---------------------------------------------------------------
def _of_head(s: AttentionShape) -> tuple[Touched, ...]:
    """Q, K, V and O: an element of each."""
    of = {"Q": "i", "K": "j", "V": "j", "O": "i"}
    return tuple(Touched(name, ("head", row), "x", s.d, name == "O") for name, row in of.items())


def _keys(s: AttentionShape) -> int:
    return (s.N + 2) // 2 if s.causal else s.N


def _softmax(scores: Touched, keys: int) -> Loop:
    """Its maximum, its exponentials with their sum, the factor 1 / sum."""
    return Loop("pass", 3, (Loop("j", keys, (scores,)),))


def _naive(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (q, k, v, o), n, keys = _of_head(s), s.N, _keys(s)
    S = Touched("S", ("i",), "j", n, written=True)
    read = Touched("S", ("i",), "j", n)
    yield Loop("i", n, (Loop("j", keys, (Loop("x", s.d, (q, k)), S)),))
    yield Loop("i", n, (_softmax(S, keys),))
    yield Loop("i", n, (Loop("x", s.d, (Loop("j", keys, (read, v)), o)),))


def _blocked(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (_, _, v, o), n, keys, block = _of_head(s), s.N, _keys(s), sides["BLOCK"]
    S, read = Touched("S", ("i",), "j", n, written=True), Touched("S", ("i",), "j", n)
    yield Loop("i", n, (Loop("j", keys, _square(s, block, block, S), block),), block)
    yield Loop("i", n, (_softmax(S, keys),))
    rows = Loop("i", block, (Loop("j", block, (read, Loop("x", s.d, (v, o)))),))
    yield Loop("i", n, (Loop("j", keys, (rows,), block),), block)


def _fused(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (q, k, v, o), n, keys = _of_head(s), s.N, _keys(s)
    row, read = (Touched("rows", (), "j", n, written=w) for w in (True, False))
    scores = Loop("j", keys, (Loop("x", s.d, (q, k)), row))
    values = Loop("j", keys, (read, Loop("x", s.d, (v, o))))
    yield Loop("i", n, (scores, _softmax(row, keys), values))


def _flash(s: AttentionShape, sides: Sizes) -> Iterator[Loop]:
    (_, _, v, o), n, keys, Br, Bc = _of_head(s), s.N, _keys(s), sides["Br"], sides["Bc"]
    tile = {"i": Br, "j": Bc}
    S, read = (Touched("S", ("i",), "j", Bc, w, tile) for w in (True, False))
    mended = Loop("pass", 2, (Loop("j", Bc, (S,)),)), Loop("x", s.d, (o,))
    rows = Loop("i", Br, (*mended, Loop("j", Bc, (read, Loop("x", s.d, (v, o))))))
    yield Loop("i", n, (Loop("j", keys, (*_square(s, Br, Bc, S), rows), Bc),), Br)


def _square(s: AttentionShape, rows: int, keys: int, S: Touched) -> tuple[Loop, ...]:
    """A square of scores, the keys turned round in Kt first, DEEP columns at a time."""
    q, k, _, _ = _of_head(s)
    deep, most = min(DEEP, s.d), {"x": DEEP, "j": keys}
    Kt, read = (Touched("Kt", ("x",), "j", keys, w, most) for w in (True, False))
    turned = Loop("j", keys, (Loop("x", deep, (k, Kt)),))
    added = Loop("i", rows, (Loop("x", deep, (q, Loop("j", keys, (read, S)))),))
    return (Loop("x", s.d, (turned, added), DEEP),)


NESTS = {"naive": _naive, "blocked": _blocked, "fused": _fused, "flash": _flash}
