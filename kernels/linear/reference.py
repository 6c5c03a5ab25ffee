"""A fully connected layer and its gradients in float64. An error scale is the same computation on absolute values."""

from __future__ import annotations

import numpy as np

from kernels.linear.shape import InputGradientShape, LinearShape, WeightGradientShape
from kernels.model.verify import Reference

# The error of a float32 sum grows at worst with its length. 1e-5 of the sum of absolute products is what the gemm ladder
# allows too.
TOLERANCE = 1e-5


def forward(s: LinearShape, x: np.ndarray, W: np.ndarray, b: np.ndarray) -> Reference:
    """Returns (y, scale), float64 [M, N]: x W^T + b."""
    y, scale = _product(x, W.T)
    b = b.astype(np.float64)
    y += b
    scale += np.abs(b)
    return y, scale


def dinput(s: InputGradientShape, dy: np.ndarray, W: np.ndarray) -> Reference:
    """Returns (dx, scale), float64 [M, K]: dy W."""
    return _product(dy, W)


def dweight(s: WeightGradientShape, dy: np.ndarray, x: np.ndarray) -> dict[str, Reference]:
    """Returns (dW, scale), float64 [N, K]: dy^T x; and (db, scale), float64 [N]: the column sums of dy."""
    wide = dy.astype(np.float64)
    return {"dW": _product(dy.T, x), "db": (wide.sum(axis=0), np.abs(wide).sum(axis=0))}


def _product(a: np.ndarray, b: np.ndarray) -> Reference:
    a, b = a.astype(np.float64), b.astype(np.float64)
    product = a @ b
    return product, np.abs(a, out=a) @ np.abs(b, out=b)
