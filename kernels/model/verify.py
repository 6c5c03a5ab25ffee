"""Comparison of a result with its float64 reference, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kernels.model.row import Json

Reference = tuple[np.ndarray, np.ndarray]  # (result, error scale), float64
# Below 2^-126 float32 has steps of 2^-149. Each product there is off by up to half a step, so that a sum of 8,192 products
# may be off by this. A result of 1e-39 that becomes 0 is still wrong.
UNDERFLOW = 2.0**-137


def by_output(expected: object, names: tuple[str, ...]) -> Json:
    """Returns what is expected of each output by its name: of a program with one output it stands alone."""
    return dict(expected) if isinstance(expected, Mapping) else dict(zip(names, (expected,), strict=True))


def relative_error(out: np.ndarray, ref: np.ndarray, scale: np.ndarray | None = None, tolerance: float = 0.0) -> float:
    """Returns the L2 norm of (out - ref) over that of ref; inf if out has an element that is not finite.

    A ref whose norm is within the allowed error (`allowed`, of scale and tolerance) is 0 but for rounding. Then the norm
    of (out - ref) is divided by that of the scale instead: an error of the tolerance's size is the most that is allowed.
    If ref and that are 0 too, the norm of (out - ref) itself is returned.
    """
    difference = norm = most = 0.0
    for o, r, s in blocks(out, ref, np.zeros(()) if scale is None else scale):
        if not np.isfinite(o).all():
            return float("inf")
        delta = np.subtract(o, r, dtype=np.float64)
        difference += float(delta @ delta)
        norm += float(np.dot(r.astype(np.float64, copy=False), r))
        if scale is not None:
            within = allowed(s, tolerance)
            most += float(within @ within)
    if norm <= most and tolerance:
        return tolerance * float(np.sqrt(difference / most))
    return float(np.sqrt(difference / norm if norm else difference))


def agrees(out: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> bool:
    """Returns whether every element is finite and differs by no more than what is allowed: a NaN never passes."""
    return out.shape == ref.shape and all(
        np.isfinite(o).all() and (np.abs(o - r) <= allowed(s, tolerance)).all() for o, r, s in blocks(out, ref, scale)
    )


def allowed(scale: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns the error that each element may have: tolerance * scale, and UNDERFLOW where that is less."""
    return tolerance * np.asarray(scale, np.float64) + UNDERFLOW


def blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields blocks of the same elements of each array, broadcast against one another. With 10^8 elements at once, every
    step would go through main memory."""
    return np.nditer(arrays, ["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=2**15)
