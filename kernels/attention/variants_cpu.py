# ruff: noqa: E741  # O and l are the names of the papers
"""The kernels of attention's variants in NumPy, with the same arguments: the cpu engine runs these.

Q and O are [B, H, N, d], K and V [B, kv_heads, M, d]. A mask [N, M] follows V if there is one: bytes, 0 for a hidden pair,
or a bias that is added to the scores. Query i has the position i + M - N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kernels.attention.cpu import as_float32, quiet

LOG2E = np.float32(1.44269504)
LARGEST = np.float32(2.3e38)  # times LOG2E, it is finite
Heads = Iterator[tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Scores:
    """How the scores of a head follow from its queries and keys."""

    N: int
    M: int
    scale: float
    causal: int
    window: int
    cap: float
    mask: np.ndarray | None = None

    def ends(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first key that each query sees, and the key after the last."""
        position = queries + (self.M - self.N)
        begin = np.clip(position - self.window + 1, 0, self.M) if self.window else np.zeros_like(position)
        if not (self.causal or self.window):
            return begin, np.full_like(position, self.M)
        return begin, np.clip(position + (1 if self.causal else self.window), 0, self.M)

    def of(self, q: np.ndarray, k: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Returns the scores [queries, keys] of rows of Q and K with these numbers, -inf for hidden pairs."""
        s = np.float32(self.scale) * q @ k.T
        if self.cap:
            s = self.cap * np.tanh(s / self.cap)
        begin, end = (edge[:, None] for edge in self.ends(queries))
        hidden = (keys < begin) | (keys >= end)
        if self.mask is not None:
            part = self.mask[np.ix_(queries, keys)]
            if part.dtype == np.uint8:
                hidden |= part == 0
            else:
                s = s + as_float32(part)
        s[hidden] = -np.inf
        return s


def _arguments(args: tuple) -> tuple[np.ndarray | None, tuple]:
    """Returns the mask, if the first argument is one, and the others. Outputs have more axes than a mask."""
    return (args[0], args[1:]) if np.ndim(args[0]) == 2 else (None, args)


def _heads(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, sharing: int) -> Heads:
    """Yields q [N, d], k and v [M, d] as float32 and o [N, d] of each head of Q."""
    q, o = (x.reshape(-1, *x.shape[2:]) for x in (Q, O))
    k, v = (as_float32(x).reshape(-1, *x.shape[2:]) for x in (K, V))
    for head in range(len(q)):
        yield as_float32(q[head]), k[head // sharing], v[head // sharing], o[head]


def flash(br: int, bc: int, rounds: bool = False) -> Callable[..., None]:
    """Returns a function like the flash kernels: br queries at a time over those tiles of bc keys that one of them sees. With
    `rounds`, P is rounded to V's type."""

    def compute(Q: np.ndarray, K: np.ndarray, V: np.ndarray, *others) -> None:
        mask, (O, N, M, _, sharing, scale, causal, window, cap) = _arguments(others)
        scores = Scores(int(N), int(M), scale, causal, int(window), cap, mask)
        for q, k, v, o in _heads(Q, K, V, O, sharing):
            for i in range(0, N, br):
                queries = np.arange(i, min(i + br, N))
                o[queries] = _rows(scores, q[queries], k, v, queries, bc, V.dtype if rounds else None)

    return compute


def _rows(scores: Scores, q, k, v, queries: np.ndarray, bc: int, p_dtype: np.dtype | None) -> np.ndarray:
    """Returns O of some queries of one head."""
    begin, end = scores.ends(queries)
    o = np.zeros_like(q)
    m, l = np.full((len(q), 1), -np.inf, q.dtype), np.zeros((len(q), 1), q.dtype)
    for j in range(int(begin[0]) // bc * bc, int(end[-1]), bc):
        keys = np.arange(j, min(j + bc, scores.M))
        s = scores.of(q, k[keys], queries, keys)
        new_m = np.fmax(m, np.fmax.reduce(s, axis=1, keepdims=True))  # like fmaxf: ignores NaN
        base = np.where(new_m == -np.inf, np.float32(0), new_m)
        with quiet():
            shrink, p = np.exp(m - base), np.exp(s - base)
            l = l * shrink + p.sum(axis=1, keepdims=True)
            p = p if p_dtype is None else p.astype(p_dtype).astype(p.dtype)
            o = o * shrink + p @ v[keys]
        m = new_m
    return divided(o, l)


def divided(o: np.ndarray, l: np.ndarray) -> np.ndarray:
    """Returns o / l, and 0 for a query that sees no key."""
    with quiet():
        return o / np.where(l == 0, np.float32(1), l)


# -- the keys in parts ----------------------------------------------------------------------------------
def decode_parts(part: int) -> Callable[..., None]:
    """Returns a function like 32_decode_parts.cu: the softmax of each part of the keys alone, as m, l and o of each row. As
    there, weights are powers of 2, and m is an exponent of 2."""

    def compute(Q: np.ndarray, K: np.ndarray, V: np.ndarray, *others) -> None:
        mask, (m, l, o, N, M, d, rows, scale, causal, window, cap) = _arguments(others)
        scores = Scores(int(N), int(M), scale, causal, int(window), cap, mask)
        q = as_float32(Q).reshape(-1, rows, d)
        k, v = (as_float32(x).reshape(-1, M, d) for x in (K, V))
        parts = m.shape[-1]
        m, l, o = m.reshape(-1, rows, parts), l.reshape(-1, rows, parts), o.reshape(-1, rows, parts, d)
        queries = np.arange(rows) % N
        first = int(scores.ends(np.zeros(1, int))[0][0])
        for head in range(len(q)):
            for n in range(parts):
                keys = np.arange(first + n * part, min(first + (n + 1) * part, M))
                s = _exponents(scores.of(q[head], k[head, keys], queries, keys))
                m[head, :, n] = top = np.fmax.reduce(s, axis=1)
                p = np.exp2(s - np.where(top == -np.inf, np.float32(0), top)[:, None])
                l[head, :, n], o[head, :, n] = p.sum(axis=1), p @ v[head, keys]

    return compute


def _exponents(scores: np.ndarray) -> np.ndarray:
    """Returns scores as exponents of 2. A finite score stays finite, also beside a bias of the lowest number."""
    finite = np.isfinite(scores)
    return LOG2E * np.where(finite, np.clip(scores, -LARGEST, LARGEST), scores)


def decode_merge(part_m: np.ndarray, part_l: np.ndarray, part_o: np.ndarray, O: np.ndarray, parts, d) -> None:
    """Compute O from m, l [B, H, N, parts] and o [B, H, N, parts, d] of the parts."""
    m = part_m.max(axis=3, keepdims=True)
    rescale = np.exp2(part_m - np.where(m == -np.inf, np.float32(0), m))
    l, o = (rescale * part_l).sum(axis=3), (rescale[..., None] * part_o).sum(axis=3)
    O[...] = divided(o, l[..., None])


def decode_ring(Q: np.ndarray, K: np.ndarray, V: np.ndarray, *others) -> None:
    """Compute O like 35_decode_ring.cu: the parts as decode_parts, then their merge. The last argument is the keys of a
    part. Results of one part are not stored."""
    mask, (part_ml, part_o, _, O, *extents, part) = _arguments(others)
    whole = part_ml.size == 2  # one part
    shape = (*O.shape[:3], 1 if whole else part_ml.shape[3])
    m, l, o = np.empty(shape, "f4"), np.empty(shape, "f4"), np.empty((*shape, O.shape[3]), "f4")
    masks = () if mask is None else (mask,)
    decode_parts(int(part))(Q, K, V, *masks, m, l, o, *extents)
    decode_merge(m, l, o, O, shape[3], O.shape[3])
    if not whole:
        part_ml[..., 0], part_ml[..., 1], part_o[...] = m, l, o
