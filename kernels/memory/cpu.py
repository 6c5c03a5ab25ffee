"""The kernels of threads and memory once more in NumPy, argument for argument: what the cpu engine runs."""

from __future__ import annotations

import numpy as np

from kernels.memory.shape import READS_A_TURN, TILE_COLS


def vector_add(A: np.ndarray, B: np.ndarray, C: np.ndarray, n) -> None:
    np.add(A, B, out=C)


def matrix_add(A: np.ndarray, B: np.ndarray, C: np.ndarray, M, N) -> None:
    """Row after row, as it lies in memory."""
    for row in range(M):
        np.add(A[row], B[row], out=C[row])


def matrix_add_transposed(A: np.ndarray, B: np.ndarray, C: np.ndarray, M, N) -> None:
    """Column after column: each element N floats after the one before."""
    for col in range(N):
        np.add(A[:, col], B[:, col], out=C[:, col])


def strided_copy(x: np.ndarray, y: np.ndarray, n, stride) -> None:
    y[:] = x[::stride]


def shared_stride(x: np.ndarray, y: np.ndarray, n, stride, turns) -> None:
    """Every read of every thread, from an ordinary array: a processor has no banks."""
    i = np.arange(n)
    row, col = np.divmod(i % 32 * stride, TILE_COLS)
    table = x.ravel()
    y[:] = 0
    for t in range(turns):
        first = (row + (i // 32 + t) % 32) * TILE_COLS + col
        for r in range(READS_A_TURN):
            y += table[first + r * TILE_COLS]


def to_nhwc(x: np.ndarray, y: np.ndarray, N, C, H, W) -> None:
    """Channel after channel: read side by side, written C floats apart."""
    for image, out in zip(x, y, strict=True):
        for c in range(C):
            out[:, :, c] = image[c]


def to_nhwc_along_c(x: np.ndarray, y: np.ndarray, N, C, H, W) -> None:
    """Row of pixels after row: written side by side, read H*W floats apart."""
    for image, out in zip(x, y, strict=True):
        for h in range(H):
            out[h] = image[:, h].T
