"""Numbers of a request: spelled in ASCII digits ("²" and "１" are digits to Python too), or given from Python."""

from __future__ import annotations

import math
import operator
import re
from typing import Any

from kernels.model.program import RuleError

_WHOLE = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)")
_REAL = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|nan)")
MOST_DIGITS = 400  # more than any type holds


def whole(text: str) -> int | None:
    """The whole number that a text spells, decimal or 0x; None for any other text."""
    text = text.strip()
    if len(text) > MOST_DIGITS or not _WHOLE.fullmatch(text):
        return None
    return int(text, 16 if "x" in text.lower() else 10)


def count(text: str) -> int | None:
    """The positive whole number that a text spells; None for any other text."""
    number = whole(text)
    return number if number and number > 0 else None


def real(text: str) -> float | None:
    """The number that a text spells, "inf" and "nan" among them; None for any other text and for what no double holds."""
    text = text.strip()
    if len(text) > MOST_DIGITS or not _REAL.fullmatch(text):
        return None
    number = float(text)
    return None if math.isinf(number) and "inf" not in text else number


def check_whole(name: str, value: Any) -> None:
    """RuleError if a value is not a whole number of 0 or more."""
    try:
        if isinstance(value, bool) or operator.index(value) < 0:
            raise TypeError
    except TypeError:
        raise RuleError(f"{name} must be a whole number, 0 or more, got {value!r}") from None


def check_positive(name: str, value: Any) -> None:
    """RuleError if a value is not a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise RuleError(f"{name} must be a number above 0, got {value!r}")
