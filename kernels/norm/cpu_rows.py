"""The kernels of layer norm and RMS norm in NumPy, with the same arguments: the cpu engine runs these.

x and y are [M, N]. A CPU has no lanes and no shared memory. The number of passes over a row is that of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.norm.cpu import Moments, inverse_std, merge

TILE = 1024  # numbers of a row at a time for running moments
IN_CACHE = 2**16  # numbers of whole rows at a time that stay in a cache: 256 KB


def few_rows(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields a few rows of each array at a time."""
    step = max(1, IN_CACHE // arrays[0].shape[1])
    for first in range(0, len(arrays[0]), step):
        yield tuple(a[first : first + step] for a in arrays)


# -- layer norm ----------------------------------------------------------------------------------------
def three_reads(x, gamma, beta, y, mean, invstd, N, eps) -> None:
    """Make each pass over all rows before the next begins."""
    mean[...] = x.sum(axis=1, dtype=np.float32) / np.float32(N)
    np.subtract(x, mean[:, None], out=y)
    np.square(y, out=y)
    invstd[...] = inverse_std(y.sum(axis=1, dtype=np.float32) / np.float32(N), eps)
    _normalize(x, gamma, beta, y, mean, invstd)


def welford(x, gamma, beta, y, mean, invstd, N, eps) -> None:
    """Merge mean and M2 of one tile of columns after the other, a few rows at a time. Then compute y."""
    for rows, of_mean, of_invstd in few_rows(x, mean[:, None], invstd[:, None]):
        zeros = np.zeros(len(rows), np.float32)
        moments = Moments(0, zeros, zeros)
        for first in range(0, int(N), TILE):
            moments = merge(moments, _moments(rows[:, first : first + TILE]))
        of_mean[:, 0], of_invstd[:, 0] = moments.mean, inverse_std(moments.M2 / np.float32(N), eps)
    _normalize(x, gamma, beta, y, mean, invstd)


def _moments(x: np.ndarray) -> Moments:
    n = np.float32(x.shape[1])
    mean = x.sum(axis=1, dtype=np.float32) / n
    return Moments(n, mean, np.square(x - mean[:, None]).sum(axis=1, dtype=np.float32))


def warp(x, gamma, beta, y, mean, invstd, M, N, eps) -> None:
    registers(x, gamma, beta, y, mean, invstd, N, eps)


def registers(x, gamma, beta, y, mean, invstd, N, eps) -> None:
    """Compute a few rows at a time, with each number read from memory once."""
    for row, out, of_mean, of_invstd in few_rows(x, y, mean[:, None], invstd[:, None]):
        three_reads(row, gamma, beta, out, of_mean[:, 0], of_invstd[:, 0], N, eps)


def _normalize(x, gamma, beta, y, mean, invstd) -> None:
    np.subtract(x, mean[:, None], out=y)
    y *= invstd[:, None]
    y *= gamma
    y += beta


# -- RMS norm ------------------------------------------------------------------------------------------
def rms_two_reads(x, gamma, y, invrms, N, eps) -> None:
    """Compute the sums of squares of all rows, then y."""
    np.square(x, out=y)
    invrms[...] = inverse_std(y.sum(axis=1, dtype=np.float32) / np.float32(N), eps)
    np.multiply(x, invrms[:, None], out=y)
    y *= gamma


def rms_warp(x, gamma, y, invrms, M, N, eps) -> None:
    rms_registers(x, gamma, y, invrms, N, eps)


def rms_registers(x, gamma, y, invrms, N, eps) -> None:
    """Compute a few rows at a time, with each number read from memory once."""
    for row, out, of_invrms in few_rows(x, y, invrms[:, None]):
        rms_two_reads(row, gamma, out, of_invrms[:, 0], N, eps)


# -- backward ------------------------------------------------------------------------------------------
def backward_atomics(dy, x, gamma, mean, invstd, dx, dgamma, dbeta, N) -> None:
    """Compute dx of all rows, and add the terms of one row after the other to dgamma and dbeta."""
    backward_rows(dy, x, gamma, mean, invstd, dx, N)
    for row in range(len(x)):
        dgamma += dy[row] * ((x[row] - mean[row]) * invstd[row])
        dbeta += dy[row]


def backward_rows(dy, x, gamma, mean, invstd, dx, N) -> None:
    """Compute dx of a few rows at a time."""
    for g, row, out, of_mean, of_invstd in few_rows(dy, x, dx, mean[:, None], invstd[:, None]):
        _dx(g * gamma, (row - of_mean) * of_invstd, of_invstd, out, centred=True)


def _dx(g, xhat, factor, out, centred: bool) -> None:
    """Write factor * (g - mean of g - xhat * mean of g * xhat); without `centred` no mean of g is taken off."""
    n = np.float32(g.shape[1])
    taken = g.sum(axis=1, keepdims=True, dtype=np.float32) / n if centred else np.float32(0)
    share = (g * xhat).sum(axis=1, keepdims=True, dtype=np.float32) / n
    np.multiply(factor, g - taken - xhat * share, out=out)


def backward_columns(dy, x, mean, invstd, dgamma, dbeta, M, N) -> None:
    """Add up the terms of dgamma and dbeta, a few rows at a time."""
    dgamma[...], dbeta[...] = 0, 0
    for g, row, of_mean, of_invstd in few_rows(dy, x, mean[:, None], invstd[:, None]):
        dgamma += (g * ((row - of_mean) * of_invstd)).sum(axis=0, dtype=np.float32)
        dbeta += g.sum(axis=0, dtype=np.float32)


def backward_registers(dy, x, gamma, mean, invstd, dx, partial_gamma, partial_beta, M, N) -> None:
    """Compute dx, and the sums of the rows of each block: block b has rows b, b + blocks, ..."""
    backward_rows(dy, x, gamma, mean, invstd, dx, N)
    blocks = len(partial_gamma)
    for b in range(blocks):
        rows = slice(b, None, blocks)
        xhat = (x[rows] - mean[rows, None]) * invstd[rows, None]
        partial_gamma[b] = (dy[rows] * xhat).sum(axis=0, dtype=np.float32)
        partial_beta[b] = dy[rows].sum(axis=0, dtype=np.float32)


def rms_backward_atomics(dy, x, gamma, invrms, dx, dgamma, N) -> None:
    """Compute dx of all rows, and add the terms of one row after the other to dgamma."""
    _rms_dx(dy, x, gamma, invrms, dx)
    for row in range(len(x)):
        dgamma += dy[row] * (x[row] * invrms[row])


def rms_backward_registers(dy, x, gamma, invrms, dx, partial_gamma, M, N) -> None:
    """Compute dx, and the sums of the rows of each block: block b has rows b, b + blocks, ..."""
    _rms_dx(dy, x, gamma, invrms, dx)
    blocks = len(partial_gamma)
    for b in range(blocks):
        rows = slice(b, None, blocks)
        partial_gamma[b] = (dy[rows] * (x[rows] * invrms[rows, None])).sum(axis=0, dtype=np.float32)


def _rms_dx(dy, x, gamma, invrms, dx) -> None:
    for g, row, out, of_invrms in few_rows(dy, x, dx, invrms[:, None]):
        _dx(g * gamma, row * of_invrms, of_invrms, out, centred=False)
