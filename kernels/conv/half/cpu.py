"""The NumPy implementation of the FP16 convolution."""

from __future__ import annotations

import numpy as np


def taps(x: np.ndarray, w: np.ndarray, y: np.ndarray, s: np.void) -> None:
    """Compute y [N,P,Q,K] from x [N,H,W,C] and w [K,R,S,C], all float16: one product [pixels, C] x [C, K] a filter tap.

    The sums are FP32. `s` is the kernels' `struct Conv`.
    """
    sums = np.zeros(y.shape, np.float32)
    for r in range(int(s["R"])):
        for t in range(int(s["S"])):
            row, column = (s["R"] - 1 - r, s["S"] - 1 - t) if s["flip"] else (r, t)
            pixels = _under_tap(x, s, int(row * s["dilation_h"]), int(column * s["dilation_w"]))
            sums += pixels @ w[:, r, t].astype(np.float32).T
    y[...] = sums


def _under_tap(x: np.ndarray, s: np.void, row: int, column: int) -> np.ndarray:
    """Returns float32 [N,P,Q,C]: the input pixel under the tap at (row, column) of each window; zero in the padding."""
    h = np.arange(int(s["P"])) * int(s["u"]) - int(s["pad_h"]) + row
    w = np.arange(int(s["Q"])) * int(s["v"]) - int(s["pad_w"]) + column
    inside = ((h >= 0) & (h < s["H"]))[:, None] & ((w >= 0) & (w < s["W"]))
    pixels = x[:, h.clip(0, s["H"] - 1)[:, None], w.clip(0, s["W"] - 1)]
    return np.where(inside[..., None], pixels, 0).astype(np.float32)
