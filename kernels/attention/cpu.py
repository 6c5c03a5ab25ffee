# ruff: noqa: E741  # O and l are the names of the paper
"""The kernels of the attention ladder in NumPy, with the same arguments: the cpu engine runs these.

Arrays have the shapes of the buffers: Q, K, V, O [B, H, N, d], S and P [B, H, N, N].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def quiet() -> np.errstate:
    """Returns a context without warnings: infinite scores give NaN, which is correct."""
    return np.errstate(invalid="ignore", over="ignore")


def heads(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields views [N, columns] of each array, head by head."""
    yield from zip(*(x.reshape(-1, *x.shape[2:]) for x in arrays), strict=True)


def as_float32(x: np.ndarray) -> np.ndarray:
    """Returns x as float32, or x itself if it is float32."""
    return x.astype(np.float32, copy=False)


def hidden(queries: range, keys: range) -> np.ndarray:
    """Returns bool [queries, keys]: True if the key comes after the query."""
    return np.asarray(keys) > np.asarray(queries)[:, None]


# -- S and P written out ----------------------------------------------------------------------------
def scores(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale, causal) -> None:
    """Compute S = scale * Q K^T without a library. Hidden scores are computed too, but never read."""
    for q, k, s in heads(Q, K, S):
        np.einsum("ic,jc->ij", q, k, out=s)
        s *= scale


def softmax(S: np.ndarray, P: np.ndarray, rows, N, causal) -> None:
    """Compute P = softmax(S) along its rows, 0 for hidden keys."""
    for s, out in heads(S, P):
        p = out if out.dtype == s.dtype else np.empty_like(s)
        np.copyto(p, s)
        if causal:
            p[hidden(range(N), range(N))] = -np.inf
        with quiet():
            p -= p.max(axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)
        out[...] = p


def values(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, causal) -> None:
    """Compute O = P V without a library."""
    for p, v, o in heads(P, V, O):
        np.einsum("ij,jc->ic", p, v, out=o)


def scores_tiled(tile: int):
    """Returns a function like 02_scores_tiled.cu: square tiles of S, in steps along d. Fully hidden tiles are skipped."""

    def compute(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale, causal) -> None:
        for q, k, s in heads(Q, K, S):
            for i in range(0, N, tile):
                for j in range(0, min(N, i + tile) if causal else N, tile):
                    square = s[i : i + tile, j : j + tile]
                    square[...] = 0
                    for c in range(0, d, tile):
                        square += q[i : i + tile, c : c + tile] @ k[j : j + tile, c : c + tile].T
                    square *= scale

    return compute


def values_tiled(tile: int):
    """Returns a function like 02_values_tiled.cu: square tiles of O, in steps along the keys."""

    def compute(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, causal) -> None:
        for p, v, o in heads(P, V, O):
            for i in range(0, N, tile):
                for c in range(0, d, tile):
                    square = o[i : i + tile, c : c + tile]
                    square[...] = 0
                    for j in range(0, min(N, i + tile) if causal else N, tile):
                        square += p[i : i + tile, j : j + tile] @ v[j : j + tile, c : c + tile]

    return compute


def library_scores(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale) -> None:
    """Compute S = scale * Q K^T with NumPy's BLAS. 16-bit types are converted to float32 first."""
    np.matmul(as_float32(Q), as_float32(K).swapaxes(2, 3), out=S)
    S *= scale


def library_values(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d) -> None:
    for p, v, o in heads(P, V, O):
        o[...] = as_float32(p) @ as_float32(v)


# -- nothing N x N ----------------------------------------------------------------------------------
def fused(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal) -> None:
    """Compute one query at a time: its scores, their softmax, the weighted mean of the values."""
    for q, k, v, o in heads(Q, K, V, O):
        for i in range(N):
            visible = i + 1 if causal else N
            s = k[:visible] @ (scale * q[i])
            with quiet():
                p = np.exp(s - s.max())
            o[i] = p @ v[:visible] / p.sum()


def flash(br: int, bc: int):
    """Returns a function like the flash kernels: br queries at a time over tiles of bc keys.

    Each row has a running maximum m and a running sum l.
    """

    def compute(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal) -> None:
        for q, k, v, o in heads(Q, K, V, O):
            for i in range(0, N, br):
                o[i : i + br] = _rows(scale * q[i : i + br], k, v, i, bc, causal)

    return compute


def flash_mma(br: int, bc: int):
    """Returns the same for 16-bit types: S, m, l and O are float32. P is rounded to V's type before it is multiplied."""

    def compute(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal) -> None:
        for q, k, v, o in heads(as_float32(Q), as_float32(K), as_float32(V), O):
            for i in range(0, N, br):
                o[i : i + br] = _rows(scale * q[i : i + br], k, v, i, bc, causal, V.dtype)

    return compute


def flash_balanced(br: int, bc: int):
    """Returns the same with one more argument, as 19_flash_balanced.cu and 20_flash_persistent.cu: the number of heads."""
    computed = flash_mma(br, bc)

    def compute(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal, heads) -> None:
        computed(Q, K, V, O, N, d, scale, causal)

    return compute


def _rows(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, bc: int, causal, p_dtype: np.dtype | None = None
) -> np.ndarray:
    """Return O of the queries from `first` on, already scaled, of one head. P is rounded to `p_dtype` if given."""
    rows, N = len(q), len(k)
    o = np.zeros_like(q)
    m, l = np.full((rows, 1), -np.inf, q.dtype), np.zeros((rows, 1), q.dtype)
    for j in range(0, min(N, first + rows) if causal else N, bc):
        s = q @ k[j : j + bc].T
        if causal and j + bc > first:
            s[hidden(range(first, first + rows), range(j, j + s.shape[1]))] = -np.inf
        new_m = np.fmax(m, np.fmax.reduce(s, axis=1, keepdims=True))  # like fmaxf: ignores NaN
        base = np.where(new_m == -np.inf, np.float32(0), new_m)
        with quiet():
            shrink, p = np.exp(m - base), np.exp(s - base)
            l = l * shrink + p.sum(axis=1, keepdims=True)
            p = p if p_dtype is None else p.astype(p_dtype).astype(p.dtype)
            o = o * shrink + p @ v[j : j + bc]
        m = new_m
    with quiet():
        return o / l
