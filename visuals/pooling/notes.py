"""Sentences about the figures of the pooling ladders, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, PoolShape
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title

FIRST = {
    "max-pool": "window", "max-pool-backward": "scatter", "avg-pool": "window", "avg-pool-backward": "scatter",
    "global-avg-pool": "plane", "global-avg-pool-backward": "pixel",
}  # fmt: skip  # the plainest rung of each ladder


# -- cost ------------------------------------------------------------------------------------------------
def links(s: PoolShape) -> int:
    """Returns how many pixels all windows hold, padding left out: the loads of one thread per window."""

    def inside(windows: int, taps: int, stride: int, pad: int, dilation: int, extent: int) -> int:
        start = np.arange(windows)[:, None] * stride - pad
        at = start + np.arange(taps) * dilation
        return int(((at >= 0) & (at < extent)).sum())

    rows = inside(s.P, s.R, s.u, s.pad_h, s.dilation_h, s.H)
    return s.planes * rows * inside(s.Q, s.S, s.v, s.pad_w, s.dilation_w, s.W)


def forward_cost(s: MaxPoolShape | AvgPoolShape) -> str:
    """Returns the minimum traffic, and how often each pixel is loaded by one thread per window."""
    fields = {"bytes": units.bytes_(s.bytes), "times": units.ratio(links(s) / s.pixels)}
    if isinstance(s, MaxPoolShape):
        least = tr("At least {bytes} are moved: x is read once, y and the indices are written once.", **fields)
    else:
        least = tr("At least {bytes} are moved: x is read once, y is written once.", **fields)
    if s.dilation_h * (s.R - 1) < s.u and s.dilation_w * (s.S - 1) < s.v:
        return " ".join((least, tr("The windows do not overlap, so no kernel loads a pixel twice.")))
    return " ".join(
        (
            least,
            tr("One thread per window loads each pixel {times} times on average. Caches answer the repeats.", **fields),
            tr("One thread per patch loads a pixel about once."),
        )
    )


def backward_cost(s: MaxPoolShape | AvgPoolShape) -> str:
    """Returns the minimum traffic, and what a scatter moves besides: the zeros, and dx read and written by atomics."""
    fields = {
        "bytes": units.bytes_(s.bytes),
        "scatter": units.bytes_(s.bytes + 8 * s.pixels),
        "atomics": units.whole(s.outputs if isinstance(s, MaxPoolShape) else links(s)),
    }
    if isinstance(s, MaxPoolShape):
        least = tr("At least {bytes} are moved: dy and the indices are read once, dx is written once.", **fields)
    else:
        least = tr("At least {bytes} are moved: dy is read once, dx is written once.", **fields)
    return " ".join(
        (
            least,
            tr("A scatter needs {atomics} atomic additions.", **fields),
            tr("It writes zeros first, then reads and writes dx again: up to {scatter}.", **fields),
            tr("A gather needs no atomics and no zeros."),
        )
    )


def global_cost(s: GlobalShape) -> str:
    """Returns the minimum traffic, of which nearly all is x."""
    fields = {"bytes": units.bytes_(s.bytes), "x": units.bytes_(4 * s.pixels), "planes": units.whole(s.planes)}
    return tr("At least {bytes} are moved. x has {x}, and one float is written for each of {planes} planes.", **fields)


def global_backward_cost(s: GlobalShape) -> str:
    fields = {"bytes": units.bytes_(s.bytes), "dx": units.bytes_(4 * s.pixels)}
    return tr("At least {bytes} are moved. dx has {dx} and is only written.", **fields)


# -- gain ------------------------------------------------------------------------------------------------
def best_own(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row of our kernels; None if there is none."""
    return fastest(row for name, row in rows.items() if not find(name).library)


def gain_of(ladder: str):
    """Returns a function of rows by rung name, of one device: the speed-up over the plainest kernel, the speed against
    PyTorch, and the share of a copy's speed. It returns "" if there is nothing to compare."""
    plainest, library = f"{ladder}/{FIRST[ladder]}", f"{ladder}/library"

    def gain(rows: Mapping[str, Row]) -> str:
        best, plain = best_own(rows), rows.get(plainest)
        if not best or not plain:
            return ""
        sentences = [_against_plainest(best, plain)]
        if library in rows:
            sentences.append(_against_library(best, rows[library]))
        return " ".join([*sentences, *_useful(ladder, best)])

    return gain


def _against_plainest(best: Row, plain: Row) -> str:
    fields = {"name": title(best), "plain": title(plain)}
    if best is plain:
        return tr("“{plain}” is the fastest of our kernels at this size.", **fields)
    if within_spread(best, plain):
        return tr("“{name}” and “{plain}” take the same time: their spreads overlap.", **fields)
    ratio = units.ratio(plain["median_ms"] / best["median_ms"])
    return tr("“{name}” is {ratio}× as fast as “{plain}”.", ratio=ratio, **fields)


def _against_library(best: Row, library: Row) -> str:
    speed = library["median_ms"] / best["median_ms"]
    fields = {"name": title(best), "library": title(library), "ratio": units.ratio(speed), "share": units.share(speed)}
    if fields["ratio"] == "1":
        return tr("“{name}” is as fast as {library}.", **fields)
    if speed > 1:
        return tr("“{name}” is {ratio}× as fast as {library}.", **fields)
    return tr("“{name}” reaches {share} of the speed of {library}.", **fields)


def _useful(ladder: str, best: Row) -> list[str]:
    """Returns a sentence on the time in which a copy moves as many bytes; none if launch overhead is longer than that."""
    ceilings = best.get("ceilings") or {}
    s = LADDERS[ladder].shape(**best["shape"])
    ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3 if ceilings else 0
    if ms * 1e3 <= ceilings.get("launch_us", 0):
        return []
    fields = {
        "bytes": units.bytes_(s.bytes),
        "time": units.time_(ms),
        "share": units.share(ms / best["median_ms"]),
        "name": title(best),
    }
    return [tr("A copy of {bytes} takes {time}. This is {share} of the time of “{name}”.", **fields)]


@cached(16)
def _examples(ladder: str):
    """Returns (preset, text) of the largest and the smallest speed-up over the plainest kernel, from the cold recordings at
    the default tile sizes."""
    plainest = f"{ladder}/{FIRST[ladder]}"

    def gained(s) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS[ladder].rungs])
        best = best_own(rows)
        return rows[plainest]["median_ms"] / best["median_ms"] if best and plainest in rows else None

    return extremes(gained, presets=LADDERS[ladder].presets)


_LABEL = mark("Recorded speed-up of our fastest kernel over the plainest:")
_COSTS = {
    "max-pool": forward_cost,
    "max-pool-backward": backward_cost,
    "avg-pool": forward_cost,
    "avg-pool-backward": backward_cost,
    "global-avg-pool": global_cost,
    "global-avg-pool-backward": global_backward_cost,
}
POOLING: dict[str, LadderNotes] = {
    ladder: LadderNotes(cost, gain_of(ladder), lambda ladder=ladder: _examples(ladder), _LABEL)
    for ladder, cost in _COSTS.items()
}
