"""The float64 reference of softmax, with the scale of the rounding error of float32."""

from __future__ import annotations

import numpy as np

from kernels.softmax.shape import SoftmaxShape

TOLERANCE = 1e-5  # allowed error of a rung, as a fraction of the scale
FLUSHED = 2.0**-100  # results below 2^-126 may become 0; that, divided by the tolerance
CHUNK = 2**20  # numbers at a time: limits the float64 copies in memory


def softmax(s: SoftmaxShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (y, error scale), both float64 [M, N], along the rows of x [M, N].

    Infinities and NaN give the same as in NumPy and PyTorch. A row with NaN or +infinity in it is all NaN. A row of
    only -infinity is all NaN too. Elsewhere -infinity gives 0.

    The error of float32: x - m is rounded by at most 2^-24 |x - m|. exp makes that a relative error of its result. The
    sums are rounded too. To first order y_j is wrong by a small multiple of 2^-24 times
    y_j (1 + |x_j - m| + sum over k of y_k |x_k - m|), which is the scale.
    """
    y, scale = np.empty((2, s.M, s.N))
    rows_per_chunk = max(1, CHUNK // s.N)
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, s.M, rows_per_chunk):
            rows = slice(first, first + rows_per_chunk)
            y[rows], scale[rows] = _rows(x[rows].astype(np.float64))
    return y, scale


def _rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x - x.max(axis=1, keepdims=True)
    y = np.exp(x)
    y /= y.sum(axis=1, keepdims=True)
    distance = np.where(y > 0, -x, 0.0)  # where y is 0, x may be infinite
    scale = y * (1 + distance + (y * distance).sum(axis=1, keepdims=True)) + FLUSHED
    return y, scale
