"""Input values: seeded random values in the type of each buffer, and checks of given values."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.model.program import Buffer, RuleError

MAX_RANDOM_INT = 127  # of random whole numbers, either sign: int8 has both 127 and -127
NOT_OF_NUMPY = ("bfloat16", "float8")  # types of ml_dtypes; their kind is "V"


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


def checked(b: Buffer, value: object) -> np.ndarray:
    """Returns a given value, an array of NumPy or a tensor of PyTorch, in the type of its buffer. RuleError names what is
    wrong with it, and the first element that is."""
    dtype = np.dtype(b.dtype)
    array = _array(b, value)
    if b.mask:
        array = _mask(b, array)
    if array.shape != b.shape:
        raise RuleError(f"input {b.name} must have shape {b.shape}, got {array.shape}")
    if is_whole(dtype):
        return _whole(b, array)
    with np.errstate(over="ignore"):  # the check below reports overflow with the input's name
        rounded = array.astype(dtype)
    finite = np.isfinite(rounded.astype(np.float32) if dtype.itemsize < 4 else rounded)
    if not finite.all():
        text, given = _first(b, array, ~finite)
        beyond = f", beyond {b.dtype}'s largest number, {_largest(dtype):.9g}" if np.isfinite(given) else ""
        raise RuleError(f"input {b.name} must be finite in {b.dtype}; {text}{beyond}")
    if b.positive and (rounded < 0).any():
        raise RuleError(f"input {b.name} must not be below 0; {_first(b, array, rounded < 0)[0]}")
    return rounded


def _array(b: Buffer, value: Any) -> np.ndarray:
    try:
        if hasattr(value, "detach"):  # NumPy reads no tensor that has a gradient or is in a GPU's memory
            value = value.detach().cpu()
            if str(value.dtype).startswith(tuple(f"torch.{name}" for name in NOT_OF_NUMPY)):
                value = value.float()  # exact
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as e:
        raise RuleError(f"input {b.name} must be an array of numbers: {e}") from None
    if array.dtype.kind not in "fiub" and not array.dtype.name.startswith(NOT_OF_NUMPY):
        raise RuleError(f"input {b.name} must hold numbers, got {array.dtype}")
    return array


def _mask(b: Buffer, array: np.ndarray) -> np.ndarray:
    """Returns an attention mask in the shape of its buffer, [N, M], from one that broadcasts to it as PyTorch's attn_mask
    does. If the buffer is boolean, 0 and -inf become 1 and 0."""
    rows = array
    while rows.ndim > len(b.shape) and (rows.shape[0] == 1 or rows.strides[0] == 0):
        rows = rows[0]
    try:
        rows = np.broadcast_to(rows, b.shape)
    except ValueError:
        N, M = b.shape
        raise RuleError(
            f"input {b.name} must have shape {b.shape}, or one that broadcasts to it such as {(1, 1, N, M)} or {(1, M)}: "
            f"all heads have the same mask. Got {array.shape}"
        ) from None
    if rows.dtype.kind == "b":
        return rows
    wide = rows.astype(np.float64)
    hidden = np.isneginf(wide)
    if b.below and hidden.any() and (hidden | (wide == 0)).all():
        return ~hidden
    bad = (wide != 0) & (wide != 1) if b.below else hidden
    if bad.any():
        raise RuleError(
            f'{_first(b, rows, bad)[0]}. mask="bool" takes True and False, or 0 and -inf. mask="bias" takes finite '
            "numbers. No kernel takes -inf together with other numbers than 0"
        )
    return rows


def _whole(b: Buffer, array: np.ndarray) -> np.ndarray:
    limits = np.iinfo(b.dtype)
    low, high = (0, b.below - 1) if b.below else (limits.min, limits.max)
    wide = array.astype(np.float64)
    right = (wide == np.rint(wide)) & (low <= wide) & (wide <= high)
    if not right.all():
        text = _first(b, array, ~right)[0]
        raise RuleError(f"input {b.name} must hold whole numbers in {low} .. {high} ({b.dtype}); {text}")
    return array.astype(b.dtype)


def _first(b: Buffer, array: np.ndarray, wrong: np.ndarray) -> tuple[str, float]:
    """Returns the first element that is wrong, as "A[0, 3] is 70000", and its value."""
    at = tuple(int(n) for n in np.unravel_index(int(wrong.argmax()), wrong.shape))
    value = float(array[at])
    return f"{b.name}{list(at)} is {value:.9g}", value


def _largest(dtype: np.dtype) -> float:
    if dtype.isbuiltin == 1:
        return float(np.finfo(dtype).max)
    from ml_dtypes import finfo  # a browser has none, and no such type

    return float(finfo(dtype).max)


def poison(dtype: np.dtype | str) -> float | int:
    """Returns the value that fills an output before it is computed, so that a missing element is detected: NaN, or the
    smallest whole number, which no result within range reaches."""
    dtype = np.dtype(dtype)
    return np.iinfo(dtype).min if is_whole(dtype) else np.nan
