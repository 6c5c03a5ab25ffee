"""GEMM on the CPU, in NumPy: one implementation for each kernel that differs in its result."""

from __future__ import annotations

import numpy as np


# -- GEMM: C = alpha * A x B + beta * C0, with the arguments of kernels/gemm/cuda/*.cu ----------------
def _scaled(sums: np.ndarray, C0: np.ndarray, C: np.ndarray, alpha: np.generic, beta: np.generic) -> None:
    """Write C = alpha * sums + beta * C0. C0 may be C itself. It is read only if beta is not 0."""
    sums = sums * alpha
    if beta:
        sums += beta * C0
    C[...] = sums


def definition(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
    """Multiply rows by columns without a library, as gemm/naive and gemm/uncoalesced do."""
    _scaled(np.einsum("mk,kn->mn", A, B), C0, C, alpha, beta)


def tiled(bm: int, bn: int, bk: int):
    """Returns a function that computes C like the tiled kernels: one tile bm x bn at a time, in steps of bk along K.

    A and B are converted to C's type tile by tile.
    """

    def gemm(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
        for i in range(0, M, bm):
            for j in range(0, N, bn):
                c_tile = slice(i, i + bm), slice(j, j + bn)
                sums = np.zeros_like(C[c_tile])
                for k in range(0, K, bk):
                    As = A[i : i + bm, k : k + bk].astype(C.dtype, copy=False)
                    Bs = B[k : k + bk, j : j + bn].astype(C.dtype, copy=False)
                    sums += As @ Bs
                _scaled(sums, C0[c_tile], C[c_tile], alpha, beta)

    return gemm


def copy(source: np.ndarray, destination: np.ndarray) -> None:
    np.copyto(destination, source)


def library(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
    """Compute C with NumPy's BLAS. A and B are converted to C's type first."""
    sums = np.matmul(A.astype(C.dtype, copy=False), B.astype(C.dtype, copy=False))
    _scaled(sums, C0, C, alpha, beta)
