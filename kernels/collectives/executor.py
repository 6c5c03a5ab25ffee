"""The NumPy executor of schedules, and the float64 reference of each kind of collective.

The executor adds in float32 in the order of the schedule, so its results are those of a GPU bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.collectives.schedules import Round, Schedule, block, bounds
from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, CollectiveShape
from kernels.i18n import tr
from kernels.model.program import RuleError

UNIT = 2.0**-24  # half the distance between float32 numbers at 1


class CollectiveError(RuleError):
    """A collective whose result is wrong, or that did not end; the message names the first rank and element."""


@dataclass(frozen=True)
class Expected:
    """What elements begin .. begin + values.size - 1 of a rank must be: float64. A float32 result may differ by
    `tolerance` (float64, an element each), 0 for a copy."""

    rank: int
    begin: int
    values: np.ndarray
    tolerance: np.ndarray


def execute(schedule: Schedule, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns each rank's array after a collective. `arrays`: float32 [elements] of each rank; they stay as they are."""
    *_, last = states(schedule, arrays)
    return last


def states(schedule: Schedule, arrays: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yields the arrays of all ranks before the first round and after each: new arrays, float32 [elements]."""
    now = [np.array(a, np.float32) for a in arrays]
    s = schedule.shape
    if len(now) != s.ranks or any(a.shape != (s.elements,) for a in now):
        raise RuleError(
            tr("each of {ranks} ranks needs an array of {elements} elements", ranks=s.ranks, elements=s.elements)
        )
    yield [a.copy() for a in now]
    for moves in schedule.rounds:
        _apply(moves, now)
        yield [a.copy() for a in now]


def _apply(moves: Round, arrays: list[np.ndarray]) -> None:
    """Makes the moves of a round. All read what the arrays held before it."""
    sent = [arrays[move.source][move.begin : move.end].copy() for move in moves]
    for move, values in zip(moves, sent, strict=True):
        target = arrays[move.destination][move.to : move.to + move.size]
        target[:] = target + values if move.adds else values


# -- the reference -----------------------------------------------------------------------------------
def expected(shape: CollectiveShape, arrays: Sequence[np.ndarray]) -> list[Expected]:
    """Returns what each rank must hold at the end. A rank's other elements may be anything.

    The tolerance of a sum of n terms is (n - 1) half units of float32 of the sum of their absolute values, the bound for
    any order of adding (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2).
    """
    s, wide = shape, [np.asarray(a, np.float64) for a in arrays]
    cuts = bounds(s.elements, s.ranks)
    exact = np.zeros(s.elements)
    if s.kind in (ALL_REDUCE, REDUCE_SCATTER):
        total, scale = np.sum(wide, axis=0), np.sum(np.abs(wide), axis=0)
        terms = (s.ranks - 1) * UNIT
        tolerance = terms / (1 - terms) * scale
        parts = [(0, s.elements)] * s.ranks if s.kind == ALL_REDUCE else list(itertools.pairwise(cuts))
        return [Expected(r, a, total[a:b], tolerance[a:b]) for r, (a, b) in enumerate(parts)]
    if s.kind == BROADCAST:
        return [Expected(r, 0, wide[0], exact) for r in range(s.ranks)]
    if s.kind == ALL_GATHER:
        whole = np.concatenate([wide[r][cuts[r] : cuts[r + 1]] for r in range(s.ranks)])
        return [Expected(r, 0, whole, exact) for r in range(s.ranks)]
    assert s.kind == ALL_TO_ALL
    found = []
    for rank in range(s.ranks):
        blocks = [wide[peer][slice(*block(s, peer, rank))] for peer in range(s.ranks)]
        found.append(Expected(rank, 0, np.concatenate(blocks), exact))
    return found


def verify(shape: CollectiveShape, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> float:
    """Returns the largest error, in units of its tolerance (0 for copies). CollectiveError names the first rank and
    element that is wrong, or that differs between two ranks that must hold equal bits.

    `arrays`: what each rank held before, `results`: after, float32 [elements].
    """
    worst = 0.0
    for part in expected(shape, arrays):
        end = part.begin + part.values.size
        got = np.asarray(results[part.rank])[part.begin : end]
        error = np.abs(got.astype(np.float64) - part.values)
        right = np.isfinite(got) & (error <= part.tolerance)
        if not right.all():
            at = int(np.flatnonzero(~right)[0])
            raise CollectiveError(
                tr(
                    "{kind}, {algorithm}: element {at} of rank {rank} is {got}, not {expected}",
                    kind=shape.kind,
                    algorithm=shape.algorithm,
                    at=part.begin + at,
                    rank=part.rank,
                    got=f"{got[at]:.9g}",
                    expected=f"{part.values[at]:.9g}",
                )
            )
        if part.tolerance.any():
            worst = max(worst, float(np.max(error / np.maximum(part.tolerance, np.finfo(np.float64).tiny))))
    if shape.kind == ALL_REDUCE:
        check_equal(results)
    return worst


def check_equal(results: Sequence[np.ndarray]) -> None:
    """Raises CollectiveError if two ranks' float32 arrays differ in any bit."""
    first = np.ascontiguousarray(results[0]).view(np.uint32)
    for rank, other in enumerate(results):
        different = np.flatnonzero(first != np.ascontiguousarray(other).view(np.uint32))
        if different.size:
            raise CollectiveError(
                tr("element {at} of rank {rank} differs from that of rank 0", at=int(different[0]), rank=rank)
            )


def inputs(shape: CollectiveShape, seed: int = 0) -> list[np.ndarray]:
    """Returns an array for each rank, float32 [elements], uniform in 1 .. 2: a lost move changes every result."""
    rng = np.random.default_rng((seed, shape.ranks, shape.elements))
    return [rng.uniform(1, 2, shape.elements).astype(np.float32) for _ in range(shape.ranks)]
