# ruff: noqa: E741  # O, L and l are the names of the paper
"""The kernels of attention with L in NumPy, with the same arguments: the cpu engine runs these.

The products take all heads at once: a training step has many small ones. Arrays have the shapes of the buffers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.attention.cpu import heads, hidden, quiet
from kernels.model.log_sum import log_sum_exp


def scores(tile: int) -> Callable[..., None]:
    """Returns a function like 02_scores_tiled.cu: square tiles of S, in steps along d. Fully hidden tiles are skipped."""

    def compute(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale, causal) -> None:
        for i in range(0, N, tile):
            for j in range(0, min(N, i + tile) if causal else N, tile):
                square = S[..., i : i + tile, j : j + tile]
                square[...] = 0
                for c in range(0, d, tile):
                    keys = K[..., j : j + tile, c : c + tile].swapaxes(2, 3)
                    square += Q[..., i : i + tile, c : c + tile] @ keys
                square *= scale

    return compute


def softmax(S: np.ndarray, P: np.ndarray, L: np.ndarray, rows, N, causal) -> None:
    """Compute P = softmax(S) along its rows, 0 for hidden keys, and L = m + log(l)."""
    np.copyto(P, S)
    if causal:
        P[..., hidden(range(N), range(N))] = -np.inf
    m = P.max(axis=3, keepdims=True)
    with quiet():
        P -= m
        np.exp(P, out=P)
        l = P.sum(axis=3, keepdims=True)
        P /= l
        L[...] = log_sum_exp(m, l)[..., 0]


def values(tile: int) -> Callable[..., None]:
    """Returns a function like 02_values_tiled.cu: square tiles of O, in steps along the keys."""

    def compute(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, causal) -> None:
        for i in range(0, N, tile):
            for c in range(0, d, tile):
                square = O[..., i : i + tile, c : c + tile]
                square[...] = 0
                for j in range(0, min(N, i + tile) if causal else N, tile):
                    square += P[..., i : i + tile, j : j + tile] @ V[..., j : j + tile, c : c + tile]

    return compute


def flash(br: int, bc: int) -> Callable[..., None]:
    """Returns a function like 14_flash_registers_lse.cu: br queries at a time over tiles of bc keys."""

    def compute(Q, K, V, O, L, N, d, scale, causal) -> None:
        for q, k, v, o, row in heads(Q, K, V, O, L):
            for i in range(0, N, br):
                rows = slice(i, i + br)
                o[rows], row[rows] = _rows(scale * q[rows], k, v, i, bc, causal)

    return compute


def _rows(q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, bc: int, causal) -> tuple[np.ndarray, np.ndarray]:
    """Returns O and L of the queries from `first` on, already scaled, of one head."""
    rows, N = len(q), len(k)
    o = np.zeros_like(q)
    m, l = np.full((rows, 1), -np.inf, q.dtype), np.zeros((rows, 1), q.dtype)
    for j in range(0, min(N, first + rows) if causal else N, bc):
        s = q @ k[j : j + bc].T
        if causal and j + bc > first:
            s[hidden(range(first, first + rows), range(j, j + s.shape[1]))] = -np.inf
        new_m = np.fmax(m, np.fmax.reduce(s, axis=1, keepdims=True))  # like fmaxf: ignores NaN
        base = np.where(new_m == -np.inf, np.float32(0), new_m)
        with quiet():
            shrink, p = np.exp(m - base), np.exp(s - base)
            l = l * shrink + p.sum(axis=1, keepdims=True)
            o = o * shrink + p @ v[j : j + bc]
        m = new_m
    with quiet():
        return o / l, log_sum_exp(m, l)[:, 0]
