"""Where a GPU becomes faster than a processor, and how much faster a program can become at all.

Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", 1967.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Crossing:
    """The size from which the second of two times is the shorter one, between two measured sizes; `first`: it is so from the
    smallest measured size on."""

    size: float
    first: bool = False


def crossing(sizes: Sequence[float], before: Sequence[float], after: Sequence[float]) -> Crossing | None:
    """Returns the size from which `after` stays shorter than `before` up to the largest size; None if it is not shorter there.

    Between two sizes, the logarithm of the ratio is taken as linear in the logarithm of the size.
    """
    ratios = [math.log(b / a) for a, b in zip(before, after, strict=True)]  # below 0: `after` is shorter
    if not ratios or ratios[-1] >= 0:
        return None
    last = max((n for n, ratio in enumerate(ratios) if ratio >= 0), default=-1)
    if last < 0:
        return Crossing(sizes[0], first=True)
    low, high = math.log(sizes[last]), math.log(sizes[last + 1])
    part = ratios[last] / (ratios[last] - ratios[last + 1])
    return Crossing(math.exp(low + part * (high - low)))


def speedup(share: float, factor: float) -> float:
    """Returns how many times as fast a program becomes if `share` of its time becomes `factor` times as fast."""
    if not 0 <= share <= 1 or factor <= 0:
        raise ValueError(f"a share is between 0 and 1 and a factor above 0, got {share} and {factor}")
    return 1 / ((1 - share) + share / factor)


def limit(share: float) -> float:
    """Returns the speedup for a factor without bound: what is left sets it."""
    return math.inf if share >= 1 else speedup(share, math.inf)


def repeats_to_win(cpu_ms: float, kernel_ms: float, once_ms: float) -> int | None:
    """Returns how many times a work must run on data that was copied once (`once_ms` for the copies and the call) until the GPU
    is faster; None if its kernel is not."""
    if kernel_ms >= cpu_ms:
        return None
    return max(1, math.floor(once_ms / (cpu_ms - kernel_ms)) + 1)
