"""What a collective is: its kind, its algorithm, the number of ranks and the elements that each rank holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.shape import INT_MAX, Fields, ShapeError, integer

MAX_RANKS = 1 << 10  # of a schedule that is written out move by move
ITEM = 4  # bytes of a float32

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all-reduce", "reduce-scatter", "all-gather"
BROADCAST, ALL_TO_ALL = "broadcast", "all-to-all"
NAIVE, RING, TREE, ONE_SHOT, TWO_SHOT = "naive", "ring", "tree", "one-shot", "two-shot"
DIRECT, PAIRWISE = "direct", "pairwise"

# The algorithms of each kind, the plainest first.
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    ALL_REDUCE: (NAIVE, RING, TREE, ONE_SHOT, TWO_SHOT),
    REDUCE_SCATTER: (DIRECT, RING),
    ALL_GATHER: (DIRECT, RING),
    BROADCAST: (NAIVE, TREE, RING),
    ALL_TO_ALL: (DIRECT, PAIRWISE),
}


@dataclass(frozen=True)
class CollectiveShape(Fields):
    """A collective over `ranks` GPUs with `elements` float32 each. ShapeError names the rule that a field breaks."""

    kind: str = ALL_REDUCE
    algorithm: str = RING
    ranks: int = 4
    elements: int = 16

    def __post_init__(self):
        check(self.kind, self.algorithm)
        self._check(("ranks",), integer, 1, MAX_RANKS)
        self._check(("elements",), integer, 1, INT_MAX)

    @property
    def nbytes(self) -> int:
        """Returns the bytes that each rank holds."""
        return ITEM * self.elements


def check(kind: str, algorithm: str) -> None:
    """Raises ShapeError if there is no such kind, or if it has no such algorithm."""
    if kind not in ALGORITHMS:
        raise ShapeError(tr("kind must be one of {known}, got {got}", known=", ".join(ALGORITHMS), got=kind))
    if algorithm not in ALGORITHMS[kind]:
        raise ShapeError(
            tr(
                "{kind} has the algorithms {known}, got {got}",
                kind=kind,
                known=", ".join(ALGORITHMS[kind]),
                got=algorithm,
            )
        )
