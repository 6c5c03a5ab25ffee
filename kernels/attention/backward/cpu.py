# ruff: noqa: E741  # O and L are the names of the paper
"""The kernels of attention's backward pass in NumPy, with the same arguments: the cpu engine runs these.

Arrays have the shapes of the buffers: Q, K, V, O, dO and the gradients [B, H, N, d], L and D [B, H, N], P and dS
[B, H, N, N].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.attention.cpu import as_float32, heads, hidden, quiet


def row_dots(dO: np.ndarray, O: np.ndarray, D: np.ndarray, rows, d) -> None:
    """Compute D = rowsum(dO * O)."""
    np.einsum("bhid,bhid->bhi", as_float32(dO), as_float32(O), out=D)


# -- P and dS written out ---------------------------------------------------------------------------
def softmax_gradient(L: np.ndarray, D: np.ndarray, P: np.ndarray, dS: np.ndarray, N, scale, causal) -> None:
    """Compute P = exp(S - L) and dS = scale * P * (dP - D) in place of S and dP, both 0 for hidden keys."""
    masked = hidden(range(N), range(N)) if causal else None
    for l, D_row, p, ds in heads(L, D, P, dS):
        if causal:
            p[masked], ds[masked] = -np.inf, 0
        with quiet():
            np.exp(np.subtract(p, l[:, None], out=p), out=p)
        ds -= D_row[:, None]
        ds *= p
        ds *= scale


def values_transposed(tile: int):
    """Returns a function like 08_values_transposed.cu: square tiles of Y = P^T X, in steps along the queries."""

    def compute(P: np.ndarray, X: np.ndarray, Y: np.ndarray, N, d, causal) -> None:
        for p, x, y in heads(P, X, Y):
            for j in range(0, N, tile):
                for c in range(0, d, tile):
                    square = y[j : j + tile, c : c + tile]
                    square[...] = 0
                    for i in range(j if causal else 0, N, tile):
                        square += p[i : i + tile, j : j + tile].T @ x[i : i + tile, c : c + tile]

    return compute


# -- nothing N x N, one row at a time ---------------------------------------------------------------
def recompute_keys(Q, K, V, dO, L, D, dK, dV, N, d, scale, causal) -> None:
    """Compute one key at a time: its column of P and dS again, and with it dK and dV of the key."""
    for q, k, v, do, l, rowdot, dk, dv in heads(Q, K, V, dO, L, D, dK, dV):
        for j in range(N):
            seen = slice(j if causal else 0, N)
            with quiet():
                p = np.exp(scale * (q[seen] @ k[j]) - l[seen])
            ds = p * (do[seen] @ v[j] - rowdot[seen])
            dv[j] = p @ do[seen]
            dk[j] = scale * (ds @ q[seen])


def recompute_queries(Q, K, V, dO, L, D, dQ, N, d, scale, causal) -> None:
    """Compute one query at a time: its row of P and dS again, and with it dQ of the query."""
    for q, k, v, do, l, rowdot, dq in heads(Q, K, V, dO, L, D, dQ):
        for i in range(N):
            seen = slice(0, i + 1 if causal else N)
            with quiet():
                p = np.exp(scale * (k[seen] @ q[i]) - l[i])
            ds = p * (v[seen] @ do[i] - rowdot[i])
            dq[i] = scale * (ds @ k[seen])


# -- nothing N x N, in tiles ------------------------------------------------------------------------
def flash_backward(br: int, bc: int):
    """Returns a function like 10_flash_backward.cu: tiles of bc keys, br queries at a time, parts of dQ added up."""

    def compute(Q, K, V, dO, L, D, dQ, dK, dV, N, d, scale, causal) -> None:
        for q, k, v, do, l, rowdot, dq, dk, dv in heads(Q, K, V, dO, L, D, dQ, dK, dV):
            for keys in _slices(0, N, bc):
                dk[keys], dv[keys] = 0, 0
                for rows in _slices(keys.start // br * br if causal else 0, N, br):
                    p, ds = _tile(q, k, v, do, l, rowdot, rows, keys, scale, causal)
                    dv[keys] += p.T @ do[rows]
                    dk[keys] += scale * (ds.T @ q[rows])
                    dq[rows] += scale * (ds @ k[keys])

    return compute


def flash_keys(br: int, bc: int, rounded: bool = False):
    """Returns a function like the kernels of dK and dV: tiles of bc keys, br queries at a time. If `rounded`, P and dS are
    rounded to the type of Q before they are multiplied."""

    def compute(Q, K, V, dO, L, D, dK, dV, N, d, scale, causal) -> None:
        dtype = Q.dtype if rounded else None
        inputs = (as_float32(x) for x in (Q, K, V, dO))
        for q, k, v, do, l, rowdot, dk, dv in heads(*inputs, L, D, dK, dV):
            for keys in _slices(0, N, bc):
                dk_sum, dv_sum = np.zeros((2, *dk[keys].shape), np.float32)
                for rows in _slices(keys.start // br * br if causal else 0, N, br):
                    p, ds = _tile(q, k, v, do, l, rowdot, rows, keys, scale, causal)
                    dv_sum += _as(p, dtype).T @ do[rows]
                    dk_sum += _as(ds, dtype).T @ q[rows]
                dk[keys], dv[keys] = scale * dk_sum, dv_sum

    return compute


def flash_queries(br: int, bc: int, rounded: bool = False):
    """Returns a function like the kernels of dQ: br queries at a time over tiles of bc keys. `rounded` as in flash_keys."""

    def compute(Q, K, V, dO, L, D, dQ, N, d, scale, causal) -> None:
        dtype = Q.dtype if rounded else None
        inputs = (as_float32(x) for x in (Q, K, V, dO))
        for q, k, v, do, l, rowdot, dq in heads(*inputs, L, D, dQ):
            for rows in _slices(0, N, br):
                total = np.zeros(dq[rows].shape, np.float32)
                for keys in _slices(0, min(N, rows.stop) if causal else N, bc):
                    _, ds = _tile(q, k, v, do, l, rowdot, rows, keys, scale, causal)
                    total += _as(ds, dtype) @ k[keys]
                dq[rows] = scale * total

    return compute


def dots_and_queries(br: int, bc: int):
    """Returns a function like 24_flash_wgmma_queries.cu: D, then dQ as flash_queries(..., rounded=True)."""
    queries = flash_queries(br, bc, rounded=True)

    def compute(Q, K, V, dO, O, L, D, dQ, N, d, scale, causal) -> None:
        row_dots(dO, O, D, D.size, d)
        queries(Q, K, V, dO, L, D, dQ, N, d, scale, causal)

    return compute


def _tile(q, k, v, do, l, rowdot, rows: slice, keys: slice, scale, causal):
    """Returns (P, dS) of a tile of queries and a tile of keys of one head, float32; dS without the factor `scale`."""
    s = scale * (q[rows] @ k[keys].T)
    if causal and keys.stop > rows.start:
        N = len(q)
        s[hidden(range(N)[rows], range(N)[keys])] = -np.inf
    with quiet():
        p = np.exp(s - l[rows, None])
    return p, p * (do[rows] @ v[keys].T - rowdot[rows, None])


def _slices(first: int, end: int, size: int) -> Iterator[slice]:
    yield from (slice(i, i + size) for i in range(first, end, size))


def _as(x: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Returns x rounded to a type, as float32 again; x itself without one."""
    return x if dtype is None else x.astype(dtype).astype(x.dtype)
