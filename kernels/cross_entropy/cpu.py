"""The kernels of cross-entropy in NumPy, with the same arguments: the cpu engine runs these.

x and dx are [M, N]; labels, loss, lse and g are [M]. A CPU has no lanes and no shared memory. How often a row is read is as
in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.model.log_sum import log_sum_exp

TILE = 1024  # numbers of a row at a time for a running maximum and sum
IN_CACHE = 2**16  # numbers of whole rows at a time that stay in a cache: 256 KB
LOWEST = np.float32(np.finfo(np.float32).min)


# -- loss ----------------------------------------------------------------------------------------------
def softmax_rows(x: np.ndarray, p: np.ndarray, lse: np.ndarray, N) -> None:
    """Write softmax(x) to p and the log-sum-exp of each row to lse."""
    m = x.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # a row with +infinity gives NaN, as in PyTorch
        np.exp(np.subtract(x, m, out=p), out=p)
    l = p.sum(axis=1, keepdims=True)  # noqa: E741  # the name of the paper
    p /= l
    lse[:] = log_sum_exp(m, l)[:, 0]


def logarithm(p: np.ndarray, log_p: np.ndarray, count) -> None:
    """Write log(p). A probability that became 0 gives -infinity, as in the kernel."""
    with np.errstate(divide="ignore"):
        np.log(p, out=log_p)


def pick(log_p: np.ndarray, labels: np.ndarray, loss: np.ndarray, M, N) -> None:
    np.negative(log_p[np.arange(len(labels)), labels], out=loss)


def two_pass(x: np.ndarray, labels: np.ndarray, loss: np.ndarray, lse: np.ndarray, N) -> None:
    """Compute the maxima of all rows, then the sums of all rows."""
    m = x.max(axis=1)
    _finish(x, labels, loss, lse, m, np.exp(x - m[:, None]).sum(axis=1))


def online(x: np.ndarray, labels: np.ndarray, loss: np.ndarray, lse: np.ndarray, N) -> None:
    """Compute maximum and sum together, one tile of columns at a time."""
    _finish(x, labels, loss, lse, *running(x))


def split_rows(x: np.ndarray, part_m: np.ndarray, part_l: np.ndarray, N) -> None:
    """Write maximum and sum of each of the parts [M, SPLITS] of all rows."""
    splits = part_m.shape[1]
    length = (x.shape[1] - 1) // splits + 1
    for split in range(splits):
        part_m[:, split], part_l[:, split] = running(x[:, split * length : (split + 1) * length])


def merge_parts(
    x: np.ndarray, labels: np.ndarray, part_m: np.ndarray, part_l: np.ndarray, loss: np.ndarray, lse: np.ndarray, M, N
) -> None:
    m = part_m.max(axis=1)
    _finish(x, labels, loss, lse, m, (part_l * np.exp(part_m - m[:, None])).sum(axis=1))


def running(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (m, l), float32 [M]: the maximum of each row and the sum of exp(x - m), one tile of columns at a time.

    The sum is rescaled whenever the maximum grows."""
    m, l = np.full(len(x), LOWEST), np.zeros(len(x), np.float32)  # noqa: E741
    for j in range(0, x.shape[1], TILE):
        part = x[:, j : j + TILE]
        new_m = np.maximum(m, part.max(axis=1))
        l = l * np.exp(m - new_m) + np.exp(part - new_m[:, None]).sum(axis=1)  # noqa: E741
        m = new_m
    return m, l


def _finish(x: np.ndarray, labels: np.ndarray, loss: np.ndarray, lse: np.ndarray, m, l) -> None:  # noqa: E741
    lse[:] = log_sum_exp(m, l)
    with np.errstate(invalid="ignore"):
        np.subtract(np.log(l), x[np.arange(len(labels)), labels] - m, out=loss)


# -- gradient ------------------------------------------------------------------------------------------
def gradient(x: np.ndarray, labels: np.ndarray, lse: np.ndarray, g: np.ndarray, dx: np.ndarray, M, N) -> None:
    """Write the gradient, each operation over all rows before the next."""
    np.exp(np.subtract(x, lse[:, None], out=dx), out=dx)
    dx[np.arange(len(labels)), labels] -= 1
    dx *= g[:, None]


def gradient_rows(x: np.ndarray, labels: np.ndarray, lse: np.ndarray, g: np.ndarray, dx: np.ndarray, N) -> None:
    """Write the gradient a few rows at a time: they stay in a cache between the operations."""
    for rows in _few_rows(x):
        gradient(x[rows], labels[rows], lse[rows], g[rows], dx[rows], None, N)


def gradient_pieces(
    x: np.ndarray, labels: np.ndarray, lse: np.ndarray, g: np.ndarray, dx: np.ndarray, N, pieces
) -> None:
    """Write the gradient a few rows at a time. The blocks of a GPU take pieces of a row."""
    gradient_rows(x, labels, lse, g, dx, N)


def fused_step(x: np.ndarray, labels: np.ndarray, g: np.ndarray, loss: np.ndarray, dx: np.ndarray, N) -> None:
    """Compute the loss, then the gradient, of a few rows at a time."""
    for rows in _few_rows(x):
        lse = np.empty_like(g[rows])
        online(x[rows], labels[rows], loss[rows], lse, N)
        gradient(x[rows], labels[rows], lse, g[rows], dx[rows], None, N)


def _few_rows(x: np.ndarray) -> Iterator[slice]:
    rows = max(1, IN_CACHE // x.shape[1])
    for first in range(0, len(x), rows):
        yield slice(first, first + rows)
