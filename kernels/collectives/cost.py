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


@dataclass(frozen=True)
class Regimes:
    """A port with two ways to move bytes, as a library has that changes its protocol: rounds below `edge` bytes take the
    time of `short`, others that of `long`."""

    short: Link
    long: Link
    edge: float

    @property
    def start(self) -> float:
        return self.short.start

    @property
    def latency(self) -> float:
        return self.short.latency

    @property
    def bandwidth(self) -> float:
        return self.long.bandwidth

    def round_seconds(self, nbytes: float) -> float:
        """Returns the seconds of a round whose busiest port moves so many bytes."""
        return (self.short if nbytes < self.edge else self.long).round_seconds(nbytes)


Traffic = tuple[tuple[int, float], ...]  # (rounds, bytes of the busiest port in each)


def seconds(what: Schedule | Traffic, link: Link | Regimes) -> float:
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
    """A link, or two, fitted to points. errors: predicted over measured, minus 1, of each point."""

    link: Link | Regimes
    errors: tuple[float, ...]

    @property
    def worst(self) -> float:
        """Returns the largest error, without its sign."""
        return max(map(abs, self.errors), default=0.0)


GOAL = 0.15  # of a measured time: how far a prediction may be off
REGIME_POINTS = 5  # of each of two regimes: a link has three numbers
OVERLAPS = (0.5, 1.0, 2.0)  # where the search begins
OVERLAP_RANGE = (0.2, 8.0)
STEPS, EPS, SMALL_STEP, MAX_DAMPING = 100, 1e-6, 1e-6, 1e6


def fit(points: Sequence[Point], overlap: bool = True) -> Fit:
    """Returns the link that predicts the points best: least squares of the logarithm of time, so that 1 % of a short time
    counts as much as 1 % of a long one. If it is off by more than GOAL somewhere and the points are many, short and long
    rounds get a link each (`Regimes`).

    Without `overlap`, latency and transfer add up. ValueError if fewer than two points are there.
    """
    measured = sorted((p for p in points if p.traffic and p.seconds > 0), key=_longest)
    if len(measured) < 2:
        raise ValueError("a fit needs two points at least")
    link: Link | Regimes = _best(measured, OVERLAPS if overlap else ())
    if overlap and len(measured) >= 2 * REGIME_POINTS and _worst(measured, link) > GOAL:
        link = _two_regimes(measured)
    errors = tuple(seconds(p.traffic, link) / p.seconds - 1 if p.traffic else 0.0 for p in points)
    return Fit(link, errors)


def _longest(point: Point) -> float:
    """Returns the bytes of a point's longest round."""
    return max(nbytes for _, nbytes in point.traffic)


def _worst(points: Sequence[Point], link: Link | Regimes) -> float:
    return max(abs(seconds(p.traffic, link) / p.seconds - 1) for p in points)


def _two_regimes(points: Sequence[Point]) -> Regimes:
    """Returns two links and the length between them, with the least squares of all such pairs."""
    best, least = None, np.inf
    for cut in range(REGIME_POINTS, len(points) - REGIME_POINTS + 1):
        parts = points[:cut], points[cut:]
        found = _best(parts[0], (1.0,)), _best(parts[1], (1.0,))
        squares = sum(
            float(np.sum(_Points(part).residuals(_logs(link)) ** 2)) for part, link in zip(parts, found, strict=True)
        )
        edge = float(np.sqrt(_longest(points[cut - 1]) * _longest(points[cut])))
        if squares < least and _longest(points[cut - 1]) < _longest(points[cut]):
            best, least = Regimes(*found, edge), squares
    assert best is not None
    return best


class _Points:
    """Points as arrays: rounds, bytes and point of each part of the traffic."""

    def __init__(self, points: Sequence[Point]):
        parts = [(n, count, nbytes) for n, p in enumerate(points) for count, nbytes in p.traffic]
        self._of, self.rounds, self.bytes = (np.array(column) for column in zip(*parts, strict=True))
        self.seconds = np.array([p.seconds for p in points])

    def residuals(self, logs: np.ndarray) -> np.ndarray:
        """Returns the logarithm of predicted over measured time of each point."""
        latency, bandwidth, p = np.exp(logs)
        transfer = self.bytes / bandwidth
        longer = np.maximum(latency, transfer)
        each = longer * ((latency / longer) ** p + (transfer / longer) ** p) ** (1 / p)
        return np.log(np.bincount(self._of, self.rounds * each) / self.seconds)

    def first(self, overlap: float) -> np.ndarray:
        """Returns the logarithms of latency, bandwidth and overlap that the shortest and the fastest point suggest."""
        latency = np.min(self.seconds / np.bincount(self._of, self.rounds))
        bandwidth = np.max(np.bincount(self._of, self.rounds * self.bytes) / self.seconds)
        return np.log([latency, bandwidth, overlap])


def _logs(link: Link) -> np.ndarray:
    return np.log([link.latency, link.bandwidth, link.overlap])


def _best(points: Sequence[Point], overlaps: Sequence[float]) -> Link:
    """Returns the best link of the descents that begin at these overlaps; without any the overlap stays 1."""
    given = _Points(points)
    found = [_descend(given, start, bool(overlaps)) for start in overlaps or (1.0,)]
    logs = min(found, key=lambda logs: float(np.sum(given.residuals(logs) ** 2)))
    latency, bandwidth, p = (float(v) for v in np.exp(logs))
    return Link(latency, bandwidth, overlap=p)


def _descend(points: _Points, overlap: float, free: bool) -> np.ndarray:
    """Returns the logarithms at the end of a descent by Levenberg's and Marquardt's method. `free`: the overlap may change."""
    logs, damping, count = points.first(overlap), 1e-2, 3 if free else 2
    wrong = points.residuals(logs)
    for _ in range(STEPS):
        slopes = np.empty((len(wrong), count))
        for n in range(count):
            moved = logs.copy()
            moved[n] += EPS
            slopes[:, n] = (points.residuals(moved) - wrong) / EPS
        normal = slopes.T @ slopes
        step = np.zeros(3)
        step[:count] = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + EPS), -slopes.T @ wrong)
        tried = logs + np.clip(step, -1, 1)
        tried[2] = np.clip(tried[2], *np.log(OVERLAP_RANGE))
        new = points.residuals(tried)
        if new @ new < wrong @ wrong:
            small = np.abs(tried - logs).max() < SMALL_STEP
            logs, wrong, damping = tried, new, damping / 3
            if small:
                break
        else:
            damping *= 4
            if damping > MAX_DAMPING:
                break
    return logs
