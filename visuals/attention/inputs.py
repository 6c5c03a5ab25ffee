"""Inputs of the attention scene: Q, K and V of one head, of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.i18n import mark

Matrices = dict[str, np.ndarray]
LARGEST = 1e4  # score of "large"; exp(88.8) is beyond float32 already
SHARP = 8.0  # factor of the codes of "lookup", in Q and in K
MAX_SEARCHED = 512  # queries and keys among which "large" finds its largest score


def qkv(s: AttentionShape, kind: str) -> Matrices:
    """Returns Q, K and V of one of KINDS, float32 [1, 1, N, d], for head 0 of sequence 0. Equal at each call."""
    matrices = KINDS[kind][1](s, np.random.default_rng(0))
    return {name: matrices[name].astype(np.float32).reshape(1, 1, s.N, s.d) for name in "QKV"}


def _whole(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    return {name: rng.integers(-2, 3, (s.N, s.d)) for name in "QKV"}


def _random(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    return {name: rng.standard_normal((s.N, s.d), np.float32) for name in "QKV"}


def _lookup(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    """Returns keys that are their number j in bits, -SHARP and SHARP, as far as d bits suffice. Query i is key N - 1 - i."""
    bits = np.arange(min(s.d, 30))
    keys = np.where(np.arange(s.N)[:, None] >> bits & 1, SHARP, -SHARP)
    keys = np.pad(keys, ((0, 0), (0, s.d - len(bits))))
    return {"Q": keys[::-1], "K": keys, "V": rng.integers(-9, 10, (s.N, s.d))}


def _large(s: AttentionShape, rng: np.random.Generator) -> Matrices:
    """Returns whole numbers, with the queries scaled until the largest score among the first is LARGEST."""
    matrices = _whole(s, rng)
    first_rows = matrices["Q"][:MAX_SEARCHED], matrices["K"][:MAX_SEARCHED]
    top = abs(s.factor) * np.abs(first_rows[0] @ first_rows[1].T).max()
    return matrices | {"Q": matrices["Q"] * (LARGEST / top if top else 1.0)}


# By name in the URL: (description, function).
KINDS: Mapping[str, tuple[str, Callable[[AttentionShape, np.random.Generator], Matrices]]] = {
    "whole": (mark("small whole numbers"), _whole),
    "random": (mark("normally distributed numbers, as in Run"), _random),
    "lookup": (mark("each key is its own number in bits; each query matches one key and gets its value"), _lookup),
    "large": (mark("scores up to 10,000; exp(10,000) overflows float32, exp(score − maximum) does not"), _large),
}  # fmt: skip
