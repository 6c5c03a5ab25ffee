"""C = A Bᵀ in float64."""

from __future__ import annotations

import numpy as np

from kernels.gemm.eight_bit.shape import EightBitShape


def eight_bit(s: EightBitShape, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (reference, error scale), both float64 [M, N]: A Bᵀ, and the same of absolute values.

    Of int8, nothing is rounded: every sum is a whole number far below 2^53. Of FP8, A and B are the rounded inputs.
    """
    A, B = A.astype(np.float64), B.astype(np.float64)
    return A @ B.T, np.abs(A) @ np.abs(B, out=B).T
