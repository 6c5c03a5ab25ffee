"""The error function and GELU's two forms in NumPy, which has no erf: a table of erf and its Taylor series between the
entries."""

from __future__ import annotations

import math

import numpy as np

STEPS, LAST = 128, 6  # entries of the table for each unit; erf is 1 in float64 from LAST on
SCALE, CUBE = math.sqrt(2 / math.pi), 0.044715  # of the tanh form
FLAT = 10.0  # from here on the tanh form's slope is 0 or 1 in float32
IN_CACHE = 2**15  # numbers at a time that stay in a cache


def _series() -> np.ndarray:
    """Returns the Taylor series of erf at each entry: float64 [terms, entries]. Its derivatives are the first one times
    Hermite polynomials."""
    at = np.arange(STEPS * LAST + 1) / STEPS
    first = 2 / math.sqrt(math.pi) * np.exp(-at * at)
    hermite = (at**0, -2 * at, 4 * at**2 - 2, 12 * at - 8 * at**3, 16 * at**4 - 48 * at**2 + 12)
    derivatives = [np.array([math.erf(z) for z in at]), *(first * each for each in hermite)]
    return np.array([each / math.factorial(n) for n, each in enumerate(derivatives)])


_SERIES = _series()


def erf(x: np.ndarray) -> np.ndarray:
    """Returns the error function in float64, within 1e-15. NaN stays NaN."""
    x = np.asarray(x)
    found = np.empty(x.shape, np.float64)
    flat, out = x.reshape(-1), found.reshape(-1)
    for first in range(0, flat.size, IN_CACHE):
        part = slice(first, first + IN_CACHE)
        out[part] = _erf(flat[part].astype(np.float64))
    return found


def _erf(x: np.ndarray) -> np.ndarray:
    z = np.minimum(np.abs(x), LAST)
    entry = np.rint(STEPS * np.nan_to_num(z)).astype(np.int64)
    z -= entry / STEPS
    total = _SERIES[-1][entry]
    for terms in _SERIES[-2::-1]:
        total *= z
        total += terms[entry]
    return np.copysign(total, x)


def share_below(x: np.ndarray, form: str) -> np.ndarray:
    """Returns the share of normal numbers below x in the type of x, by "erf" or approximated by "tanh"."""
    if form == "erf":
        return (0.5 * (1 + erf(x * math.sqrt(0.5)))).astype(x.dtype)
    return (0.5 * (1 + np.tanh(inner(x)))).astype(x.dtype)


def inner(x: np.ndarray) -> np.ndarray:
    """Returns what tanh is applied to."""
    with np.errstate(over="ignore"):  # infinity becomes 1 or -1
        return SCALE * (x + CUBE * x * x * x)


def slope(x: np.ndarray, form: str) -> np.ndarray:
    """Returns the derivative of x * share_below(x) in the type of x."""
    if form == "erf":
        with np.errstate(over="ignore"):
            density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return (share_below(x, form) + x * density).astype(x.dtype)
    at = np.clip(x, -FLAT, FLAT)
    t = np.tanh(inner(at))
    of_inner = SCALE * (1 + 3 * CUBE * at * at)
    return (0.5 * (1 + t) + 0.5 * at * (1 - t * t) * of_inner).astype(x.dtype)
