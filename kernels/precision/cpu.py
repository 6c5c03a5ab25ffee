"""The kernels of the ladder on instructions in NumPy, with the same arguments: the sums of all warps at once."""

from __future__ import annotations

import numpy as np

FOLD = 16  # turns, as in 02_hfma2.cu


def ffma(A: np.ndarray, B: np.ndarray, C: np.ndarray, warps, turns) -> None:
    """Adds one product to each sum, k after k, in float32."""
    a, b = A.astype(np.float32), B.astype(np.float32)
    C[:] = 0
    for _ in range(turns):
        for k in range(A.shape[1]):
            C += a[:, k, None] * b[k]


def hfma2(A: np.ndarray, B: np.ndarray, C: np.ndarray, warps, turns) -> None:
    """Adds one product to each sum in float16. Every FOLD turns the sums are added to C."""
    a, b = A.astype(np.float16), B.astype(np.float16)
    C[:] = 0
    pairs = np.zeros(C.shape, np.float16)
    for turn in range(turns):
        for k in range(A.shape[1]):
            pairs += a[:, k, None] * b[k]
        if turn % FOLD == FOLD - 1 or turn == turns - 1:
            C += pairs
            pairs[:] = 0


def dp4a(A: np.ndarray, B: np.ndarray, C: np.ndarray, warps, turns) -> None:
    """Adds four products at a time to each sum, in int32."""
    _by_groups(A, B, C, turns, 4, np.int32)


def mma_fp16(A: np.ndarray, B: np.ndarray, C: np.ndarray, warps, turns) -> None:
    """Adds sixteen products at a time to each sum, in float32."""
    _by_groups(A, B, C, turns, 16, np.float32)


def mma_int8(A: np.ndarray, B: np.ndarray, C: np.ndarray, warps, turns) -> None:
    """Adds all 32 products at a time to each sum, in int32."""
    _by_groups(A, B, C, turns, 32, np.int32)


def _by_groups(A: np.ndarray, B: np.ndarray, C: np.ndarray, turns: int, group: int, dtype: type) -> None:
    a, b = A.astype(dtype), B.astype(dtype)
    sums = np.zeros(C.shape, dtype)
    for _ in range(turns):
        for k in range(0, A.shape[1], group):
            sums += a[:, k : k + group] @ b[k : k + group]
    C[:] = sums
