"""Input values: seeded random values in the type of each buffer, and checks of given values."""

from __future__ import annotations

import numpy as np

from kernels.model.program import Buffer, RuleError

MAX_RANDOM_INT = 127  # of random whole numbers, either sign: int8 has both 127 and -127


def is_whole(dtype: np.dtype | str) -> bool:
    return np.dtype(dtype).kind in "iu"


def random(rng: np.random.Generator, b: Buffer) -> np.ndarray:
    """Returns random values for a buffer: standard normal float32 (absolute values if the buffer is positive), rounded
    to its type; whole numbers uniform in -127 .. 127 (0 .. 127 if the type has no sign), or in the buffer's range."""
    dtype = np.dtype(b.dtype)
    if b.below:
        return rng.integers(0, b.below, b.shape, dtype)
    if is_whole(dtype):
        low = -MAX_RANDOM_INT if dtype.kind == "i" else 0
        return rng.integers(low, MAX_RANDOM_INT, b.shape, dtype, endpoint=True)
    normal = rng.standard_normal(b.shape, dtype=np.float32)
    return (np.abs(normal, out=normal) if b.positive else normal).astype(dtype, copy=False)


def checked(b: Buffer, value: np.ndarray) -> np.ndarray:
    """Returns a given value in the type of its buffer. RuleError names what is wrong with it."""
    dtype = np.dtype(b.dtype)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as e:
        raise RuleError(f"input {b.name} must be an array of numbers: {e}") from None
    if array.shape != b.shape:
        raise RuleError(f"input {b.name} must have shape {b.shape}, got {array.shape}")
    # bfloat16 and float8, which NumPy itself lacks, have kind "V" and convert to floats.
    if array.dtype.kind not in "fiub" and not array.dtype.name.startswith(("bfloat16", "float8")):
        raise RuleError(f"input {b.name} must hold numbers, got {array.dtype}")
    if is_whole(dtype):
        return _whole(b, array)
    with np.errstate(over="ignore"):  # the check below reports overflow with the input's name
        array = array.astype(dtype)
    if not np.isfinite(array.astype(np.float32) if dtype.itemsize < 4 else array).all():
        raise RuleError(f"input {b.name} must be finite in {b.dtype}; it holds NaN or infinity")
    if b.positive and (array < 0).any():
        raise RuleError(f"input {b.name} must not be below 0; it holds {array.min():g}")
    return array


def _whole(b: Buffer, array: np.ndarray) -> np.ndarray:
    limits = np.iinfo(b.dtype)
    low, high = (0, b.below - 1) if b.below else (limits.min, limits.max)
    wide = array.astype(np.float64)
    if not ((wide == np.rint(wide)) & (low <= wide) & (wide <= high)).all():
        raise RuleError(f"input {b.name} must hold whole numbers in {low} .. {high} ({b.dtype}); it does not")
    return array.astype(b.dtype)


def poison(dtype: np.dtype | str) -> float | int:
    """Returns the value that fills an output before it is computed, so that a missing element is detected: NaN, or the
    smallest whole number, which no result within range reaches."""
    dtype = np.dtype(dtype)
    return np.iinfo(dtype).min if is_whole(dtype) else np.nan
