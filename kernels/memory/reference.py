"""float64 references of the ladders on threads and memory. Each returns (result, error scale)."""

from __future__ import annotations

import numpy as np

from kernels.memory.shape import READS_PER_TURN, AddShape, BanksShape, BranchShape, LayoutShape, StrideShape


def add(s: AddShape, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    A, B = A.astype(np.float64), B.astype(np.float64)
    return A + B, np.abs(A) + np.abs(B)


def stride(s: StrideShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = x[np.arange(s.n) * s.stride].astype(np.float64)
    return y, np.abs(y)


def banks(s: BanksShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    return _banks(s, x), _banks(s, np.abs(x))


def _banks(s: BanksShape, x: np.ndarray) -> np.ndarray:
    """Returns the sums of the words each thread reads, from sums of windows of rows.

    Each window is computed once: threads with the same i modulo 1,024 read the same words.
    """
    windows = np.lib.stride_tricks.sliding_window_view(x, READS_PER_TURN, axis=0).sum(axis=-1)  # [65, 32]
    row, col = np.divmod(np.arange(32) * s.stride, x.shape[1])
    starts = np.bincount(np.arange(s.turns) % 32, minlength=32)  # turns that start at each row offset
    sums = np.array(
        [sum(count * windows[row + (warp + t) % 32, col] for t, count in enumerate(starts)) for warp in range(32)]
    )
    i = np.arange(s.n)
    return sums[i // 32 % 32, i % 32]


def layout(s: LayoutShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.ascontiguousarray(x.astype(np.float64).transpose(0, 2, 3, 1))
    return y, np.abs(y)


def branch(s: BranchShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    odd = np.arange(s.n) % 2 == 1
    return np.where(odd, _recurrence(s, 0.25, -x), _recurrence(s, 0.5, x)), 2 * np.abs(x)


def _recurrence(s: BranchShape, factor: float, term: np.ndarray) -> np.ndarray:
    """Returns sum = sum * factor + term after all rounds, begun at 0: a geometric series."""
    return term * (1 - factor**s.rounds) / (1 - factor)
