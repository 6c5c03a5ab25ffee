"""cvt: conversions between the types of numbers."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.operations.dtypes import DTYPES, from_bf16, is_float, to_bf16
from kernels.engines.emulator.operations.floats import (
    directed,
    flush_tiny,
    rounded_to_odd,
    saturate,
    step_towards,
    two_sum,
)

ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(value, to: str, from_: str, modifiers):
    """Convert as cvt does: integers are truncated or extended, floats rounded; `modifiers` give rounding and .sat."""
    if from_ == "bf16":
        value, from_ = from_bf16(value), "f32"
    if is_float(from_):
        for mode in modifiers:
            if mode in ROUND:
                value = ROUND[mode](value)
        if not is_float(to):
            return _truncated(value, DTYPES[to], from_ == "f64" or to in ("s64", "u64"))
    if is_float(to):
        return _rounded(value, to, modifiers)
    if "sat" in modifiers:
        info = np.iinfo(DTYPES[to])
        if value.dtype == np.uint64:
            value = np.minimum(value, np.uint64(info.max))
        else:
            value = np.clip(value.astype(np.int64), info.min, min(info.max, np.iinfo(np.int64).max))
    return value.astype(DTYPES[to])


def _rounded(value, to: str, modifiers):
    """Returns numbers as a type of floats, rounded in the direction that the modifiers name, and clamped with .sat."""
    mode = _direction(modifiers)
    if to == "bf16":
        exact = value if value.dtype.kind == "f" else rounded_to_odd(*_exact(value))
        return to_bf16(saturate(exact) if "sat" in modifiers else exact, mode or "rn")
    if mode is None:
        out = value.astype(DTYPES[to])
    elif value.dtype.kind == "f":
        out = directed(np.asarray(value, np.float64), mode, DTYPES[to])
    elif to == "f64":
        out = step_towards(*_exact(value), mode)
    else:
        out = directed(rounded_to_odd(*_exact(value)), mode, DTYPES[to])
    if "ftz" in modifiers and value.dtype == np.float64:
        out = flush_tiny(out, value, mode)
    return saturate(out) if "sat" in modifiers else out


def _truncated(values, target, is_wide: bool):
    """Returns floats as integers of a dtype, clamped to its range. `is_wide`: whether either type has 64 bits."""
    info = np.iinfo(target)
    # The PTX ISA: NaN becomes zero, but only the top bit set if either type has 64 bits.
    isnan = np.isnan(values)
    nan_result = target(info.min) if info.min else target(info.max // 2 + 1)
    values = np.where(isnan, 0, np.asarray(values, np.float64))
    # float64 cannot represent the largest int64: clip, then correct values that the clip rounded up.
    whole = np.clip(np.trunc(values), float(info.min), float(info.max))
    top = whole >= float(info.max)
    out = np.where(top, target(info.max), np.where(top, 0, whole).astype(target))
    return np.where(isnan & is_wide, nan_result, out).astype(target)[()]


def _direction(modifiers) -> str | None:
    return next((mode for mode in ("rz", "rm", "rp") if mode in modifiers), None)


def _exact(integers):
    """Returns integers as the nearest float64 numbers and the exact rest."""
    if integers.dtype.itemsize < 8:
        return integers.astype(np.float64), np.float64(0)
    high = (integers >> integers.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (integers & integers.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return two_sum(high, low)
