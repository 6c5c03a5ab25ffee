"""The float64 reference of softmax, with the scale of the error that float32 may make."""

from __future__ import annotations

import numpy as np

from kernels.softmax.shape import SoftmaxShape

TOLERANCE = 1e-5  # of the scale: what a rung may be wrong by
FLUSHED = 2.0**-100  # results below 2^-126 may become 0; that, over the tolerance
CHUNK = 2**20  # numbers at a time: float64 of everything never stands in memory beside the result


def softmax(s: SoftmaxShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(y, error scale), both float64 [M, N], along the rows of x [M, N].

    Infinities and NaN give what NumPy and PyTorch give: a row with NaN or +infinity in it is NaN throughout, and so
    is one of nothing but -infinity; elsewhere -infinity gives 0.

    What float32 may miss: x - m is rounded by at most 2^-24 |x - m|, which exp turns into that share of its result, and
    the sums round as all sums do. To first order y_j is wrong by a small multiple of 2^-24 times
    y_j (1 + |x_j - m| + sum over k of y_k |x_k - m|), which is the scale.
    """
    y, scale = np.empty((2, s.M, s.N))
    rows = max(1, CHUNK // s.N)
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, s.M, rows):
            here = slice(first, first + rows)
            y[here], scale[here] = _rows(x[here].astype(np.float64))
    return y, scale


def _rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x - x.max(axis=1, keepdims=True)
    y = np.exp(x)
    y /= y.sum(axis=1, keepdims=True)
    far = np.where(y > 0, -x, 0.0)  # where y is 0, x may be infinite
    scale = y * (1 + far + (y * far).sum(axis=1, keepdims=True)) + FLUSHED
    return y, scale
