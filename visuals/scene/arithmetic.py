"""The terms of sums of products, as a scene lists them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.gemm.shape import GemmShape


def sums_of(A: np.ndarray, B: np.ndarray, depth: int, dtype: str, kept: Callable | None = None) -> np.ndarray:
    """A x B with its terms added in the kernel's order, `depth` at a time, each sum rounded once to float32, as
    a fused multiply-add rounds; exact (float64) where dtype is int8. `kept(k, sums)` is told each of them."""
    A, B = np.asarray(A).astype(np.float64), np.asarray(B).astype(np.float64)
    sums = np.zeros((len(A), B.shape[1]))
    for k in range(0, A.shape[1], depth):
        sums = sums + A[:, k : k + depth] @ B[k : k + depth]
        if dtype != "int8":
            sums = sums.astype(np.float32)
        if kept:
            kept(k, sums.astype(np.float32))
    return sums


def finished(s: GemmShape, sums: np.ndarray, C0: np.ndarray | None) -> np.ndarray:
    """float32: C = alpha * sums + beta * C0."""
    C = s.alpha * sums.astype(np.float64)
    if s.beta:
        C = C.astype(np.float32) if s.dtype != "int8" else C
        C = C + s.beta * np.asarray(C0).astype(np.float64)
    return C.astype(np.float32)
