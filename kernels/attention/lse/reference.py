# ruff: noqa: E741  # O and L are the names of the paper
"""The float64 reference of attention with L, and the scale of its rounding errors."""

from __future__ import annotations

import numpy as np

from kernels.attention.lse.shape import LseShape
from kernels.attention.reference import CHUNK, attention
from kernels.model.log_sum import log_sum_exp
from kernels.model.verify import Reference


def attention_lse(s: LseShape, Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> dict[str, Reference]:
    """Returns {"O", "L"}: each (result, error scale), float64. O [B, H, N, d] as in kernels.attention.reference.

    L [B, H, N] = m + log(l), l = sum over the visible keys of exp(S - m), S = scale * Q K^T, m the maximum of a row.

    The error of float32, in small multiples of 2^-24: a score S_ij is wrong by a_ij = |scale| * sum over c of |q_ic k_jc|.
    To first order L is then wrong by the sum over j of P_ij a_ij. The sum l and its logarithm add 1 + log(l), and the
    addition of m adds |m|.
    """
    q, k = (x.reshape(s.heads, s.N, s.d).astype(np.float64) for x in (Q, K))
    L, scale = np.empty((2, s.heads, s.N))
    rows = max(1, CHUNK // s.N)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite scores give NaN, which is correct
        for head in range(s.heads):
            for first in range(0, s.N, rows):
                block = slice(first, first + rows)
                L[head, block], scale[head, block] = _rows(s, q[head, block], k[head], first)
    return {"O": attention(s, Q, K, V), "L": (L.reshape(s.row_shape), scale.reshape(s.row_shape))}


def _rows(s: LseShape, q: np.ndarray, k: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns L and its error scale of the queries from `first` on of one head."""
    factor = float(np.float32(s.factor))
    scores = factor * (q @ k.T)
    if s.causal:
        scores[np.arange(s.N) > first + np.arange(len(q))[:, None]] = -np.inf
    m = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - m)
    l = p.sum(axis=1)
    weighted = (p * (abs(factor) * (np.abs(q) @ np.abs(k).T))).sum(axis=1) / l
    m = m[:, 0]
    return log_sum_exp(m, l), 1 + np.log(l) + np.abs(m) + weighted
