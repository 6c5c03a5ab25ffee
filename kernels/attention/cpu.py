# ruff: noqa: E741  # O and l are the names of the paper
"""The kernels of the attention ladder once more in NumPy, argument for argument: what the cpu engine runs.

Arrays are as the buffers are: Q, K, V, O [B, H, N, d], S and P [B, H, N, N].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

QUIET = {"invalid": "ignore", "over": "ignore"}  # infinite scores give NaN, as they must


def heads(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Views [N, columns] of each array, head by head."""
    yield from zip(*(x.reshape(-1, *x.shape[2:]) for x in arrays), strict=True)


def wide(x: np.ndarray) -> np.ndarray:
    """x as float32; itself where it is."""
    return x.astype(np.float32, copy=False)


def hidden(queries: range, keys: range) -> np.ndarray:
    """bool [queries, keys]: True where the key comes after the query."""
    return np.asarray(keys) > np.asarray(queries)[:, None]


# -- S and P written out ----------------------------------------------------------------------------
def scores(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale, causal) -> None:
    """S = scale * Q K^T without a library. Hidden scores are computed too: nobody reads them."""
    for q, k, s in heads(Q, K, S):
        np.einsum("ic,jc->ij", q, k, out=s)
        s *= scale


def softmax(S: np.ndarray, P: np.ndarray, rows, N, causal) -> None:
    """P = softmax(S) along its rows, 0 where a key is hidden."""
    for s, out in heads(S, P):
        p = out if out.dtype == s.dtype else np.empty_like(s)
        np.copyto(p, s)
        if causal:
            p[hidden(range(N), range(N))] = -np.inf
        with np.errstate(**QUIET):
            p -= p.max(axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)
        out[...] = p


def values(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, causal) -> None:
    """O = P V without a library."""
    for p, v, o in heads(P, V, O):
        np.einsum("ij,jc->ic", p, v, out=o)


def scores_tiled(tile: int):
    """As 02_scores_tiled.cu walks it: squares of S, slid along d; those of hidden keys alone are left out."""

    def twin(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale, causal) -> None:
        for q, k, s in heads(Q, K, S):
            for i in range(0, N, tile):
                for j in range(0, min(N, i + tile) if causal else N, tile):
                    square = s[i : i + tile, j : j + tile]
                    square[...] = 0
                    for c in range(0, d, tile):
                        square += q[i : i + tile, c : c + tile] @ k[j : j + tile, c : c + tile].T
                    square *= scale

    return twin


def values_tiled(tile: int):
    """As 02_values_tiled.cu walks it: squares of O, slid along the keys."""

    def twin(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, causal) -> None:
        for p, v, o in heads(P, V, O):
            for i in range(0, N, tile):
                for c in range(0, d, tile):
                    square = o[i : i + tile, c : c + tile]
                    square[...] = 0
                    for j in range(0, min(N, i + tile) if causal else N, tile):
                        square += p[i : i + tile, j : j + tile] @ v[j : j + tile, c : c + tile]

    return twin


def library_scores(Q: np.ndarray, K: np.ndarray, S: np.ndarray, N, d, scale) -> None:
    """S = scale * Q K^T by the BLAS that NumPy is built with; 16-bit types are widened first."""
    np.matmul(wide(Q), wide(K).swapaxes(2, 3), out=S)
    S *= scale


def library_values(P: np.ndarray, V: np.ndarray, O: np.ndarray, N, d) -> None:
    for p, v, o in heads(P, V, O):
        o[...] = wide(p) @ wide(v)


# -- nothing N x N ----------------------------------------------------------------------------------
def fused(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal) -> None:
    """A query at a time: its scores, their softmax, the mean of the values."""
    for q, k, v, o in heads(Q, K, V, O):
        for i in range(N):
            seen = i + 1 if causal else N
            s = k[:seen] @ (scale * q[i])
            with np.errstate(**QUIET):
                p = np.exp(s - s.max())
            o[i] = p @ v[:seen] / p.sum()


def flash(br: int, bc: int):
    """As the flash kernels walk it: br queries at a time over tiles of bc keys, with the running maximum m and the
    running sum l of each row."""

    def twin(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal) -> None:
        for q, k, v, o in heads(Q, K, V, O):
            for i in range(0, N, br):
                o[i : i + br] = _rows(scale * q[i : i + br], k, v, i, bc, causal)

    return twin


def flash_mma(br: int, bc: int):
    """The same from 16-bit types: S, m, l and O are float32, and P is rounded to V's type before it is multiplied."""

    def twin(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, N, d, scale, causal) -> None:
        for q, k, v, o in heads(wide(Q), wide(K), wide(V), O):
            for i in range(0, N, br):
                o[i : i + br] = _rows(scale * q[i : i + br], k, v, i, bc, causal, V.dtype)

    return twin


def _rows(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int, bc: int, causal, held: np.dtype | None = None
) -> np.ndarray:
    """O of the queries from `first` on, already scaled, of one head; P is multiplied as `held` has it."""
    rows, N = len(q), len(k)
    o = np.zeros_like(q)
    m, l = np.full((rows, 1), -np.inf, q.dtype), np.zeros((rows, 1), q.dtype)
    for j in range(0, min(N, first + rows) if causal else N, bc):
        s = q @ k[j : j + bc].T
        if causal and j + bc > first:
            s[hidden(range(first, first + rows), range(j, j + s.shape[1]))] = -np.inf
        most = np.fmax(m, np.fmax.reduce(s, axis=1, keepdims=True))  # as fmaxf: a NaN is no maximum
        base = np.where(most == -np.inf, np.float32(0), most)
        with np.errstate(**QUIET):
            shrink, p = np.exp(m - base), np.exp(s - base)
            l = l * shrink + p.sum(axis=1, keepdims=True)
            p = p if held is None else p.astype(held).astype(p.dtype)
            o = o * shrink + p @ v[j : j + bc]
        m = most
    with np.errstate(**QUIET):
        return o / l
