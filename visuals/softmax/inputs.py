"""Rows of logits: generated at any length, or parsed from the reader's numbers."""

from __future__ import annotations

import re

import numpy as np

from kernels.i18n import decimal, mark, tr
from kernels.model.shape import FLOAT_MAX

# Also the values of the URL's parameter.
SMALL, LARGE, ONE_HOT, EQUAL, MASKED, OWN_NUMBERS = (
    mark("small"),
    mark("large"),
    mark("one hot"),
    mark("all equal"),
    mark("-inf mask"),
    mark("own numbers"),
)
LOGITS = {  # by name: description
    SMALL: mark("numbers within ±5, right in every kernel"),
    LARGE: mark("random numbers with standard deviation 75; above 88.72, exp overflows FP32"),
    ONE_HOT: mark("zeros and one 12, whose weight is nearly 1"),
    EQUAL: mark("every number is 2.5, so each result is 1 / N"),
    MASKED: mark("the last third is −∞, as attention masks later tokens"),
    OWN_NUMBERS: mark("numbers that you type"),
}
MAX_OWN_NUMBERS = 64
DEFAULT_OWN_NUMBERS = "1 2 100 -inf 4.5"


class LogitsError(ValueError):
    """Numbers that break a rule; the message names the rule."""


def row(name: str, n: int, seed: int = 0) -> np.ndarray:
    """Returns the logits `name` of LOGITS, except OWN, float32 [n]. Raises LogitsError for another name."""
    noise = np.random.default_rng(seed).standard_normal(n)
    if name == SMALL:
        x = np.round(np.clip(1.6 * noise, -5, 5), 1)
    elif name == LARGE:
        x = np.round(75 * noise)
        x[n // 2] = 120
    elif name == ONE_HOT:
        x = np.where(np.arange(n) == n // 3, 12.0, 0.0)
    elif name == EQUAL:
        x = np.full(n, 2.5)
    elif name == MASKED:
        x = np.where(np.arange(n) >= n - n // 3, -np.inf, row(SMALL, n, seed))
    else:
        raise LogitsError(
            tr("the logits must be one of {names}; got {name}", names=", ".join(LOGITS), name=repr(name[:24]))
        )
    return x.astype(np.float32)


def parse(text: str) -> np.ndarray:
    """Parse a text such as "1 2.5, -3e2 inf" into float32 [n]: FP32 numbers, also infinities and NaN, separated by spaces,
    commas, semicolons or line breaks. Raises LogitsError with the broken rule."""
    parts = re.split(r"[\s,;]+", text.strip().replace("−", "-").replace("∞", "inf"))
    parts = [p for p in parts if p]
    if not 1 <= len(parts) <= MAX_OWN_NUMBERS:
        raise LogitsError(
            tr("your row must have 1 to {max} numbers, got {n}", max=MAX_OWN_NUMBERS, n=decimal(f"{len(parts):,}"))
        )
    return np.array([_number(p) for p in parts], np.float32)


def _number(text: str) -> float:
    try:
        value = float(text) if "_" not in text else None
    except ValueError:
        value = None
    if value is None:
        printable = "".join(c if c.isprintable() else " " for c in text[:16])
        raise LogitsError(tr("“{text}” is not a number (inf, -inf and nan are allowed)", text=printable))
    if abs(value) > FLOAT_MAX and "inf" not in text.lower():
        raise LogitsError(tr("“{text}” does not fit FP32, which ends at ±3.4·10³⁸", text=text[:16]))
    return value
