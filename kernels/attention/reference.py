"""The float64 reference of attention, with the scale of the rounding error of float32."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kernels.attention.shape import AttentionShape

TOLERANCE = 5e-6  # allowed error of a rung, as a fraction of the scale: a hundred times the errors measured
CHUNK = 2**19  # scores at a time: they are never all in memory at once
FLUSHED = (
    2.0**-100
)  # of |v|: weights below 2^-126 of the largest may become 0; that, divided by any tolerance
# P and O are rounded to a type of 16 bits: four times its unit roundoff is allowed.
ROUNDED = {"fp32": 0.0, "fp16": 4 * 2.0**-11 / TOLERANCE, "bf16": 4 * 2.0**-8 / TOLERANCE}
# Below 2^-14 FP16 has steps of 2^-24: a weight, and O itself, may be off by half a step.
STEP = {"fp32": 0.0, "fp16": 2.0**-25 / TOLERANCE, "bf16": 0.0}


def attention(
    s: AttentionShape, Q: np.ndarray, K: np.ndarray, V: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (O, error scale), both float64 [B, H, N, d]: O = P V, P = softmax(scale * Q K^T) over the visible keys.

    `scale` is rounded to float32, as for a kernel.

    The error of float32: a score s_ij is wrong by at most e * a_ij, a_ij = scale * sum over c of |q_ic k_jc|, where e is
    a small multiple of 2^-24. To first order p_ij is then wrong by e * p_ij * (a_ij + sum over k of p_ik a_ik). The sums
    are rounded too. So the scale is the sum over j of p_ij |v_jc| (1 + a_ij + sum over k of p_ik a_ik). With 16 bits,
    P and O are also rounded: that adds ROUNDED to the 1, and STEP of each |v_jc| and of O.
    """
    factor = float(np.float32(s.factor))
    q, k, v = (x.reshape(s.heads, s.N, s.d) for x in (Q, K, V))
    ref, scale = np.empty((2, s.heads, s.N, s.d))
    rows = max(1, CHUNK // s.N)

    def compute(task: tuple[int, int]) -> None:
        head, first = task
        index = head, slice(first, first + rows)
        scaled_q = factor * q[index].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite scores give NaN, which is correct
            ref[index], scale[index] = _reference_rows(scaled_q, k[head], v[head], first, s.causal, s.dtype)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compute, ((head, first) for head in range(s.heads) for first in range(0, s.N, rows))))
    return ref.reshape(s.qkv_shape), scale.reshape(s.qkv_shape)


def _reference_rows(q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, causal: int, dtype: str):
    """Returns (O, error scale) of the queries from `first` on, already scaled, of one head; O is rounded to `dtype`."""
    visible = first + len(q) if causal else len(k)
    k, v = k[:visible].astype(np.float64), v[:visible].astype(np.float64)
    p = q @ k.T
    if causal:
        p[np.arange(visible) > first + np.arange(len(q))[:, None]] = -np.inf
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    ref = p @ v
    np.abs(v, out=v)
    weighted_v = p @ v
    p *= np.abs(q) @ np.abs(k, out=k).T
    scale = p @ v + (1 + ROUNDED[dtype] + p.sum(axis=1, keepdims=True)) * weighted_v
    return ref, scale + (FLUSHED + STEP[dtype]) * v.sum(axis=0) + STEP[dtype]
