"""Inputs of the attention scene: Q, K and V of one head, of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark

Matrices = dict[str, np.ndarray]
LARGEST = 1e4  # score of "large"; exp(88.8) is beyond float32 already
SHARP = 8.0  # factor of the codes of "lookup", in Q and in K
MAX_SEARCHED = 512  # queries and keys among which "large" finds its largest score


def qkv(s: SelfAttentionShape, kind: str) -> Matrices:
    """Returns Q, K and V of one of KINDS, float32 [1, 1, rows, d], for head 0 of sequence 0, and the mask if the shape has
    one. Equal at each call. If heads share keys, Q has the queries of all heads that share those of head 0."""
    matrices = KINDS[kind][1](s, np.random.default_rng(0))
    found = {name: matrices[name].astype(np.float32).reshape(1, 1, -1, s.d) for name in "QKV"}
    return found | _mask(s)


def _mask(s: SelfAttentionShape) -> Matrices:
    kind, size = s.variants.get("mask", "none"), (s.N, s.keys)
    if kind == "none":
        return {}
    rng = np.random.default_rng(1)
    return {"mask": rng.integers(0, 2, size, "u1") if kind == "bool" else rng.integers(-2, 3, size).astype("f4")}


def _sizes(s: SelfAttentionShape) -> dict[str, tuple[int, int]]:
    return {"Q": (s.sharing * s.N, s.d), "K": (s.keys, s.d), "V": (s.keys, s.d)}


def _whole(s: SelfAttentionShape, rng: np.random.Generator) -> Matrices:
    return {name: rng.integers(-2, 3, size) for name, size in _sizes(s).items()}


def _random(s: SelfAttentionShape, rng: np.random.Generator) -> Matrices:
    return {name: rng.standard_normal(size, np.float32) for name, size in _sizes(s).items()}


def _lookup(s: SelfAttentionShape, rng: np.random.Generator) -> Matrices:
    """Returns keys that are their number j in bits, -SHARP and SHARP, as far as d bits suffice. Query i is key M - 1 - i, of
    M keys."""
    bits, count = np.arange(min(s.d, 30)), s.keys
    keys = np.where(np.arange(count)[:, None] >> bits & 1, SHARP, -SHARP)
    keys = np.pad(keys, ((0, 0), (0, s.d - len(bits))))
    queries = keys[(count - 1 - np.arange(s.sharing * s.N)) % count]
    return {"Q": queries, "K": keys, "V": rng.integers(-9, 10, (count, s.d))}


def _large(s: SelfAttentionShape, rng: np.random.Generator) -> Matrices:
    """Returns whole numbers, with the queries scaled until the largest score among the first is LARGEST."""
    matrices = _whole(s, rng)
    first_rows = matrices["Q"][:MAX_SEARCHED], matrices["K"][:MAX_SEARCHED]
    top = abs(s.factor) * np.abs(first_rows[0] @ first_rows[1].T).max()
    return matrices | {"Q": matrices["Q"] * (LARGEST / top if top else 1.0)}


# By name in the URL: (description, function).
KINDS: Mapping[str, tuple[str, Callable[[SelfAttentionShape, np.random.Generator], Matrices]]] = {
    "whole": (mark("small whole numbers"), _whole),
    "random": (mark("normally distributed numbers, as in Run"), _random),
    "lookup": (mark("each key is its own number in bits; each query matches one key and gets its value"), _lookup),
    "large": (mark("scores up to 10,000; exp(10,000) overflows float32, exp(score − maximum) does not"), _large),
}
