"""The float64 reference of attention, with the scale of the error that float32 may make."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kernels.attention.shape import AttentionShape

TOLERANCE = 5e-6  # of the scale: what a rung may be wrong by, a hundred times what is seen
CHUNK = 2**19  # scores at a time: they never stand in memory all at once
FLUSHED = 2.0**-100  # of |v|: weights below 2^-126 of the largest may become 0; that, over any tolerance
# P and O are rounded to a type of 16 bits: four times its unit roundoff is admitted.
ROUNDED = {"fp32": 0.0, "fp16": 4 * 2.0**-11 / TOLERANCE, "bf16": 4 * 2.0**-8 / TOLERANCE}
# Below 2^-14 FP16 goes in steps of 2^-24: a weight, and O itself, may be off by half of one.
STEP = {"fp32": 0.0, "fp16": 2.0**-25 / TOLERANCE, "bf16": 0.0}


def attention(
    s: AttentionShape, Q: np.ndarray, K: np.ndarray, V: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(O, error scale), both float64 [B, H, N, d]: O = P V, P = softmax(scale * Q K^T) over the keys that a query
    sees. `scale` is the one of float32, as a kernel gets it.

    What float32 may miss: a score s_ij is wrong by at most e * a_ij, a_ij = scale * sum over c of |q_ic k_jc|, where e is
    a small multiple of 2^-24. To first order p_ij is then wrong by e * p_ij * (a_ij + sum over k of p_ik a_ik), and
    the sums round as all sums do; so the scale is sum over j of p_ij |v_jc| (1 + a_ij + sum over k of p_ik a_ik). With 16
    bits P and O are rounded too: that adds ROUNDED to the 1, and STEP of each |v_jc| and of O.
    """
    factor = float(np.float32(s.factor))
    q, k, v = (x.reshape(s.heads, s.N, s.d) for x in (Q, K, V))
    ref, scale = np.empty((2, s.heads, s.N, s.d))
    rows = max(1, CHUNK // s.N)

    def compute(at: tuple[int, int]) -> None:
        head, first = at
        here = head, slice(first, first + rows)
        mine = factor * q[here].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite scores give NaN, as they must
            ref[here], scale[here] = _rows(mine, k[head], v[head], first, s.causal, s.dtype)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compute, ((head, first) for head in range(s.heads) for first in range(0, s.N, rows))))
    return ref.reshape(s.qkv_shape), scale.reshape(s.qkv_shape)


def _rows(q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, causal: int, dtype: str):
    """(O, error scale) of the queries from `first` on, already scaled, of one head; O is rounded to `dtype`."""
    seen = first + len(q) if causal else len(k)
    k, v = k[:seen].astype(np.float64), v[:seen].astype(np.float64)
    p = q @ k.T
    if causal:
        p[np.arange(seen) > first + np.arange(len(q))[:, None]] = -np.inf
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    ref = p @ v
    np.abs(v, out=v)
    plain = p @ v
    p *= np.abs(q) @ np.abs(k, out=k).T
    scale = p @ v + (1 + ROUNDED[dtype] + p.sum(axis=1, keepdims=True)) * plain
    return ref, scale + (FLUSHED + STEP[dtype]) * v.sum(axis=0) + STEP[dtype]
