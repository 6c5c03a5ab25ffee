"""GEMM on the processor, in NumPy: one implementation for each kernel that differs in its result."""

from __future__ import annotations

import numpy as np


# -- GEMM: C = alpha * A x B + beta * C0, with the arguments of kernels/gemm/cuda/*.cu ----------------
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
