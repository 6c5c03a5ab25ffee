"""8-bit floats, e4m3 and e5m2: conversions of packed pairs, rounded to nearest even."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from kernels.engines.emulator.operations.dtypes import packed

DTYPES = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
PAIRS = {f"{name}x2": name for name in DTYPES}


def decoded(bits: np.ndarray, name: str) -> np.ndarray:
    """Returns the float32 values of 8-bit floats (uint8)."""
    return np.asarray(bits, np.uint8).view(DTYPES[name]).astype(np.float32)


def encoded(values: np.ndarray, name: str) -> np.ndarray:
    """Returns float32 values as 8-bit floats (uint8), clamped to the largest finite one, as .satfinite does."""
    max_value = np.float32(ml_dtypes.finfo(DTYPES[name]).max)
    bits = np.clip(values, -max_value, max_value).astype(DTYPES[name]).view(np.uint8)
    return np.where(np.isnan(values), np.uint8(0x7F), bits)


def pack(high: np.ndarray, low: np.ndarray, name: str) -> np.ndarray:
    """Returns two float32 values as a pair of 8-bit floats (uint16)."""
    upper, lower = (encoded(v, name).astype(np.uint16) for v in (high, low))
    return (upper << np.uint16(8) | lower)[()]


def unpack(pair: np.ndarray, name: str) -> np.ndarray:
    """Returns a pair of 8-bit floats (uint16) as two halves in one word (uint32)."""
    low, high = (decoded(pair >> np.uint16(shift) & np.uint16(0xFF), name) for shift in (0, 8))
    return packed(low, high, "f16x2")
