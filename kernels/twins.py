"""The kernels once more in NumPy, argument for argument: what the cpu engine runs."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def windows(x: np.ndarray, s: np.void) -> np.ndarray:
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
    for of_image, out in zip(windows(x, s), y, strict=True):
        np.einsum("cpqrs,kcrs->kpq", of_image, w, out=out)


def im2col(x: np.ndarray, col: np.ndarray, s: np.void) -> None:
    """col [N, C*R*S, P*Q]: every window of x as a column."""
    N, C, P, Q, R, S = (int(s[name]) for name in "NCPQRS")
    col.reshape(N, C, R, S, P, Q)[...] = windows(x, s).transpose(0, 1, 4, 5, 2, 3)


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


# -- GEMM: C = alpha * A x B + beta * C0, with the arguments of kernels/cuda/gemm/*.cu ----------------
def _scaled(sums: np.ndarray, C0: np.ndarray, C: np.ndarray, alpha: np.generic, beta: np.generic) -> None:
    """C = alpha * sums + beta * C0; C0, which may be C itself, is read only where beta is not 0."""
    sums = sums * alpha
    if beta:
        sums += beta * C0
    C[...] = sums


def definition(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
    """Row by column, without a library: what gemm/naive computes."""
    _scaled(np.einsum("mk,kn->mn", A, B), C0, C, alpha, beta)


def definition_by_columns(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta):
    """The same, C walked down its columns: what gemm/uncoalesced computes."""
    _scaled(np.einsum("kn,mk->nm", B, A).T, C0, C, alpha, beta)


def tiled(bm: int, bn: int, bk: int):
    """As the tiled kernels walk it: a tile bm x bn of C at a time, slid along K by bk. A and B are widened
    to C's type tile by tile."""

    def gemm(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
        for i in range(0, M, bm):
            for j in range(0, N, bn):
                at = slice(i, i + bm), slice(j, j + bn)
                sums = np.zeros_like(C[at])
                for k in range(0, K, bk):
                    As = A[i : i + bm, k : k + bk].astype(C.dtype, copy=False)
                    Bs = B[k : k + bk, j : j + bn].astype(C.dtype, copy=False)
                    sums += As @ Bs
                _scaled(sums, C0[at], C[at], alpha, beta)

    return gemm


def copy(source: np.ndarray, to: np.ndarray) -> None:
    np.copyto(to, source)


def library(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
    """By the BLAS that NumPy is built with; A and B are widened to C's type first."""
    sums = np.matmul(A.astype(C.dtype, copy=False), B.astype(C.dtype, copy=False))
    _scaled(sums, C0, C, alpha, beta)
