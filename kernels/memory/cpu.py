"""The kernels of threads and memory in NumPy, with the same arguments: the cpu engine runs these."""

from __future__ import annotations

import numpy as np

from kernels.memory.shape import READS_PER_TURN, TILE_COLS


def vector_add(A: np.ndarray, B: np.ndarray, C: np.ndarray, n) -> None:
    np.add(A, B, out=C)


def matrix_add(A: np.ndarray, B: np.ndarray, C: np.ndarray, M, N) -> None:
    """Add row after row, the order in memory."""
    for row in range(M):
        np.add(A[row], B[row], out=C[row])


def matrix_add_transposed(A: np.ndarray, B: np.ndarray, C: np.ndarray, M, N) -> None:
    """Add column after column: each element is N floats after the one before."""
    for col in range(N):
        np.add(A[:, col], B[:, col], out=C[:, col])


def strided_copy(x: np.ndarray, y: np.ndarray, n, stride) -> None:
    y[:] = x[::stride]


def shared_stride(x: np.ndarray, y: np.ndarray, n, stride, turns) -> None:
    """Do every read of every thread, from an ordinary array: a CPU has no banks."""
    i = np.arange(n)
    row, col = np.divmod(i % 32 * stride, TILE_COLS)
    table = x.ravel()
    y[:] = 0
    for t in range(turns):
        start = (row + (i // 32 + t) % 32) * TILE_COLS + col
        for r in range(READS_PER_TURN):
            y += table[start + r * TILE_COLS]


def to_nhwc(x: np.ndarray, y: np.ndarray, N, C, H, W) -> None:
    """Copy channel after channel: reads are adjacent, writes are C floats apart."""
    for image, out in zip(x, y, strict=True):
        for c in range(C):
            out[:, :, c] = image[c]


def to_nhwc_along_c(x: np.ndarray, y: np.ndarray, N, C, H, W) -> None:
    """Copy row after row of pixels: writes are adjacent, reads are H*W floats apart."""
    for image, out in zip(x, y, strict=True):
        for h in range(H):
            out[h] = image[:, h].T


def branch(x: np.ndarray, y: np.ndarray, n, rounds) -> None:
    """Compute even and odd elements apart: no choice is made for each element."""
    y[:] = 0
    for _ in range(rounds):
        y[::2] = y[::2] * np.float32(0.5) + x[::2]
        y[1::2] = y[1::2] * np.float32(0.25) - x[1::2]
