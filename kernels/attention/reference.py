"""The float64 reference of attention, with the scale of the rounding error of float32."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from kernels.attention.cpu import hidden
from kernels.attention.shape import SelfAttentionShape
from kernels.model.at_once import MAX_THREADS, at_once
from kernels.model.references import on_gpu

TOLERANCE = 5e-6  # allowed error of a rung, as a fraction of the scale: a hundred times the errors measured
CHUNK = 2**19  # scores at a time: they are never all in memory at once
GPU_CHUNK = 2**24  # on a GPU: 1 GB
FLUSHED = 2.0**-100  # of |v|: weights below 2^-126 of the largest may become 0; that, divided by any tolerance
# The rounding of a score and its bias, relative to the bias: four times that of float32.
ADDED = 2.0**-22 / TOLERANCE
ABSORBED = 2.0**26  # so many times as large as a score, a bias plus the score is the bias in float32
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
    error of a score, because its derivative is at most 1. Its own error is a multiple of the cap, which a_ij grows by.

    A bias b_ij is added in float32, as in PyTorch. A small score is lost beside a large bias: a row of scores with the
    lowest number added has equal weights. The sum's rounding adds ADDED |b_ij| to a_ij. It adds nothing where the score is
    lost and the bias is the largest of its row: such sums are equal.
    """
    q = Q.reshape(s.heads, s.N, s.d)
    k, v = (x.reshape(-1, *x.shape[2:]) for x in (K, V))
    return on_gpu(lambda cupy: _on_gpu(cupy, s, q, k, v, mask)) or _on_host(s, q, k, v, mask)


def _on_gpu(cupy: ModuleType, s: SelfAttentionShape, q, k, v, mask) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same, computed by CuPy, one part after another."""
    ref, scale = np.empty((2, s.heads, s.N, s.d))
    for part in _parts(s, len(k[0]), GPU_CHUNK):
        ref[part], scale[part] = map(cupy.asnumpy, _rows(s, part, q, k, v, mask, cupy.asarray))
    return ref.reshape(s.qkv_shape), scale.reshape(s.qkv_shape)


def _on_host(s: SelfAttentionShape, q, k, v, mask) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same, computed by NumPy in several threads."""
    ref, scale = np.empty((2, s.heads, s.N, s.d))

    def compute(part: tuple[int, slice]) -> None:
        ref[part], scale[part] = _rows(s, part, q, k, v, mask, np.asarray)

    at_once(compute, _parts(s, len(k[0]), CHUNK), MAX_THREADS)
    return ref.reshape(s.qkv_shape), scale.reshape(s.qkv_shape)


def _parts(s: SelfAttentionShape, keys: int, chunk: int) -> list[tuple[int, slice]]:
    """Returns (head, queries) of each part of the result: at most `chunk` scores, but at least one query."""
    rows = max(1, chunk // keys)
    return [(head, slice(first, first + rows)) for head in range(s.heads) for first in range(0, s.N, rows)]


def _rows(s: SelfAttentionShape, part: tuple[int, slice], q, k, v, mask, asarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (O, error scale) of some queries of one head; O is rounded to the shape's type. q [heads, N, d], k and v
    [heads of K, M, d], mask [N, M] or None. `asarray` is that of NumPy or CuPy, and its arrays are returned."""
    head, block = part
    queries, keys, shared = range(s.N)[block], k.shape[1], head * len(k) // s.heads
    # The keys after these are hidden from all these queries.
    visible = queries.stop if s.causal and not s.variants else keys
    q, k, v = (asarray(x.astype(np.float64)) for x in (q[head, block], k[shared, :visible], v[shared, :visible]))
    cap = float(np.float32(s.variants.get("softcap", 0)))
    rounding = 0.0  # of an added bias
    bias = asarray(mask[block].astype(np.float64)) if s.variants.get("mask") == "bias" else None
    unseen = _hidden(s, queries, keys, None if mask is None else mask[block])
    with np.errstate(invalid="ignore", over="ignore"):  # infinite scores give NaN, which is correct
        q *= float(np.float32(s.factor))
        p = q @ k.T
        if cap:
            p = cap * np.tanh(p / cap)
        if bias is not None:
            rounding = _add_bias(p, bias, None if unseen is None else asarray(unseen[:, :visible]))
        if unseen is not None:
            p[asarray(unseen[:, :visible])] = -np.inf
        p -= p.max(axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)
        if s.variants and unseen is not None:
            p[asarray(unseen.all(axis=1))] = 0
        ref = p @ v
        np.abs(v, out=v)
        weighted_v = p @ v
        errors = np.abs(q) @ np.abs(k, out=k).T + cap
        errors += rounding
        p *= errors
        scale = p @ v + (1 + ROUNDED[s.dtype] + p.sum(axis=1, keepdims=True)) * weighted_v
        return ref, scale + (FLUSHED + STEP[s.dtype]) * v.sum(axis=0) + STEP[s.dtype]


def _add_bias(scores: np.ndarray, bias: np.ndarray, unseen: np.ndarray | None) -> np.ndarray:
    """Adds a bias to scores, in place, and returns the size of the roundings, as terms of a_ij."""
    lost = np.abs(bias) > ABSORBED * np.abs(scores)
    scores += bias
    scores[lost] = bias[lost]
    rounding = ADDED * np.abs(bias)
    seen = bias.copy()
    if unseen is not None:
        seen[unseen] = -np.inf
    rounding[lost & (bias == seen.max(axis=1, keepdims=True))] = 0
    rounding[np.isinf(bias)] = 0  # the pair is hidden
    return rounding


def _hidden(s: SelfAttentionShape, queries: range, keys: int, mask: np.ndarray | None) -> np.ndarray | None:
    """Returns bool [queries, keys]: True if the query does not see the key. None if every query sees every key."""
    if not s.variants:
        return hidden(queries, range(keys)) if s.causal else None
    position, key = np.array(queries)[:, None] + keys - s.N, np.arange(keys)
    found = np.zeros((len(queries), keys), bool)
    if window := s.variants.get("window"):
        found |= (key <= position - window) | (key >= position + window)
    if s.causal:
        found |= key > position
    return found | (mask == 0) if s.variants.get("mask") == "bool" else found
