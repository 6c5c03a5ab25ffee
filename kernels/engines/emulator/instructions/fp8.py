"""8-bit floats, e4m3 and e5m2: conversions of packed pairs, rounded to nearest even.

Source: Micikevicius et al., arXiv 2209.05433. A table of all 256 values needs no type of NumPy for them.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.operations.dtypes import packed

NAN = np.uint8(0x7F)


def _finite(exponent_bits: int, mantissa_bits: int, count: int) -> np.ndarray:
    """Returns the finite values from 0 up, in the order of their bits: float64 [count]."""
    bits = np.arange(count, dtype=np.int64)
    exponent, mantissa = bits >> mantissa_bits, bits & (1 << mantissa_bits) - 1
    whole = np.where(exponent == 0, 0, 1 << mantissa_bits) + mantissa
    bias = (1 << exponent_bits - 1) - 1
    return np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)


# e4m3 has no infinities and one NaN for each sign; e5m2 has one infinity and three NaN.
FINITE = {"e4m3": _finite(4, 3, 0x7F), "e5m2": _finite(5, 2, 0x7C)}
PAIRS = {f"{name}x2": name for name in FINITE}


def _all(name: str) -> np.ndarray:
    rest = [np.nan] if name == "e4m3" else [np.inf, np.nan, np.nan, np.nan]
    positive = np.concatenate([FINITE[name], rest])
    return np.concatenate([positive, -positive]).astype(np.float32)


VALUES = {name: _all(name) for name in FINITE}
TIES = {name: (finite[:-1] + finite[1:]) / 2 for name, finite in FINITE.items()}


def decoded(bits: np.ndarray, name: str) -> np.ndarray:
    """Returns the float32 values of 8-bit floats (uint8)."""
    return VALUES[name][np.asarray(bits, np.uint8)]


def encoded(values: np.ndarray, name: str) -> np.ndarray:
    """Returns float32 values as 8-bit floats (uint8), clamped to the largest finite one, as .satfinite does."""
    values = np.asarray(values, np.float64)
    size = np.abs(values)
    lower = np.searchsorted(TIES[name], size)  # of two neighbours at the same distance the lower one
    tie = TIES[name][np.minimum(lower, len(TIES[name]) - 1)] == size
    bits = (lower + (tie & (lower % 2 == 1))).astype(np.uint8) | np.signbit(values).astype(np.uint8) << 7
    return np.where(np.isnan(values), NAN, bits)


def pack(high: np.ndarray, low: np.ndarray, name: str) -> np.ndarray:
    """Returns two float32 values as a pair of 8-bit floats (uint16)."""
    upper, lower = (encoded(v, name).astype(np.uint16) for v in (high, low))
    return (upper << np.uint16(8) | lower)[()]


def unpack(pair: np.ndarray, name: str) -> np.ndarray:
    """Returns a pair of 8-bit floats (uint16) as two halves in one word (uint32)."""
    low, high = (decoded(pair >> np.uint16(shift) & np.uint16(0xFF), name) for shift in (0, 8))
    return packed(low, high, "f16x2")
