"""C = alpha * A x B + beta * C0 in float64."""

from __future__ import annotations

import numpy as np

from kernels.gemm.shape import GemmShape


def gemm(s: GemmShape, A: np.ndarray, B: np.ndarray, C0: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns (reference, error scale), both float64 [M, N]: alpha A B + beta C0, and the same of absolute values.

    alpha and beta are rounded to float32, as for a kernel. For int8 nothing is rounded: every product and
    sum is a whole number far below 2^53.
    """
    is_int8 = s.dtype == "int8"
    alpha, beta = (value if is_int8 else float(np.float32(value)) for value in (s.alpha, s.beta))
    A, B = A.astype(np.float64), B.astype(np.float64)
    ref, scale = alpha * (A @ B), abs(alpha) * (np.abs(A, out=A) @ np.abs(B, out=B))
    if s.beta and C0 is not None:
        C0 = C0.astype(np.float64)
        ref, scale = ref + beta * C0, scale + abs(beta) * np.abs(C0)
    return ref, scale
