"""Rows of logits to follow: made here at any length, or the reader's own numbers."""

from __future__ import annotations

import re

import numpy as np

from kernels.model.shape import FLOAT_MAX

SMALL, LARGE, ONE_HOT, EQUAL, MASKED, OWN = (
    "small", "large", "one hot", "all equal", "-inf mask", "own numbers",
)  # fmt: skip
LOGITS = {  # by name: what they are
    SMALL: "within ±5: every rung gets them right",
    LARGE: "up to some 200: beyond 88.72 exp overflows FP32",
    ONE_HOT: "all 0 but one of 12, which takes nearly all",
    EQUAL: "all 2.5: each result is 1 / N",
    MASKED: "the last third −∞, as attention hides what comes later",
    OWN: "numbers of your own",
}
MOST_OWN = 64
USUAL_OWN = "1 2 100 -inf 4.5"
EXAMPLE = f"e.g. {USUAL_OWN}"


class LogitsError(ValueError):
    """Numbers that break a rule; the message names it."""


def row(name: str, n: int, seed: int = 0) -> np.ndarray:
    """float32 [n]: the logits `name` of LOGITS, all but OWN."""
    normal = np.random.default_rng(seed).standard_normal(n)
    if name == SMALL:
        x = np.round(np.clip(1.6 * normal, -5, 5), 1)
    elif name == LARGE:
        x = np.round(75 * normal)
        x[n // 2] = 120
    elif name == ONE_HOT:
        x = np.where(np.arange(n) == n // 3, 12.0, 0.0)
    elif name == EQUAL:
        x = np.full(n, 2.5)
    elif name == MASKED:
        x = np.where(np.arange(n) >= n - n // 3, -np.inf, row(SMALL, n, seed))
    else:
        raise LogitsError(f"the logits must be one of {', '.join(LOGITS)}; got {name[:24]!r}")
    return x.astype(np.float32)


def parse(text: str) -> np.ndarray:
    """float32 [n] of "1 2.5, -3e2 inf": numbers of FP32, infinities and NaN among them, parted by spaces, commas,
    semicolons or lines. LogitsError names the rule that is broken."""
    parts = re.split(r"[\s,;]+", text.strip().replace("−", "-").replace("∞", "inf"))
    parts = [p for p in parts if p]
    if not 1 <= len(parts) <= MOST_OWN:
        raise LogitsError(f"a row of your own has 1 to {MOST_OWN} numbers, got {len(parts)}")
    return np.array([_number(p) for p in parts], np.float32)


def _number(text: str) -> float:
    try:
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        shown = "".join(c if c.isprintable() else " " for c in text[:16])
        raise LogitsError(f"“{shown}” is no number; inf, -inf and nan are taken too")
    if abs(value) > FLOAT_MAX and "inf" not in text.lower():
        raise LogitsError(f"a number must fit FP32, at most 3.4e38 either side of 0; got “{text[:16]}”")
    return value
