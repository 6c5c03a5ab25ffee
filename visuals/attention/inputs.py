"""What the stage of the attention lesson computes with: Q, K and V of one head, in kinds that show something."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.attention.shape import AttentionShape

Matrices = dict[str, np.ndarray]
LARGEST = 1e4  # score of "large"; exp(88.8) is beyond float32 already
SHARP = 8.0  # what the codes of "lookup" are multiplied with, on both sides
MOST_LOOKED_AT = 512  # queries and keys by which "large" finds its largest score


def qkv(s: AttentionShape, kind: str) -> Matrices:
    """Q, K and V, float32 [1, 1, N, d], in one of KINDS: of head 0 of sequence 0, the same at each call."""
    made = KINDS[kind][1](s, np.random.default_rng(0))
    return {name: made[name].astype(np.float32).reshape(1, 1, s.N, s.d) for name in "QKV"}


def _whole(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    return {name: rng.integers(-2, 3, (s.N, s.d)) for name in "QKV"}


def _random(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    return {name: rng.standard_normal((s.N, s.d), np.float32) for name in "QKV"}


def _lookup(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    """Key j is the number j in bits of -1 and 1, where d bits have room for it; query i the key N - 1 - i."""
    bits = np.arange(min(s.d, 30))
    keys = np.where(np.arange(s.N)[:, None] >> bits & 1, SHARP, -SHARP)
    keys = np.pad(keys, ((0, 0), (0, s.d - len(bits))))
    return {"Q": keys[::-1], "K": keys, "V": rng.integers(-9, 10, (s.N, s.d))}


def _large(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    """Whole numbers, the queries stretched until the largest score among the first is LARGEST."""
    found = _whole(s, rng)
    near = found["Q"][:MOST_LOOKED_AT], found["K"][:MOST_LOOKED_AT]
    top = abs(s.factor) * np.abs(near[0] @ near[1].T).max()
    return found | {"Q": found["Q"] * (LARGEST / top if top else 1.0)}


# By its name in the address: (what it shows, what makes it).
KINDS: Mapping[str, tuple[str, Callable[[AttentionShape, np.random.Generator], Matrices]]] = {
    "whole": ("small whole numbers", _whole),
    "random": ("normally distributed, as what Run computes with", _random),
    "lookup": ("keys are their own numbers in bits, and each query asks for one of them: it gets that value", _lookup),
    "large": ("scores up to 10,000, of which no float32 holds the exponential: less the maximum it is finite", _large),
}  # fmt: skip
