"""The time of a collective, predicted: latency and bandwidth of each GPU's port, fitted to measured times.

A round takes a latency and the time in which the busiest port sends or receives its bytes. A GPU sends and receives at
once, at full speed each way, to any peer (a switch, as NVSwitch). This is Hockney's model ("The communication challenge
for MPP", 1994) with one more factor for how far the two times overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from kernels.collectives.schedules import Round, Schedule
from kernels.collectives.shape import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    DIRECT,
    ITEM,
    NAIVE,
    ONE_SHOT,
    PAIRWISE,
    REDUCE_SCATTER,
    RING,
    TREE,
    TWO_SHOT,
    check,
)


@dataclass(frozen=True)
class Link:
    """A GPU's port. latency: seconds of a round without bytes. bandwidth: bytes per second, each way. start: seconds
    once for each collective. overlap: 1 if latency and transfer add up, more if they overlap, less if they hinder each
    other: a round takes (latency^overlap + transfer^overlap)^(1/overlap)."""

    latency: float
    bandwidth: float
    start: float = 0.0
    overlap: float = 1.0

    def round_seconds(self, nbytes: float) -> float:
        """Returns the seconds of a round whose busiest port moves so many bytes."""
        transfer = nbytes / self.bandwidth
        longer = max(self.latency, transfer)
        if not longer:
            return 0.0
        p = self.overlap
        return longer * ((self.latency / longer) ** p + (transfer / longer) ** p) ** (1 / p)


Traffic = tuple[tuple[int, float], ...]  # (rounds, bytes of the busiest port in each)


def seconds(what: Schedule | Traffic, link: Link) -> float:
    """Returns the predicted seconds of a schedule or of its traffic; 0 if nothing moves."""
    found = of_schedule(what) if isinstance(what, Schedule) else what
    if not found:
        return 0.0
    return link.start + sum(count * link.round_seconds(nbytes) for count, nbytes in found)


def of_schedule(schedule: Schedule) -> Traffic:
    """Returns the traffic of a schedule, counted from its moves; equal rounds that follow each other are joined."""
    joined: list[list[float]] = []
    for moves in schedule.rounds:
        nbytes = ITEM * port_elements(moves)
        if joined and joined[-1][1] == nbytes:
            joined[-1][0] += 1
        else:
            joined.append([1, nbytes])
    return tuple((int(count), nbytes) for count, nbytes in joined)


def port_elements(moves: Round) -> int:
    """Returns the elements that the busiest port sends or receives in a round."""
    sent: dict[int, int] = {}
    received: dict[int, int] = {}
    for move in moves:
        if move.source != move.destination:
            sent[move.source] = sent.get(move.source, 0) + move.size
            received[move.destination] = received.get(move.destination, 0) + move.size
    return max([0, *sent.values(), *received.values()])


def traffic(kind: str, algorithm: str, ranks: int, nbytes: float) -> Traffic:
    """Returns the traffic of a collective by formula, for any number of ranks: `nbytes` is the length of each rank's
    array, in equal chunks. ShapeError if there is no such algorithm."""
    check(kind, algorithm)
    return tuple((n, b) for n, b in _TRAFFIC[kind, algorithm](ranks, nbytes) if n and b) if ranks > 1 else ()


_Formula = Callable[[int, float], Traffic]


def _depth(ranks: int) -> int:
    return ceil(log2(ranks))


_TRAFFIC: Mapping[tuple[str, str], _Formula] = {
    (ALL_REDUCE, NAIVE): lambda r, b: ((2 * (r - 1), b),),
    (ALL_REDUCE, RING): lambda r, b: ((2 * (r - 1), b / r),),
    (ALL_REDUCE, TREE): lambda r, b: ((2 * _depth(r), b),),
    (ALL_REDUCE, ONE_SHOT): lambda r, b: ((1, (r - 1) * b),),
    (ALL_REDUCE, TWO_SHOT): lambda r, b: ((2, (r - 1) * b / r),),
    (REDUCE_SCATTER, DIRECT): lambda r, b: ((1, (r - 1) * b / r),),
    (REDUCE_SCATTER, RING): lambda r, b: ((r - 1, b / r),),
    (ALL_GATHER, DIRECT): lambda r, b: ((1, (r - 1) * b / r),),
    (ALL_GATHER, RING): lambda r, b: ((r - 1, b / r),),
    (BROADCAST, NAIVE): lambda r, b: ((r - 1, b),),
    (BROADCAST, TREE): lambda r, b: ((_depth(r), b),),
    (BROADCAST, RING): lambda r, b: ((2 * r - 2, b / r),),
    (ALL_TO_ALL, DIRECT): lambda r, b: ((1, (r - 1) * b / r),),
    (ALL_TO_ALL, PAIRWISE): lambda r, b: ((r if r > 2 else 1, b / r),),
}


def bus_factor(kind: str, ranks: int) -> float:
    """Returns bus bandwidth over (bytes / time), as nccl-tests define it: the share of the array that must cross each
    port. Then collectives over different numbers of GPUs are comparable with the speed of a link."""
    share = (ranks - 1) / ranks
    return {ALL_REDUCE: 2 * share, BROADCAST: 1.0}.get(kind, share)


# -- the fit -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Point:
    """A measured time in seconds, and the traffic that took it."""

    traffic: Traffic
    seconds: float


@dataclass(frozen=True)
class Fit:
    """A link fitted to points. errors: predicted over measured, minus 1, of each point."""

    link: Link
    errors: tuple[float, ...]

    @property
    def worst(self) -> float:
        """Returns the largest error, without its sign."""
        return max(map(abs, self.errors), default=0.0)


OVERLAPS = (0.5, 1.0, 2.0)  # where the search begins
STEPS = 200
EPS = 1e-6


def fit(points: Sequence[Point], overlap: bool = True) -> Fit:
    """Returns the link that predicts the points best: least squares of the logarithm of time, so that 1 % of a short time
    counts as much as 1 % of a long one. Levenberg and Marquardt's method from several first guesses.

    Without `overlap`, latency and transfer add up. ValueError if fewer than two points are there.
    """
    measured = [p for p in points if p.traffic and p.seconds > 0]
    if len(measured) < 2:
        raise ValueError("a fit needs two points at least")
    found = [_descend(measured, start, overlap) for start in (OVERLAPS if overlap else (1.0,))]
    link = min(found, key=lambda link: float(np.sum(_residuals(measured, link) ** 2)))
    errors = tuple(seconds(p.traffic, link) / p.seconds - 1 if p.traffic else 0.0 for p in points)
    return Fit(link, errors)


def _residuals(points: Sequence[Point], link: Link) -> np.ndarray:
    return np.array([np.log(seconds(p.traffic, link) / p.seconds) for p in points])


def _first(points: Sequence[Point], overlap: float) -> np.ndarray:
    """Returns the logarithms of latency, bandwidth and overlap that the shortest and the fastest point suggest."""
    latency = min(p.seconds / sum(n for n, _ in p.traffic) for p in points)
    bandwidth = max(sum(n * b for n, b in p.traffic) / p.seconds for p in points)
    return np.log([latency, bandwidth, overlap])


def _link(logs: np.ndarray) -> Link:
    latency, bandwidth, overlap = (float(v) for v in np.exp(logs))
    return Link(latency, bandwidth, overlap=overlap)


def _descend(points: Sequence[Point], overlap: float, free: bool) -> Link:
    """Returns the link at the end of a descent. `free`: the overlap may change."""
    logs, damping, count = _first(points, overlap), 1e-2, 3 if free else 2
    wrong = _residuals(points, _link(logs))
    for _ in range(STEPS):
        slopes = np.empty((len(points), count))
        for n in range(count):
            moved = logs.copy()
            moved[n] += EPS
            slopes[:, n] = (_residuals(points, _link(moved)) - wrong) / EPS
        normal = slopes.T @ slopes
        step = np.zeros(3)
        step[:count] = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + EPS), -slopes.T @ wrong)
        tried = logs + np.clip(step, -1, 1)
        tried[2] = np.clip(tried[2], np.log(0.2), np.log(8))
        new = _residuals(points, _link(tried))
        if new @ new < wrong @ wrong:
            small = np.abs(tried - logs).max() < 1e-9
            logs, wrong, damping = tried, new, damping / 3
            if small:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return _link(logs)
