"""The recorded times of collectives: kernels/records/collectives.json, a list of runs that benchmarks.collectives writes.

Where nothing was recorded, the cost model uses two times of NCCL that were measured on two H200s (SEEN).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import kernels
from kernels.collectives import cost
from kernels.collectives.cost import Fit, Link, Point, Regimes
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, RING, TREE
from kernels.model.row import Row

FILE = Path(kernels.__file__).parent / "records" / "collectives.json"
NCCL = "nccl"
LAUNCH = "launch"
MIN_POINTS = 4  # of a fit with three numbers
SEEN_DEVICE = "2 × NVIDIA H200"
# Bytes of each rank and seconds of NCCL's all-reduce on two H200s: 26 us, and a bus bandwidth of 325 GB/s.
SEEN: Sequence[tuple[int, float]] = ((64 << 10, 26e-6), (1 << 30, (1 << 30) / 325e9))


@cache
def runs() -> tuple[Row, ...]:
    """Returns all runs; none if nothing was recorded."""
    return tuple(json.loads(FILE.read_text(encoding="utf-8"))) if FILE.exists() else ()


def machines(ranks: int) -> list[Row]:
    """Returns the runs over so many GPUs, the newest first. Each is of one machine."""
    later_first = [run for run in reversed(runs()) if any(row["ranks"] == ranks for row in run["rows"])]
    return sorted(later_first, key=lambda run: run["date"], reverse=True)


def rows(kind: str, algorithm: str, ranks: int, launch: str = "", device: str = "") -> list[Row]:
    """Returns the rows of a collective by length, with device and date; by default the faster way to launch it. They are of
    one machine: the newest one, or the newest with these GPUs (`device`)."""
    found: dict[int, Row] = {}
    run = next((run for run in machines(ranks) if device in ("", run["device"])), {"rows": ()})
    for row in run["rows"]:
        same = (row["kind"], row["algorithm"], row["ranks"]) == (kind, algorithm, ranks)
        if same and launch in ("", row["launch"]):
            other = found.get(row["bytes"])
            if other is None or row["median_ms"] < other["median_ms"]:
                found[row["bytes"]] = row | {name: run[name] for name in ("device", "date")}
    return [found[nbytes] for nbytes in sorted(found)]


def recorded_ranks() -> tuple[int, ...]:
    """Returns the numbers of GPUs that were recorded."""
    return tuple(sorted({row["ranks"] for run in runs() for row in run["rows"] if row["kind"] == ALL_REDUCE}))


def nearest(kind: str, algorithm: str, ranks: int, nbytes: int) -> Row | None:
    """Returns the row of exactly this length, else None."""
    return next((row for row in rows(kind, algorithm, ranks) if row["bytes"] == nbytes), None)


def traffic(kind: str, algorithm: str, ranks: int, nbytes: float) -> cost.Traffic:
    """Returns the traffic of a collective; NCCL's is that of its ring, or of what reads all peers."""
    if algorithm == NCCL:
        algorithm = RING if RING in ALGORITHMS[kind] else ALGORITHMS[kind][0]
    return cost.traffic(kind, algorithm, ranks, nbytes)


def points(kind: str, algorithm: str, ranks: int) -> list[Point]:
    """Returns the recorded times of a collective as points of a fit."""
    return [
        Point(traffic(kind, algorithm, ranks, row["bytes"]), row["median_ms"] / 1e3)
        for row in rows(kind, algorithm, ranks)
    ]


@cache
def fitted(kind: str, algorithm: str, ranks: int) -> Fit | None:
    """Returns the link that predicts the recorded times of a collective best; None if too few were recorded."""
    found = points(kind, algorithm, ranks)
    return cost.fit(found) if len(found) >= MIN_POINTS else None


@cache
def between(kind: str, algorithm: str, ranks: int) -> float | None:
    """Returns the largest error at every second recorded length, predicted from a fit to the others; None if too few were
    recorded."""
    found = points(kind, algorithm, ranks)
    if len(found) < 2 * MIN_POINTS:
        return None
    link = cost.fit(found[::2]).link
    return max(abs(cost.seconds(p.traffic, link) / p.seconds - 1) for p in found[1::2])


@cache
def seen() -> Fit:
    """Returns the link of the two times in SEEN."""
    found = [Point(traffic(ALL_REDUCE, NCCL, 2, nbytes), seconds) for nbytes, seconds in SEEN]
    return cost.fit(found, overlap=False)


def link(kind: str, algorithm: str, ranks: int) -> tuple[Link | Regimes, str]:
    """Returns the link that predicts a collective, and the device that it was fitted on: that of its own recorded times,
    else of the all-reduce of the same algorithm over the most GPUs, else of NCCL's, else of SEEN."""
    tried = [(kind, algorithm, ranks)]
    for other in (algorithm, RING if algorithm == TREE else NCCL):
        tried += [(ALL_REDUCE, other, count) for count in sorted(recorded_ranks(), reverse=True)]
    for name in tried:
        if found := fitted(*name):
            return found.link, f"{name[2]} × {rows(*name)[0]['device']}"
    return seen().link, SEEN_DEVICE


def predicted_ms(kind: str, algorithm: str, ranks: int, nbytes: float) -> float:
    """Returns the predicted ms of a collective with `nbytes` on each rank."""
    return 1e3 * cost.seconds(traffic(kind, algorithm, ranks, nbytes), link(kind, algorithm, ranks)[0])


def reset() -> None:
    """Forget what was read: for a file that has changed."""
    for cached in (runs, fitted, between, seen):
        cached.cache_clear()
