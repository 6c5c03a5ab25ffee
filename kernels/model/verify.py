"""Comparison of a result with its float64 reference, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Reference = tuple[np.ndarray, np.ndarray]  # (result, error scale), float64


def by_output(expected: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns what is expected of each output by its name: of a program with one output it stands alone."""
    return dict(expected) if isinstance(expected, Mapping) else dict(zip(names, (expected,), strict=True))


def relative_error(out: np.ndarray, ref: np.ndarray) -> float:
    """Returns the L2 norm of (out - ref) over that of ref; inf if out has an element that is not finite."""
    difference = norm = 0.0
    for o, r in blocks(out, ref):
        if not np.isfinite(o).all():
            return float("inf")
        delta = np.subtract(o, r, dtype=np.float64)
        difference += float(delta @ delta)
        norm += float(np.dot(r.astype(np.float64, copy=False), r))
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return float(np.sqrt(difference / norm))


def agrees(out: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> bool:
    """Returns whether every element is finite and within tolerance * scale: a NaN never passes."""
    return out.shape == ref.shape and all(
        np.isfinite(o).all() and (np.abs(o - r) <= tolerance * s).all() for o, r, s in blocks(out, ref, scale)
    )


def blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields blocks of the same elements of each array, broadcast against one another. With 10^8 elements at once, every
    step would go through main memory."""
    return np.nditer(arrays, ["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=2**15)
