"""Numbers of a request: texts of ASCII digits (Python takes "²" and "１" for digits too), or Python values."""

from __future__ import annotations

import math
import operator
import re
from typing import Any

from kernels.model.program import RuleError

_WHOLE = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)")
_REAL = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|nan)")
MAX_DIGITS = 400  # more than any type holds


def whole(text: str) -> int | None:
    """Returns the whole number in a text, decimal or 0x; None for any other text."""
    text = text.strip()
    if len(text) > MAX_DIGITS or not _WHOLE.fullmatch(text):
        return None
    return int(text, 16 if "x" in text.lower() else 10)


def count(text: str) -> int | None:
    """Returns the positive whole number in a text; None for any other text."""
    number = whole(text)
    return number if number and number > 0 else None


def real(text: str) -> float | None:
    """Returns the number in a text, also "inf" and "nan"; None for any other text and for numbers beyond a double."""
    text = text.strip()
    if len(text) > MAX_DIGITS or not _REAL.fullmatch(text):
        return None
    number = float(text)
    return None if math.isinf(number) and "inf" not in text else number


def check_whole(name: str, value: Any) -> None:
    """Check that a value is a whole number of 0 or more. RuleError if not."""
    try:
        if isinstance(value, bool) or operator.index(value) < 0:
            raise TypeError
    except TypeError:
        raise RuleError(f"{name} must be a whole number, 0 or more, got {value!r}") from None


def check_positive(name: str, value: object) -> None:
    """Check that a value is a finite number above 0. RuleError if not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise RuleError(f"{name} must be a number above 0, got {value!r}")
