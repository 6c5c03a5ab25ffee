"""Collectives as data: rounds of moves between the memories of GPUs (ranks).

Each rank holds one array of float32. A move copies a slice of it into another rank's array, or adds it there. All moves
of a round read what the arrays held before the round. A rank applies the moves that reach it in their order, so the
order of every sum is fixed.

The ring is that of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009);
the tree is the binomial tree of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH" (2005).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernels.collectives.shape import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    DIRECT,
    NAIVE,
    ONE_SHOT,
    PAIRWISE,
    REDUCE_SCATTER,
    RING,
    TREE,
    TWO_SHOT,
    CollectiveShape,
)


@dataclass(frozen=True)
class Move:
    """Elements begin .. end - 1 of `source` go to `destination`, from element `to` on. They are added there if `adds`
    is true, else copied. A move whose source is its destination stays in one GPU's memory."""

    source: int
    destination: int
    begin: int
    end: int
    adds: bool
    to: int

    @property
    def size(self) -> int:
        """Returns its elements."""
        return self.end - self.begin

    @property
    def link(self) -> tuple[int, int]:
        """Returns (source, destination)."""
        return self.source, self.destination


Round = tuple[Move, ...]


@dataclass(frozen=True)
class Schedule:
    """The rounds of a collective. Moves without elements are left out, and so are rounds without moves."""

    shape: CollectiveShape
    rounds: tuple[Round, ...]

    @property
    def moves(self) -> Iterator[Move]:
        """Yields the moves of all rounds."""
        return (move for moves in self.rounds for move in moves)

    def link_elements(self) -> dict[tuple[int, int], int]:
        """Returns the elements that cross each link, by (source, destination)."""
        found: dict[tuple[int, int], int] = {}
        for move in self.moves:
            if move.source != move.destination:
                found[move.link] = found.get(move.link, 0) + move.size
        return found


def bounds(elements: int, parts: int) -> list[int]:
    """Returns where each of `parts` chunks begins, and the end: the first elements % parts chunks have one more."""
    each, rest = divmod(elements, parts)
    return [n * each + min(n, rest) for n in range(parts + 1)]


def schedule(kind: str, algorithm: str, ranks: int, elements: int) -> Schedule:
    """Returns the schedule of a collective; `elements` is the length of each rank's array. ShapeError names a rule that
    is broken.

    all-reduce: every rank ends with the sum. reduce-scatter: rank r ends with the sum of chunk r. all-gather: rank r
    begins with chunk r, and every rank ends with all chunks. broadcast: every rank ends with the array of rank 0.
    all-to-all: rank r's block for rank s goes to rank s (`block`). Chunks are those of `bounds`.
    """
    shape = CollectiveShape(kind, algorithm, ranks, elements)
    rounds = (tuple(move for move in moves if move.size) for moves in _ROUNDS[kind, algorithm](shape))
    return Schedule(shape, tuple(filter(None, rounds)))


def of_shape(shape: CollectiveShape) -> Schedule:
    return schedule(shape.kind, shape.algorithm, shape.ranks, shape.elements)


def chunk(shape: CollectiveShape, n: int) -> tuple[int, int]:
    """Returns (begin, end) of chunk n, counted modulo the ranks."""
    cuts = bounds(shape.elements, shape.ranks)
    n %= shape.ranks
    return cuts[n], cuts[n + 1]


def block(shape: CollectiveShape, rank: int, peer: int) -> tuple[int, int]:
    """Returns (begin, end) of a rank's block for a peer in an all-to-all. The two blocks of a pair have one size, that of
    chunk (rank + peer), so every array keeps its length."""
    cuts = bounds(shape.elements, shape.ranks)
    sizes = [cuts[n + 1] - cuts[n] for n in range(shape.ranks)]
    begin = sum(sizes[(rank + n) % shape.ranks] for n in range(peer))
    return begin, begin + sizes[(rank + peer) % shape.ranks]


def _move(source: int, destination: int, part: tuple[int, int], adds: bool) -> Move:
    return Move(source, destination, *part, adds, part[0])


# -- all-reduce --------------------------------------------------------------------------------------
def _naive(s: CollectiveShape) -> Iterator[Round]:
    """Every rank sends its array to rank 0, one after the other; rank 0 sends the sum back to each."""
    whole = 0, s.elements
    for rank in range(1, s.ranks):
        yield (_move(rank, 0, whole, adds=True),)
    yield from _naive_broadcast(s)


def _ring(s: CollectiveShape) -> Iterator[Round]:
    yield from _ring_reduce_scatter(s)
    yield from _ring_all_gather(s)


def _tree(s: CollectiveShape) -> Iterator[Round]:
    """In each round half of the ranks that still hold a part sum send it on; then the sum returns the same way."""
    yield from _tree_reduce(s)
    yield from _tree_broadcast(s)


def _one_shot(s: CollectiveShape) -> Iterator[Round]:
    """Every rank reads the arrays of all ranks and adds them in the order of the ranks."""
    whole = 0, s.elements
    if s.ranks > 1:
        yield tuple(_move(source, rank, whole, source > 0) for rank in range(s.ranks) for source in range(s.ranks))


def _two_shot(s: CollectiveShape) -> Iterator[Round]:
    """Rank r reads chunk r of all ranks and adds it; then every rank reads the sums of the others."""
    yield from _direct_reduce_scatter(s)
    yield from _direct_all_gather(s)


# -- its parts, and the other kinds ------------------------------------------------------------------
def _direct_reduce_scatter(s: CollectiveShape) -> Iterator[Round]:
    if s.ranks > 1:
        yield tuple(
            _move(source, rank, chunk(s, rank), source > 0) for rank in range(s.ranks) for source in range(s.ranks)
        )


def _direct_all_gather(s: CollectiveShape) -> Iterator[Round]:
    yield tuple(
        _move(source, rank, chunk(s, source), adds=False)
        for rank in range(s.ranks)
        for source in range(s.ranks)
        if source != rank
    )


def _ring_reduce_scatter(s: CollectiveShape) -> Iterator[Round]:
    """In each round rank r sends one chunk to rank r + 1, which adds it. The sum of chunk r is complete at rank r."""
    for n in range(s.ranks - 1):
        yield tuple(_move(r, (r + 1) % s.ranks, chunk(s, r - 1 - n), adds=True) for r in range(s.ranks))


def _ring_all_gather(s: CollectiveShape) -> Iterator[Round]:
    """In each round rank r sends the chunk that it received last, first its own, to rank r + 1."""
    for n in range(s.ranks - 1):
        yield tuple(_move(r, (r + 1) % s.ranks, chunk(s, r - n), adds=False) for r in range(s.ranks))


def _levels(ranks: int) -> list[int]:
    """Returns the distances of the rounds of a binomial tree: 1, 2, 4 ..."""
    return [1 << n for n in range((ranks - 1).bit_length())]


def _tree_reduce(s: CollectiveShape) -> Iterator[Round]:
    for step in _levels(s.ranks):
        yield tuple(_move(r, r - step, (0, s.elements), adds=True) for r in range(step, s.ranks, 2 * step))


def _tree_broadcast(s: CollectiveShape) -> Iterator[Round]:
    for step in reversed(_levels(s.ranks)):
        yield tuple(_move(r - step, r, (0, s.elements), adds=False) for r in range(step, s.ranks, 2 * step))


def _naive_broadcast(s: CollectiveShape) -> Iterator[Round]:
    for rank in range(1, s.ranks):
        yield (_move(0, rank, (0, s.elements), adds=False),)


def _chain_broadcast(s: CollectiveShape) -> Iterator[Round]:
    """The array travels along the ranks chunk by chunk, so that all links are busy at once."""
    for n in range(2 * s.ranks - 2):
        yield tuple(_move(r, r + 1, chunk(s, n - r), adds=False) for r in range(s.ranks - 1) if 0 <= n - r < s.ranks)


def _exchange(s: CollectiveShape, rank: int, peer: int) -> Move:
    return Move(rank, peer, *block(s, rank, peer), adds=False, to=block(s, peer, rank)[0])


def _direct_all_to_all(s: CollectiveShape) -> Iterator[Round]:
    yield tuple(_exchange(s, r, peer) for r in range(s.ranks) for peer in range(s.ranks) if r != peer)


def _pairwise_all_to_all(s: CollectiveShape) -> Iterator[Round]:
    """In round n the ranks r and n - r (modulo the ranks) exchange a block; a rank that is its own partner is idle."""
    for n in range(s.ranks):
        pairs = ((r, (n - r) % s.ranks) for r in range(s.ranks))
        yield tuple(_exchange(s, r, peer) for r, peer in pairs if r != peer)


_ROUNDS: Mapping[tuple[str, str], Callable[[CollectiveShape], Iterator[Round]]] = {
    (ALL_REDUCE, NAIVE): _naive,
    (ALL_REDUCE, RING): _ring,
    (ALL_REDUCE, TREE): _tree,
    (ALL_REDUCE, ONE_SHOT): _one_shot,
    (ALL_REDUCE, TWO_SHOT): _two_shot,
    (REDUCE_SCATTER, DIRECT): _direct_reduce_scatter,
    (REDUCE_SCATTER, RING): _ring_reduce_scatter,
    (ALL_GATHER, DIRECT): _direct_all_gather,
    (ALL_GATHER, RING): _ring_all_gather,
    (BROADCAST, NAIVE): _naive_broadcast,
    (BROADCAST, TREE): _tree_broadcast,
    (BROADCAST, RING): _chain_broadcast,
    (ALL_TO_ALL, DIRECT): _direct_all_to_all,
    (ALL_TO_ALL, PAIRWISE): _pairwise_all_to_all,
}
