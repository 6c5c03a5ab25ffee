# ruff: noqa: E741  # O and L are the names of the paper
"""The float64 reference of attention's backward pass, with the scale of its rounding errors, and what the forward pass
saves for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.reference import CHUNK, FLUSHED, ROUNDED, STEP, TOLERANCE
from kernels.model.at_once import MAX_THREADS, at_once
from kernels.model.verify import Reference

__all__ = ["TOLERANCE", "backward", "saved"]


def saved(s: AttentionBackwardShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what the forward pass saves: O [B, H, N, d] in the type of V, and L float32 [B, H, N].

    L = m + log(sum over the visible keys of exp(S - m)), S = scale * Q K^T, m the maximum of a row of S.
    """
    Q, K, V = inputs["Q"], inputs["K"], inputs["V"]
    O, L = np.empty_like(V), np.empty(s.row_shape, np.float32)
    q, k, v, o, l = (x.reshape(s.heads, s.N, -1) for x in (Q, K, V, O, L))

    def compute(head: int) -> None:
        keys, values = k[head].astype(np.float64), v[head].astype(np.float64)
        for rows in _row_blocks(s):
            scores = _scores(s, q[head, rows], keys, rows)
            m = scores.max(axis=1, keepdims=True)
            p = np.exp(scores - m)
            total = p.sum(axis=1, keepdims=True)
            o[head, rows] = p @ values / total
            l[head, rows] = m + np.log(total)

    at_once(compute, range(s.heads), MAX_THREADS)
    return {"O": O, "L": L}


def backward(
    s: AttentionBackwardShape, Q: np.ndarray, K: np.ndarray, V: np.ndarray, dO: np.ndarray, O: np.ndarray, L: np.ndarray
) -> dict[str, Reference]:
    """Returns {"dQ", "dK", "dV"}: each (gradient, error scale), float64 [B, H, N, d], as FlashAttention-2 derives them.

    P = exp(S - L), dV = P^T dO, dP = dO V^T, D = rowsum(dO * O), dS = P * (dP - D), dQ = scale * dS K,
    dK = scale * dS^T Q. Hidden pairs have P = 0. `scale` is rounded to float32, as for a kernel.

    The error of float32, as multiples of 2^-24 that are small: of S - L, a + |L| with a = scale * |Q| |K|^T. So P is
    wrong by P * w, w = 1 + a + |L|. dP and D are wrong by b = |dO| |V|^T and c = rowsum(|dO * O|). dS is wrong by
    t = P * (w * |dP - D| + b + c). The scales are the same products with P * w and t, on absolute values. With 16 bits P,
    dS, O and the results are also rounded, which adds ROUNDED times each and STEP. Scores whose own error is large (a of
    about 1e6 and more) have no meaning here: P is then wrong by a factor.
    """
    q, k, v, do, o, l = (x.reshape(s.heads, s.N, -1) for x in (Q, K, V, dO, O, L))
    results = {name: np.zeros((2, s.heads, s.N, s.d)) for name in ("dQ", "dK", "dV")}

    def compute(head: int) -> None:
        keys, values = k[head].astype(np.float64), v[head].astype(np.float64)
        for rows in _row_blocks(s):
            _add_rows(
                s,
                rows,
                q[head, rows],
                keys,
                values,
                do[head, rows],
                o[head, rows],
                l[head, rows],
                {name: result[:, head] for name, result in results.items()},
            )

    at_once(compute, range(s.heads), MAX_THREADS)
    rounded, step = ROUNDED[s.dtype], STEP[s.dtype]
    return {
        name: (ref.reshape(s.qkv_shape), (scale + rounded * np.abs(ref) + step).reshape(s.qkv_shape))
        for name, (ref, scale) in results.items()
    }


def _add_rows(s: AttentionBackwardShape, rows: slice, q, keys, values, do, o, l, results) -> None:
    """Adds what the queries `rows` of one head contribute to its results, each [2, N, d]: gradients and their scales."""
    factor, rounded, step = float(np.float32(s.factor)), ROUNDED[s.dtype], STEP[s.dtype]
    seen = slice(0, rows.start + len(q) if s.causal else s.N)  # no query of these sees a later key
    q, do, o, l = (x.astype(np.float64) for x in (q, do, o, l))
    k, v = keys[seen], values[seen]
    visible = _visible(s, rows, seen)
    with np.errstate(over="ignore", invalid="ignore"):
        p = _scores(s, q, k, rows)
        p -= l
        np.exp(p, out=p)
    dots = do * o
    b, c = np.abs(do) @ np.abs(v).T, np.abs(dots).sum(axis=1, keepdims=True)
    dp = do @ v.T
    dp -= dots.sum(axis=1, keepdims=True)
    ds = p * dp
    w = abs(factor) * (np.abs(q) @ np.abs(k).T)
    w += 1 + np.abs(l)
    t = p * (w * np.abs(dp, out=dp) + b + (1 + rounded) * c) + rounded * np.abs(ds)
    t += (FLUSHED * (b + c) + step) * visible
    w += rounded
    w *= p
    w += (FLUSHED + step) * visible  # the error of P
    results["dQ"][0, rows] = factor * (ds @ k)
    results["dQ"][1, rows] = abs(factor) * (t @ np.abs(k))
    results["dK"][0, seen] += factor * (ds.T @ q)
    results["dK"][1, seen] += abs(factor) * (t.T @ np.abs(q))
    results["dV"][0, seen] += p.T @ do
    results["dV"][1, seen] += w.T @ np.abs(do)


# -- parts ----------------------------------------------------------------------------------------------
def _scores(s: AttentionBackwardShape, q: np.ndarray, keys: np.ndarray, rows: slice) -> np.ndarray:
    """Returns the scores of the queries `rows` with the first keys, -infinity where hidden."""
    scores = float(np.float32(s.factor)) * q.astype(np.float64) @ keys.T
    if s.causal:
        scores[np.logical_not(_visible(s, rows, slice(0, len(keys))))] = -np.inf
    return scores


def _visible(s: AttentionBackwardShape, rows: slice, keys: slice) -> np.ndarray | float:
    """Returns whether the queries `rows` see each key, bool [queries, keys]; 1 if all see all."""
    return np.arange(s.N)[keys] <= np.arange(s.N)[rows, None] if s.causal else 1.0


def _row_blocks(s: AttentionBackwardShape) -> list[slice]:
    rows = max(1, CHUNK // s.N)
    return [slice(first, first + rows) for first in range(0, s.N, rows)]
