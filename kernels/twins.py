"""The kernels once more in NumPy, argument for argument: what the cpu engine runs."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def _windows(x: np.ndarray, s: np.void) -> np.ndarray:
    """View [N, C, P, Q, R, S] on x [N, C, H, W]: the window under each output pixel. Nothing is copied
    but the padded input, where there is padding."""
    if s["pad_h"] or s["pad_w"]:
        x = np.pad(x, ((0, 0), (0, 0), (s["pad_h"],) * 2, (s["pad_w"],) * 2))
    span = (s["dilation_h"] * (s["R"] - 1) + 1, s["dilation_w"] * (s["S"] - 1) + 1)
    windows = sliding_window_view(x, span, axis=(2, 3))[:, :, :: s["u"], :: s["v"]]
    windows = windows[..., :: s["dilation_h"], :: s["dilation_w"]]
    return windows[..., ::-1, ::-1] if s["flip"] else windows


def direct(x: np.ndarray, w: np.ndarray, y: np.ndarray, s: np.void) -> None:
    """y [N,K,P,Q]: the sum over each window, without writing the windows out."""
    for windows, out in zip(_windows(x, s), y, strict=True):
        np.einsum("cpqrs,kcrs->kpq", windows, w, out=out)


def im2col(x: np.ndarray, col: np.ndarray, s: np.void) -> None:
    """col [N, C*R*S, P*Q]: every window of x as a column."""
    N, C, P, Q, R, S = (int(s[name]) for name in "NCPQRS")
    col.reshape(N, C, R, S, P, Q)[...] = _windows(x, s).transpose(0, 1, 4, 5, 2, 3)


def tiled_gemm(tile: int):
    """C[n] = A x B[n] as kernels/cuda/conv/03_gemm.cu walks it: squares of C, slid along the inner dimension."""

    def gemm(A: np.ndarray, B: np.ndarray, C: np.ndarray, rows, cols, inner) -> None:
        for Bn, Cn in zip(B, C, strict=True):
            for i in range(0, rows, tile):
                for j in range(0, cols, tile):
                    square = Cn[i : i + tile, j : j + tile]
                    square[...] = 0
                    for k in range(0, inner, tile):
                        square += A[i : i + tile, k : k + tile] @ Bn[k : k + tile, j : j + tile]

    return gemm


def library_gemm(A: np.ndarray, B: np.ndarray, C: np.ndarray, rows, cols, inner) -> None:
    """C[n] = A x B[n] by the BLAS that NumPy is built with."""
    np.matmul(A, B, out=C)
