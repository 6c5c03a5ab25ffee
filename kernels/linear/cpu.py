"""The kernels of a fully connected layer in NumPy, with the same arguments: the cpu engine runs these.

x [M, K], W [N, K], b [N], y [M, N]; dy, dx, dW and db have the shapes of y, x, W and b.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


# -- the definition ------------------------------------------------------------------------------------
def linear_naive(x: np.ndarray, W: np.ndarray, b: np.ndarray, y: np.ndarray, M, N, K) -> None:
    np.add(np.einsum("mk,nk->mn", x, W), b, out=y)


def dinput_naive(dy: np.ndarray, W: np.ndarray, dx: np.ndarray, M, N, K) -> None:
    np.einsum("mn,nk->mk", dy, W, out=dx)


def dweight_naive(dy: np.ndarray, x: np.ndarray, dW: np.ndarray, M, N, K) -> None:
    np.einsum("mn,mk->nk", dy, x, out=dW)


def column_sums(dy: np.ndarray, db: np.ndarray, M, N) -> None:
    """Add row after row to the sums of all columns."""
    db[:] = 0
    for row in dy:
        db += row


# -- tiles -----------------------------------------------------------------------------------------------
def linear_tile(bm: int, bn: int, bk: int) -> Callable[..., None]:
    """Returns a function that computes y one tile bm x bn at a time, in steps of bk along K."""

    def linear(x: np.ndarray, W: np.ndarray, b: np.ndarray, y: np.ndarray, M, N, K) -> None:
        _blocked(x, W.T, y, (bm, bn, bk))
        y += b

    return linear


def dinput_tile(bm: int, bn: int, bk: int) -> Callable[..., None]:
    """Returns a function that computes dx one tile bm x bn at a time, in steps of bk along N."""

    def dinput(dy: np.ndarray, W: np.ndarray, dx: np.ndarray, M, N, K) -> None:
        _blocked(dy, W, dx, (bm, bn, bk))

    return dinput


def dweight_tile(bm: int, bn: int, bk: int) -> Callable[..., None]:
    """Returns a function that computes dW one tile bm x bn at a time, in steps of bk along M, and db."""

    def dweight(dy: np.ndarray, x: np.ndarray, dW: np.ndarray, db: np.ndarray, M, N, K) -> None:
        _blocked(dy.T, x, dW, (bm, bn, bk))
        np.sum(dy, axis=0, out=db)

    return dweight


def _blocked(a: np.ndarray, b: np.ndarray, c: np.ndarray, tile: tuple[int, int, int]) -> None:
    """Write c = a b, one tile of c at a time."""
    bm, bn, bk = tile
    for i in range(0, a.shape[0], bm):
        for j in range(0, b.shape[1], bn):
            sums = np.zeros_like(c[i : i + bm, j : j + bn])
            for k in range(0, a.shape[1], bk):
                sums += a[i : i + bm, k : k + bk] @ b[k : k + bk, j : j + bn]
            c[i : i + bm, j : j + bn] = sums


# -- parts of the sums -----------------------------------------------------------------------------------
def linear_parts(bk: int) -> Callable[..., None]:
    """Returns a function that writes the parts of y [SPLITS, M, N], each the sum over some whole tiles of bk columns."""

    def linear(x: np.ndarray, W: np.ndarray, b: np.ndarray, parts: np.ndarray, M, N, K) -> None:
        for part, k in zip(parts, _ranges(K, bk, len(parts)), strict=True):
            np.matmul(x[:, k], W[:, k].T, out=part)

    return linear


def dinput_parts(bk: int) -> Callable[..., None]:
    """Returns a function that writes the parts of dx [SPLITS, M, K]."""

    def dinput(dy: np.ndarray, W: np.ndarray, parts: np.ndarray, M, N, K) -> None:
        for part, n in zip(parts, _ranges(N, bk, len(parts)), strict=True):
            np.matmul(dy[:, n], W[n], out=part)

    return dinput


def dweight_parts(bk: int) -> Callable[..., None]:
    """Returns a function that writes the parts of dW [SPLITS, N, K] and of db [SPLITS, N]."""

    def dweight(dy: np.ndarray, x: np.ndarray, parts: np.ndarray, db_parts: np.ndarray, M, N, K) -> None:
        for part, db_part, m in zip(parts, db_parts, _ranges(M, bk, len(parts)), strict=True):
            np.matmul(dy[m].T, x[m], out=part)
            np.sum(dy[m], axis=0, out=db_part)

    return dweight


def _ranges(terms, bk: int, splits: int) -> list[slice]:
    """Returns the terms of each part: whole tiles of bk, as equally many as possible."""
    length = ((int(terms) - 1) // bk // splits + 1) * bk
    return [slice(min(terms, n * length), min(terms, (n + 1) * length)) for n in range(splits)]


def add_parts(parts: np.ndarray, bias: np.ndarray, sums: np.ndarray, count, cols) -> None:
    np.sum(parts, axis=0, out=sums)


def add_parts_and_bias(parts: np.ndarray, bias: np.ndarray, sums: np.ndarray, count, cols) -> None:
    np.sum(parts, axis=0, out=sums)
    sums += bias


# -- the library -----------------------------------------------------------------------------------------
def bias_rows(b: np.ndarray, y: np.ndarray, M, N) -> None:
    y[:] = b


def linear_library(x: np.ndarray, W: np.ndarray, y: np.ndarray, M, N, K) -> None:
    y += x @ W.T


def dinput_library(dy: np.ndarray, W: np.ndarray, dx: np.ndarray, M, N, K) -> None:
    np.matmul(dy, W, out=dx)


def dweight_library(dy: np.ndarray, x: np.ndarray, dW: np.ndarray, M, N, K) -> None:
    np.matmul(dy.T, x, out=dW)


def sums_library(dy: np.ndarray, db: np.ndarray, M, N) -> None:
    """Multiply dy^T by ones, as the library does."""
    np.matmul(dy.T, np.ones(len(dy), dy.dtype), out=db)
