"""Sums of many numbers, added one by one in a format: where they lose digits, measured against float64."""

from __future__ import annotations

from functools import cache

import numpy as np

from kernels.model import fp8_sums
from kernels.precision.formats import BF16, E4M3, FP16, FP32, Format, rounded

MAX_POWER = 14
WAYS = ("fp32", "fp16", "bf16", "parts")  # of adding; parts: FP16 sums of PART terms, added in FP32
PART = 64
FORMATS = {"fp32": FP32, "fp16": FP16, "bf16": BF16}


def terms(seed: int = 0) -> np.ndarray:
    """Returns 2^MAX_POWER numbers in 0 .. 1 that FP16 and BF16 store exactly: multiples of 1/128, float64."""
    return np.random.default_rng(seed).integers(0, 129, 2**MAX_POWER) / 128


def running(x: np.ndarray, f: Format) -> np.ndarray:
    """Returns the sum after each term, float64 [n]: the sum is rounded to the format after each addition."""
    if f is FP16:
        with np.errstate(over="ignore"):
            return np.add.accumulate(x.astype(np.float16), dtype=np.float16).astype(np.float64)
    if f is FP32:
        return np.add.accumulate(x.astype(np.float32), dtype=np.float32).astype(np.float64)
    total, found = 0.0, np.zeros(len(x))
    for n, term in enumerate(x):
        found[n] = total = float(rounded(total + term, f))
    return found


def in_parts(x: np.ndarray) -> np.ndarray:
    """Returns the sum after each term where parts of PART terms are added in FP16 and the parts in FP32."""
    found, total = np.zeros(len(x)), np.float32(0)
    for first in range(0, len(x), PART):
        part = running(x[first : first + PART], FP16).astype(np.float32)
        found[first : first + PART] = total + part
        total = total + part[-1]
    return found


@cache
def measured(seed: int = 0) -> dict[str, np.ndarray]:
    """Returns the sums of the first 1, 2, 4 ... 2^MAX_POWER terms: exact, and by each way of adding."""
    x = terms(seed)
    ends = 2 ** np.arange(MAX_POWER + 1) - 1
    found = {name: running(x, f)[ends] for name, f in FORMATS.items()}
    return {"exact": np.cumsum(x)[ends], **found, "parts": in_parts(x)[ends]}


# -- products of FP8 -----------------------------------------------------------------------------------------
FP8_WAYS = ("fp8", "promoted")  # tensor cores alone; their sums of PROMOTED products, added in FP32
PROMOTED = 128


def fp8_factors(seed: int = 0) -> np.ndarray:
    """Returns 2^MAX_POWER pairs of e4m3 numbers in 0 .. 1, float64 [2, n]."""
    factors = np.random.default_rng(seed).random((2, 2**MAX_POWER))
    return rounded(factors.astype(np.float32), E4M3)


@cache
def fp8_measured(seed: int = 0) -> dict[str, np.ndarray]:
    """Returns the sums of the first 1, 2, 4 ... 2^MAX_POWER products: exact, and by each of FP8_WAYS."""
    a, b = fp8_factors(seed)
    counts = 2 ** np.arange(MAX_POWER + 1)

    def added(depth: int) -> np.ndarray:
        found = [fp8_sums.product(a[None, :n], b[None, :n], depth)[0, 0] for n in counts]
        return np.array(found, np.float64)

    return {"exact": np.cumsum(a * b)[counts - 1], "fp8": added(0), "promoted": added(PROMOTED)}
