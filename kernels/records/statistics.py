"""Comparison of runs: the fastest, whether two are within each other's spread, the ratio of two medians with a confidence
interval, and a sentence about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.model.row import Row
from kernels.records.row import digest_of

LEVEL = 0.95
RESAMPLES = 4000
MIN_SAMPLES = 6  # with fewer, no interval of a median reaches 95 %
MAX_RESAMPLED = 2_000  # samples that are resampled; of a longer run, this many evenly spaced quantiles
SAME = 1.05  # a ratio of two medians up to which two times count as the same
CLEAR = 2  # a ratio of two medians from which two times differ, whatever their spreads
MIN_RUNS = 5  # with fewer, p20 and p80 are little more than the extremes

# Fields that make two times incomparable, and fields that the comparison names if they differ.
INCOMPARABLE = {"shape": "shapes", "mode": "cache modes"}
NAMED_DIFFERENCES = {"device": "device", "engine": "engine", "rung": "rung", "tiles": "tile sizes"}


def fastest(rows: Iterable[Row]) -> Row | None:
    """Returns the row with the smallest median; None if there are no rows."""
    return min(rows, key=lambda row: row["median_ms"], default=None)


def within_spread(a: Row, b: Row) -> bool:
    """Returns whether two times may be the same: their spreads (p20 to p80) overlap. Spreads of fewer than MIN_RUNS runs
    say nothing, and medians that differ by CLEAR are not the same time."""
    return _overlap(a, b) and _enough_runs(a, b) and within_ratio(a, b, CLEAR)


def within_ratio(a: Row, b: Row, most: float = SAME) -> bool:
    """Returns whether the medians of two rows differ by a factor of at most `most`."""
    low, high = sorted((a["median_ms"], b["median_ms"]))
    return high <= most * low


def same_time(a: Row, b: Row) -> bool:
    """Returns whether two times count as the same: medians within 5 %, or spreads that overlap."""
    return within_ratio(a, b) or within_spread(a, b)


def undecided(a: Row, b: Row) -> bool:
    """Returns whether too few runs leave open which of two rows is faster: spreads overlap, and medians differ by less than
    CLEAR."""
    few = _overlap(a, b) and not _enough_runs(a, b)
    return few and within_ratio(a, b, CLEAR) and not within_ratio(a, b)


def _overlap(a: Row, b: Row) -> bool:
    return a["p20_ms"] <= b["p80_ms"] and b["p20_ms"] <= a["p80_ms"]


def _enough_runs(a: Row, b: Row) -> bool:
    return all(row.get("n", MIN_RUNS) >= MIN_RUNS for row in (a, b))  # a sum of rows has no n


@dataclass(frozen=True)
class Difference:
    """Comparison of run B with run A. `ratio` is the time of A over the time of B: above 1, B is faster."""

    sentence: str
    ratio: float | None = None  # None if the two are not compared
    low: float | None = None  # None if there are too few samples for an interval
    high: float | None = None
    other_differences: tuple[str, ...] = ()  # names of other differences: the ratio includes their effect

    @property
    def certain(self) -> bool:
        """Returns whether the interval excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def interval(
    a: Sequence[float], b: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """Returns (ratio of medians a / b, low, high): a percentile bootstrap at 95 %, the same for the same samples."""
    rng = np.random.default_rng(seed)
    medians = [_medians(np.asarray(x, dtype=np.float64), resamples, rng) for x in (a, b)]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(medians[0] / medians[1], (tail, 1 - tail))
    ratio = float(np.median(a) / np.median(b))
    # If samples tie, the quantiles can miss the ratio itself by a rounding error.
    return ratio, min(float(low), ratio), max(float(high), ratio)


def _medians(x: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    if len(x) > MAX_RESAMPLED:
        x = np.quantile(x, (np.arange(MAX_RESAMPLED) + 0.5) / MAX_RESAMPLED)
    out = np.empty(resamples)
    step = max(1, 500_000 // len(x))  # bounded memory for any n
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        out[start : start + count] = np.median(x[rng.integers(0, len(x), (count, len(x)))], axis=1)
    return out


def compare(a: Row, b: Row) -> Difference:
    """Compare row B with row A, or say why they cannot be compared."""
    obstacles = [
        f"different {plural} ({_both_values(name, a, b)})"
        for name, plural in INCOMPARABLE.items()
        if a[name] != b[name]
    ]
    if obstacles:
        return Difference(f"Times not compared: {' and '.join(obstacles)}.")
    unlike = tuple(label for name, label in NAMED_DIFFERENCES.items() if a[name] != b[name])
    if (a["rung"], a["tiles"]) == (b["rung"], b["tiles"]) and digest_of(a) != digest_of(b):
        unlike += ("the kernel's code",)
    ratio = a["median_ms"] / b["median_ms"]
    n_samples = min(len(a["samples_ms"]), len(b["samples_ms"]))
    if n_samples < MIN_SAMPLES:
        faster, times = ("B", ratio) if ratio >= 1 else ("A", 1 / ratio)
        sentence = (
            f"{faster} was {times:.3g} times as fast, but {n_samples} sample{'s' * (n_samples != 1)} cannot tell a difference from noise "
            f"({MIN_SAMPLES} or more can)."
        )
        return Difference(sentence, ratio, other_differences=unlike)
    ratio, low, high = interval(a["samples_ms"], b["samples_ms"])
    return Difference(_sentence(ratio, low, high), ratio, low, high, unlike)


def _sentence(ratio: float, low: float, high: float) -> str:
    if low > 1:
        return f"B is {figure(ratio)} times as fast as A ({figure(low)} to {figure(high)})."
    if high < 1:
        return f"A is {figure(1 / ratio)} times as fast as B ({figure(1 / high)} to {figure(1 / low)})."
    return f"No difference beyond noise: A takes {figure(low)} to {figure(high)} times as long as B."


def figure(ratio: float) -> str:
    """Returns a ratio as text, with enough digits to distinguish it from 1."""
    if ratio >= 9.995:
        return f"{ratio:.3g}" if ratio < 1e5 else f"{ratio:.2e}"
    return f"{ratio:.2f}" if abs(ratio - 1) >= 0.02 or ratio == 1 else f"{ratio:.4f}"


def _both_values(name: str, a: Row, b: Row) -> str:
    if name != "shape":
        return f"{a[name]} and {b[name]}"
    names = [n for n in dict.fromkeys((*a[name], *b[name])) if a[name].get(n) != b[name].get(n)]
    return ", ".join(f"{n} {a[name].get(n, 'none')} and {b[name].get(n, 'none')}" for n in names)
