"""The float64 references of cross-entropy and of its gradient, with the scales of the rounding errors of float32.

In float32, x - m is rounded by at most 2^-24 |x - m|, which is a relative error of exp(x - m). The sum l is then wrong by
a small multiple of 2^-24 l (1 + sum over k of y_k |x_k - m|), with y = softmax(x). log(l) is wrong by that over l, and by
its own rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape, CrossEntropyStepShape
from kernels.model.verify import Reference

TOLERANCE = 1e-5  # allowed error of a rung, as a fraction of the scale
FLUSHED = 2.0**-100  # results below 2^-126 may become 0; that, divided by the tolerance
CHUNK = 2**20  # logits at a time: limits the float64 copies in memory


def forward(s: CrossEntropyShape, x: np.ndarray, labels: np.ndarray) -> dict[str, Reference]:
    """Returns (loss, scale) and (lse, scale), float64 [M], of logits x [M, N] and labels [M]."""
    loss, lse, loss_scale, lse_scale = np.empty((4, s.M))
    for rows in _chunks(s):
        part = x[rows].astype(np.float64)
        m = part.max(axis=1)
        log_l, spread = _log_sum(part, m)
        distance = m - part[np.arange(len(m)), labels[rows]]
        loss[rows], lse[rows] = log_l + distance, np.where(np.isposinf(m), m, m + log_l)
        loss_scale[rows] = 1 + spread + log_l + distance
        lse_scale[rows] = 1 + spread + log_l + np.abs(m)
    return {"loss": (loss, loss_scale), "lse": (lse, lse_scale)}


def backward(
    s: CrossEntropyBackwardShape, x: np.ndarray, labels: np.ndarray, lse: np.ndarray, g: np.ndarray
) -> Reference:
    """Returns (dx, scale), float64 [M, N]: (exp(x - lse) - onehot(labels)) * g.

    x - lse is rounded by 2^-24 of the larger of the two, which is a relative error of the exponential."""
    dx, scale = np.empty((2, s.M, s.N))
    for rows in _chunks(s):
        part, own_lse = x[rows].astype(np.float64), lse[rows, None].astype(np.float64)
        p = np.exp(part - own_lse)
        p_scale = p * (1 + np.abs(part) + np.abs(own_lse))
        _store(dx, scale, rows, p, p_scale, labels, g)
    return dx, scale


def step(s: CrossEntropyStepShape, x: np.ndarray, labels: np.ndarray, g: np.ndarray) -> dict[str, Reference]:
    """Returns (loss, scale), float64 [M], and (dx, scale), float64 [M, N], of both formulas above."""
    loss = forward(s, x, labels)["loss"]
    dx, scale = np.empty((2, s.M, s.N))
    for rows in _chunks(s):
        part = x[rows].astype(np.float64)
        m = part.max(axis=1, keepdims=True)
        log_l, spread = _log_sum(part, m[:, 0])
        p = np.exp(part - m - log_l[:, None])
        p_scale = p * (1 + np.abs(part - m) + np.abs(m) + (log_l + spread)[:, None])
        _store(dx, scale, rows, p, p_scale, labels, g)
    return {"loss": loss, "dx": (dx, scale)}


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    """Returns the log-sum-exp of each row of x [M, N], float32 [M]: what a forward kernel saved."""
    lse = np.empty(len(x), np.float32)
    for rows in _chunks(CrossEntropyShape(*x.shape)):
        part = x[rows].astype(np.float64)
        m = part.max(axis=1)
        log_l, _ = _log_sum(part, m)
        lse[rows] = np.where(np.isposinf(m), m, m + log_l)
    return lse


def _chunks(s: CrossEntropyShape) -> Iterator[slice]:
    rows = max(1, CHUNK // s.N)
    for first in range(0, s.M, rows):
        yield slice(first, first + rows)


def _log_sum(x: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for each row, the logarithm of the sum of exp(x - m), and the mean of |x - m| weighted by softmax(x)."""
    with np.errstate(invalid="ignore"):  # infinities give NaN
        below = x - m[:, None]
        e = np.exp(below)
        total = e.sum(axis=1)
        return np.log(total), -np.einsum("mn,mn->m", e, below) / total


def _store(
    dx: np.ndarray,
    scale: np.ndarray,
    rows: slice,
    p: np.ndarray,
    p_scale: np.ndarray,
    labels: np.ndarray,
    g: np.ndarray,
) -> None:
    """Write (p - onehot) g and its error scale to some rows of dx and of scale."""
    at, own_g = (np.arange(len(p)), labels[rows]), g[rows, None].astype(np.float64)
    p[at] -= 1
    p_scale[at] += 1
    dx[rows], scale[rows] = p * own_g, p_scale * np.abs(own_g) + FLUSHED
