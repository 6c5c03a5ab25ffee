"""The float64 reference of attention, with the scale of the rounding error of float32."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from kernels.attention.cpu import hidden
from kernels.attention.shape import SelfAttentionShape

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
    s: SelfAttentionShape, Q: np.ndarray, K: np.ndarray, V: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (O, error scale), both float64 [B, H, N, d]: O = P V, P = softmax(scale * Q K^T) over the visible keys.

    `scale` is rounded to float32, as for a kernel. `mask` is that of the shape, [N, M]. A query that sees no key has the
    result 0.

    The error of float32: a score s_ij is wrong by at most e * a_ij, a_ij = scale * sum over c of |q_ic k_jc|, where e is
    a small multiple of 2^-24. To first order p_ij is then wrong by e * p_ij * (a_ij + sum over k of p_ik a_ik). The sums
    are rounded too. So the scale is the sum over j of p_ij |v_jc| (1 + a_ij + sum over k of p_ik a_ik). With 16 bits,
    P and O are also rounded: that adds ROUNDED to the 1, and STEP of each |v_jc| and of O. A cap does not enlarge an
    error of a score, because its derivative is at most 1. Its own error is a multiple of the cap, which a_ij grows by. A
    bias b_ij adds |b_ij| to a_ij.
    """
    from concurrent.futures import ThreadPoolExecutor  # loads logging: `import kernels` does without

    factor = float(np.float32(s.factor))
    groups, keys = K.shape[1:3]
    q = Q.reshape(s.heads, s.N, s.d)
    k, v = (x.reshape(-1, keys, s.d) for x in (K, V))
    ref, scale = np.empty((2, s.heads, s.N, s.d))
    rows = max(1, CHUNK // keys)

    def compute(task: tuple[int, int]) -> None:
        head, first = task
        block = slice(first, first + rows)
        scaled_q = factor * q[head, block].astype(np.float64)
        shared = head * groups // s.H  # the head of K and V
        pairs = Pairs(s, range(first, first + len(scaled_q)), None if mask is None else mask[block])
        with np.errstate(invalid="ignore", over="ignore"):  # infinite scores give NaN, which is correct
            ref[head, block], scale[head, block] = _reference_rows(scaled_q, k[shared], v[shared], pairs)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compute, ((head, first) for head in range(s.heads) for first in range(0, s.N, rows))))
    return ref.reshape(s.qkv_shape), scale.reshape(s.qkv_shape)


@dataclass(frozen=True)
class Pairs:
    """Some queries of a head with all its keys. `mask` has the rows of these queries."""

    s: SelfAttentionShape
    queries: range
    mask: np.ndarray | None = None

    @property
    def cap(self) -> float:
        return float(np.float32(self.s.variants.get("softcap", 0)))

    @property
    def bias(self) -> np.ndarray | None:
        """Returns what is added to the scores, float64 [queries, keys]."""
        return self.mask.astype(np.float64) if self.s.variants.get("mask") == "bias" else None

    def hidden(self, keys: int) -> np.ndarray | None:
        """Returns bool [queries, keys]: True if the query does not see the key. None if every query sees every key."""
        if not self.s.variants:
            return hidden(self.queries, range(keys)) if self.s.causal else None
        position, key = np.array(self.queries)[:, None] + keys - self.s.N, np.arange(keys)
        found = np.zeros((len(self.queries), keys), bool)
        if window := self.s.window:
            found |= (key <= position - window) | (key >= position + window)
        if self.s.causal:
            found |= key > position
        return found | (self.mask == 0) if self.s.mask == "bool" else found


def _reference_rows(q: np.ndarray, k: np.ndarray, v: np.ndarray, pairs: Pairs):
    """Returns (O, error scale) of queries that are already scaled, of one head; O is rounded to the shape's type."""
    keys, dtype, cap = len(k), pairs.s.dtype, pairs.cap
    plain_causal = pairs.s.causal and not pairs.s.variants
    visible = pairs.queries.stop if plain_causal else keys  # the others are hidden from all these queries
    k, v = k[:visible].astype(np.float64), v[:visible].astype(np.float64)
    p = q @ k.T
    if cap:
        p = cap * np.tanh(p / cap)
    if (bias := pairs.bias) is not None:
        p += bias
    if (unseen := pairs.hidden(keys)) is not None:
        p[unseen[:, :visible]] = -np.inf
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    if pairs.s.variants:
        p[unseen.all(axis=1)] = 0
    ref = p @ v
    np.abs(v, out=v)
    weighted_v = p @ v
    errors = np.abs(q) @ np.abs(k, out=k).T + cap
    if bias is not None:
        errors += np.abs(bias)
    p *= errors
    scale = p @ v + (1 + ROUNDED[dtype] + p.sum(axis=1, keepdims=True)) * weighted_v
    return ref, scale + (FLUSHED + STEP[dtype]) * v.sum(axis=0) + STEP[dtype]
