"""Sums of products in the order of a kernel, for scenes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.gemm.shape import GemmShape


def matmul_in_kernel_order(
    A: np.ndarray, B: np.ndarray, depth: int, dtype: str, record: Callable | None = None
) -> np.ndarray:
    """Returns A x B with its terms added in the kernel's order, `depth` at a time. Each sum is rounded once to float32,
    as a fused multiply-add rounds; if dtype is int8, sums are exact (float64). `record(k, sums)` is called with each
    sum, as float32."""
    A, B = np.asarray(A).astype(np.float64), np.asarray(B).astype(np.float64)
    sums = np.zeros((len(A), B.shape[1]))
    for k in range(0, A.shape[1], depth):
        sums = sums + A[:, k : k + depth] @ B[k : k + depth]
        if dtype != "int8":
            sums = sums.astype(np.float32)
        if record:
            record(k, sums.astype(np.float32))
    return sums


def apply_alpha_beta(s: GemmShape, sums: np.ndarray, C0: np.ndarray | None) -> np.ndarray:
    """Returns C = alpha * sums + beta * C0 as float32."""
    C = s.alpha * sums.astype(np.float64)
    if s.beta:
        C = C.astype(np.float32) if s.dtype != "int8" else C
        C = C + s.beta * np.asarray(C0).astype(np.float64)
    return C.astype(np.float32)
