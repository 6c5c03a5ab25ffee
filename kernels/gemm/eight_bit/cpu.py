"""The 8-bit products in NumPy, with the arguments of the kernels: one implementation for each result."""

from __future__ import annotations

import numpy as np


def tiled(bm: int, bn: int, bk: int):
    """Returns a function that computes C = A Bᵀ one tile bm x bn at a time, in steps of bk along K, in C's type."""

    def product(A: np.ndarray, B: np.ndarray, C: np.ndarray, M, N, K) -> None:
        for i in range(0, M, bm):
            for j in range(0, N, bn):
                tile = slice(i, i + bm), slice(j, j + bn)
                sums = np.zeros_like(C[tile])
                for k in range(0, K, bk):
                    sums += A[i : i + bm, k : k + bk].astype(C.dtype) @ B[j : j + bn, k : k + bk].astype(C.dtype).T
                C[tile] = sums

    return product
