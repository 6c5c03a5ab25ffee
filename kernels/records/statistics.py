"""Is the difference of two runs more than noise? The ratio of their medians with an interval, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.records.row import digest_of

LEVEL = 0.95
RESAMPLES = 4000
LEAST = 6  # samples: with fewer, no interval of a median reaches 95 %
MOST_DRAWN = 2_000  # samples of a run that are resampled; of more, as many evenly through the sorted
Row = Mapping[str, Any]

# What makes two times incomparable, and what makes them comparable but of different things.
BREAKS = {"shape": "shapes", "mode": "cache modes"}
QUALIFIES = {"device": "device", "engine": "engine", "rung": "rung", "tiles": "tile sizes"}


@dataclass(frozen=True)
class Difference:
    """How run B stands to run A. `ratio` is the time of A over the time of B: above 1, B is faster."""

    words: str
    ratio: float | None = None  # None where the two are not compared
    low: float | None = None  # None where there are too few samples for an interval
    high: float | None = None
    unlike: tuple[str, ...] = ()  # what else differs, in words: the ratio is of this as well

    @property
    def certain(self) -> bool:
        """Whether the interval leaves 1 out."""
        return self.low is not None and not self.low <= 1 <= self.high


def interval(
    a: Sequence[float], b: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """(ratio of medians a / b, low, high): a percentile bootstrap at 95 %, the same for the same samples."""
    rng = np.random.default_rng(seed)
    drawn = [_medians(np.asarray(x, dtype=np.float64), resamples, rng) for x in (a, b)]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn[0] / drawn[1], (tail, 1 - tail))
    ratio = float(np.median(a) / np.median(b))
    # Between samples that tie, the quantiles can miss the ratio itself by a rounding.
    return ratio, min(float(low), ratio), max(float(high), ratio)


def _medians(x: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    if len(x) > MOST_DRAWN:
        x = np.quantile(x, (np.arange(MOST_DRAWN) + 0.5) / MOST_DRAWN)
    out = np.empty(resamples)
    step = max(1, 500_000 // len(x))  # bounded memory for any n
    for at in range(0, resamples, step):
        count = min(step, resamples - at)
        out[at : at + count] = np.median(x[rng.integers(0, len(x), (count, len(x)))], axis=1)
    return out


def compare(a: Row, b: Row) -> Difference:
    """Row B beside row A, where they can be compared; else what keeps them apart."""
    apart = [
        f"different {plural} ({_both(name, a, b)})" for name, plural in BREAKS.items() if a[name] != b[name]
    ]
    if apart:
        return Difference(f"Times not compared: {' and '.join(apart)}.")
    unlike = tuple(words for name, words in QUALIFIES.items() if a[name] != b[name])
    if (a["rung"], a["tiles"]) == (b["rung"], b["tiles"]) and digest_of(a) != digest_of(b):
        unlike += ("the kernel's code",)
    ratio = a["median_ms"] / b["median_ms"]
    few = min(len(a["samples_ms"]), len(b["samples_ms"]))
    if few < LEAST:
        faster, times = ("B", ratio) if ratio >= 1 else ("A", 1 / ratio)
        words = (
            f"{faster} was {times:.3g} times as fast, but {few} sample{'s' * (few != 1)} cannot tell a difference from noise "
            f"({LEAST} or more can)."
        )
        return Difference(words, ratio, unlike=unlike)
    ratio, low, high = interval(a["samples_ms"], b["samples_ms"])
    return Difference(_words(ratio, low, high), ratio, low, high, unlike)


def _words(ratio: float, low: float, high: float) -> str:
    if low > 1:
        return f"B is {figure(ratio)} times as fast as A ({figure(low)} to {figure(high)})."
    if high < 1:
        return f"A is {figure(1 / ratio)} times as fast as B ({figure(1 / high)} to {figure(1 / low)})."
    return f"No difference beyond noise: A takes {figure(low)} to {figure(high)} times as long as B."


def figure(ratio: float) -> str:
    """Enough digits that a ratio near 1 is told from 1."""
    if ratio >= 9.995:
        return f"{ratio:.3g}" if ratio < 1e5 else f"{ratio:.2e}"
    return f"{ratio:.2f}" if abs(ratio - 1) >= 0.02 or ratio == 1 else f"{ratio:.4f}"


def _both(name: str, a: Row, b: Row) -> str:
    if name != "shape":
        return f"{a[name]} and {b[name]}"
    names = [n for n in dict.fromkeys((*a[name], *b[name])) if a[name].get(n) != b[name].get(n)]
    return ", ".join(f"{n} {a[name].get(n, 'none')} and {b[name].get(n, 'none')}" for n in names)
