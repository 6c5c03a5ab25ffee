"""The kernels of the softmax ladder in NumPy, with the same arguments: the cpu engine runs these.

x and y are [M, N]. A CPU has no lanes and no shared memory. The number of passes over a row is that of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

TILE = 1024  # numbers of a row at a time for a running maximum and sum
IN_CACHE = 2**16  # numbers of whole rows at a time that stay in a cache: 256 KB
SCRATCH = 2**13  # exponentials of whole rows at a time that are not kept: 32 KB


def quiet() -> np.errstate:
    """Returns a context without warnings: infinities give NaN, which is correct."""
    return np.errstate(invalid="ignore", over="ignore", divide="ignore")


def unsafe(x: np.ndarray, y: np.ndarray, N) -> None:
    """Compute exponentials without a maximum, their sum, the division."""
    with quiet():
        np.exp(x, out=y)
        y /= y.sum(axis=1, keepdims=True)


def three_pass(x: np.ndarray, y: np.ndarray, N) -> None:
    """Make each pass over all rows before the next begins."""
    with quiet():
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        y /= y.sum(axis=1, keepdims=True)


def online(x: np.ndarray, y: np.ndarray, N) -> None:
    """Compute the maximum and sum of all rows, then the results of all rows."""
    _finish(x, y, *running(x, y))


def warp_shuffle(x: np.ndarray, y: np.ndarray, M, N) -> None:
    """Compute a few rows at a time: they are still in a cache when their results are written."""
    for row, out in _few_rows(x, y):
        online(row, out, N)


def registers(x: np.ndarray, y: np.ndarray, N) -> None:
    """Compute a few rows at a time, with each number read from memory once."""
    for row, out in _few_rows(x, y):
        three_pass(row, out, N)


def split_parts(x: np.ndarray, part_m: np.ndarray, part_l: np.ndarray, N, splits) -> None:
    """Compute the maximum and the sum of each of the parts [M, splits] of all rows."""
    for rows, split, cols in _parts(x, int(splits)):
        part = x[rows, cols]
        part_m[rows, split], part_l[rows, split] = running(part, np.empty_like(part))


def split_finish(x: np.ndarray, part_m: np.ndarray, part_l: np.ndarray, y: np.ndarray, N, splits) -> None:
    """Merge the parts of each row, then compute its results part by part."""
    with quiet():
        m = np.fmax.reduce(part_m, axis=1, keepdims=True)
        base = np.where(m == -np.inf, np.float32(0), m)
        l = (part_l * np.exp(part_m - base)).sum(axis=1, keepdims=True)  # noqa: E741
    for rows, _, cols in _parts(x, int(splits)):
        _finish(x[rows, cols], y[rows, cols], m[rows], l[rows])


def one_launch(x: np.ndarray, y: np.ndarray, part_ml: np.ndarray, N, splits) -> None:
    """Compute a few rows at a time, as `registers`. part_ml [M, splits], words that blocks exchange, is not used."""
    registers(x, y, N)


def _parts(x: np.ndarray, splits: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yields (rows, the column of part_m, columns) of each part. As in the kernel, a part after the first begins at a
    multiple of four floats from the beginning of x."""
    M, N = x.shape
    if splits == 1:
        rows = max(1, SCRATCH // N)
        yield from ((slice(i, i + rows), slice(0, 1), slice(0, N)) for i in range(0, M, rows))
        return
    for row in range(M):
        before = row * N % 4
        length = 4 * -(-(before + N) // (4 * splits))
        for split in range(splits):
            start = split * length - before
            yield slice(row, row + 1), slice(split, split + 1), slice(max(start, 0), max(start + length, 0))


def running(x: np.ndarray, scratch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (m, l), float32 [M, 1]: the maximum of each row and the sum of exp(x - m), one tile of columns at a time.

    The sum is rescaled whenever the maximum grows. `scratch` has the shape of x and is overwritten.
    """
    m = np.full((len(x), 1), -np.inf, np.float32)
    l = np.zeros_like(m)  # noqa: E741  # the name of the paper
    with quiet():
        for j in range(0, x.shape[1], TILE):
            part, scratch_part = x[:, j : j + TILE], scratch[:, j : j + TILE]
            new_m = np.fmax(m, np.fmax.reduce(part, axis=1, keepdims=True))  # like fmaxf: ignores NaN
            base = np.where(new_m == -np.inf, np.float32(0), new_m)
            np.exp(np.subtract(part, base, out=scratch_part), out=scratch_part)
            l = l * np.exp(m - base) + scratch_part.sum(axis=1, keepdims=True)  # noqa: E741
            m = new_m
    return m, l


def _finish(x: np.ndarray, y: np.ndarray, m: np.ndarray, l: np.ndarray) -> None:  # noqa: E741
    with quiet():
        np.subtract(x, m, out=y)
        np.exp(y, out=y)
        y /= l


def _few_rows(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rows = max(1, IN_CACHE // x.shape[1])
    for i in range(0, len(x), rows):
        yield x[i : i + rows], y[i : i + rows]
