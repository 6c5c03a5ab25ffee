"""Sums of FP8 products (e4m3, e5m2) as Hopper's tensor cores add them: with fewer bits than FP32.

An instruction adds 32 products to a sum. They are aligned with the largest of the 33, cut off after FRACTION bits, and
added. The sum is cut off again (arXiv 2412.19437, section 3.3.2).
"""

from __future__ import annotations

import numpy as np

DEPTH = 32  # products that one wgmma adds to a sum
FRACTION = 13  # bits after the first that a sum keeps
_ZERO = -1000  # exponent of 0, below that of any product


def exponents(x: np.ndarray) -> np.ndarray:
    """Returns floor(log2 |x|) of float64 numbers as integers, far below all others of 0."""
    return np.where(x == 0, _ZERO, np.frexp(x)[1] - 1)


def added(sums: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Returns sums [...] plus products [..., n], n <= DEPTH, all float64, as one instruction adds them."""
    largest = np.maximum(exponents(products).max(axis=-1), exponents(sums))
    unit = np.ldexp(1.0, np.maximum(largest, -300) - FRACTION)
    whole = np.trunc(products / unit[..., None]).sum(axis=-1) + np.trunc(sums / unit)
    return cut(whole * unit)


def cut(sums: np.ndarray) -> np.ndarray:
    """Returns float64 numbers with FRACTION bits after the first; the others become 0."""
    unit = np.ldexp(1.0, np.maximum(exponents(sums), -300) - FRACTION)
    return np.trunc(sums / unit) * unit
