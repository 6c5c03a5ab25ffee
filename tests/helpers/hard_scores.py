"""Attention inputs with difficult scores, of the shape's type: of every size, all equal, masked, infinite, NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels.attention import ladder as attention_ladder
from kernels.attention.shape import AttentionShape
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs

CORRUPTED = {  # input, index in it (N, d), value
    "a NaN query": ("Q", (9, 2), np.nan),
    "an infinite query": ("Q", (9, 2), np.inf),
    "a NaN key": ("K", (11, 0), np.nan),
    "keys of -infinity": ("K", (slice(0, 18), slice(0, 1)), -np.inf),  # more than a small tile has
    "keys of +-infinity": ("K", (slice(3, 6), slice(0, 1)), np.array([[-np.inf], [np.inf], [-np.inf]])),
    "all keys of -infinity": ("K", (slice(None), slice(0, 1)), -np.inf),
    "an infinite value": ("V", (0, 1), np.inf),  # of a key that every query uses
    "a NaN value": ("V", (0, 3), np.nan),
}


def seeded(s: AttentionShape, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns seeded Q, K and V of a shape."""
    return seeded_inputs([b for b in attention_ladder.parts.buffers(s) if b.role == INPUT], seed)


def corrupted(what: str, s: AttentionShape) -> dict[str, np.ndarray]:
    """Returns Q, K and V with one of SPOILT in them. s.N must be more than 18."""
    inputs = seeded(s)
    name, index, value = CORRUPTED[what]
    Q = inputs["Q"]
    Q[..., 0] = np.abs(Q[..., 0]) + np.asarray(0.1, Q.dtype)  # else -infinity times it could be +infinity
    inputs[name][(..., *index)] = value
    return inputs


def side_by_side(kinds: Sequence[str], s: AttentionShape) -> tuple[AttentionShape, dict[str, np.ndarray]]:
    """Returns a shape with one batch element for each kind, and its `adversarial` Q, K and V: one launch computes all, and
    the reference and its scale of a head depend on no other."""
    return stacked(s, [adversarial(kind, s) for kind in kinds])


def stacked(
    s: AttentionShape, inputs: Sequence[Mapping[str, np.ndarray]]
) -> tuple[AttentionShape, dict[str, np.ndarray]]:
    """Returns a shape whose batch has the inputs of several runs of a shape with B = 1, and these inputs in one."""
    return s.with_(B=len(inputs)), {name: np.concatenate([x[name] for x in inputs]) for name in "QKV"}


def adversarial(kind: str, s: AttentionShape) -> dict[str, np.ndarray]:
    """Returns finite Q, K and V whose scores are difficult at scale 1."""
    inputs = seeded(s, 4)
    Q, K, V = (inputs[name].astype("f4") for name in "QKV")
    if kind == "logits of 1e4":  # sums of +-1e4 / sqrt(d)
        Q, K = 100 * np.sign(Q), 100 * np.sign(K) / s.d**0.5
    elif kind == "logits of 1e9":  # the rounding of the maximum is larger than any exponent that fits
        Q, K = 30_000 * Q.clip(-2, 2), 30_000 * K.clip(-2, 2)
    elif kind == "all equal":
        Q = 0 * Q
    elif kind == "one hot":  # key i for query i, far above all others
        Q, K = 0 * Q, 0 * K
        for i in range(s.N):
            Q[:, :, i, i % s.d] = K[:, :, i, i % s.d] = 100
    elif kind == "rising":  # the maximum moves in every tile
        Q, K = 0 * Q + 1, 0 * K + np.arange(s.N)[:, None] / s.d
    elif kind == "falling":  # the first key has nearly all weight
        Q, K = 0 * Q + 1, 0 * K - 1e4 * np.arange(s.N)[:, None] / s.d
    elif kind == "values of every size":  # beyond the range of FP16
        V = 10.0 ** np.random.default_rng(2).uniform(-20, 20, V.shape) * np.sign(V)
    elif kind == "large values of small weights":  # P below the smallest number of FP16
        Q, K = 0 * Q + 1, 0 * K
        K[:, :, 1:] = -17.4 / s.d
        V, V[:, :, 0] = 6e4 * np.sign(V), 1e-4
    return {name: x.astype(inputs[name].dtype) for name, x in zip("QKV", (Q, K, V), strict=True)}
