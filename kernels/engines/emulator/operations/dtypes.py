"""PTX types as NumPy dtypes, and the 16-bit floats that NumPy does not compute with: bfloat16 and packed pairs."""

from __future__ import annotations

import numpy as np

DTYPES = {
    "pred": np.bool_,
    "b8": np.uint8,
    "u8": np.uint8,
    "s8": np.int8,
    "b16": np.uint16,
    "u16": np.uint16,
    "s16": np.int16,
    "f16": np.float16,
    "bf16": np.uint16,
    "b32": np.uint32,
    "u32": np.uint32,
    "s32": np.int32,
    "f32": np.float32,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "b64": np.uint64,
    "u64": np.uint64,
    "s64": np.int64,
    "f64": np.float64,
}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def is_float(type_: str) -> bool:
    return type_ in ("f16", "bf16", "f32", "f64")


# bfloat16 is stored as its bits and computed in float32.
def from_bf16(bits):
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values, mode: str = "rn"):
    """Round float32 or float64 to nearest even, towards zero (rz), down (rm) or up (rp); NaN stays NaN."""
    values = np.asarray(values)
    bits = (
        _to_float32_odd(values).view(np.uint32)
        if values.dtype == np.float64
        else values.astype(np.float32).view(np.uint32)
    )
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    elif mode != "rz":
        bits = bits + np.where(np.signbit(values) == (mode == "rm"), np.uint32(0xFFFF), np.uint32(0))
    return np.where(np.isnan(values), np.uint32(0x7FC0), bits >> np.uint32(16)).astype(np.uint16)


def _to_float32_odd(values):
    """Returns float64 values as float32, rounded to odd: rounded again to fewer bits, they equal one rounding."""
    nearest = values.astype(np.float32)
    beyond = np.abs(nearest) > np.abs(values)
    cut = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    inexact = (cut != values) & ~np.isnan(values)
    return (cut.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)


def halves(bits, type_: str):
    """Returns (low, high) of a packed pair as float32 values."""
    low, high = (bits & np.uint32(0xFFFF)).astype(np.uint16), (bits >> np.uint32(16)).astype(np.uint16)
    if type_ == "bf16x2":
        return from_bf16(low), from_bf16(high)
    return low.view(np.float16).astype(np.float32), high.view(np.float16).astype(np.float32)


def packed(low, high, type_: str):
    """Round two float32 values into a packed pair."""
    if type_ == "bf16x2":
        low, high = to_bf16(low), to_bf16(high)
    else:
        low, high = (np.asarray(v).astype(np.float16).view(np.uint16) for v in (low, high))
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))
