"""The kernels of the softmax ladder once more in NumPy, argument for argument: what the cpu engine runs.

x and y are [M, N]. A processor has no lanes and no shared memory; what is kept is how often a row is walked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

TILE = 1024  # numbers of a row at a time where maximum and sum run along
NEAR = 2**16  # numbers of whole rows at a time that stay in a cache: 256 KB
QUIET = {"invalid": "ignore", "over": "ignore", "divide": "ignore"}  # infinities give NaN, as they must


def unsafe(x: np.ndarray, y: np.ndarray, N) -> None:
    """Exponentials as they come, their sum, the division."""
    with np.errstate(**QUIET):
        np.exp(x, out=y)
        y /= y.sum(axis=1, keepdims=True)


def three_pass(x: np.ndarray, y: np.ndarray, N) -> None:
    """Each pass over all rows before the next begins."""
    with np.errstate(**QUIET):
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        y /= y.sum(axis=1, keepdims=True)


def online(x: np.ndarray, y: np.ndarray, N) -> None:
    """Maximum and sum of all rows, then the results of all."""
    _finish(x, y, *running(x, y))


def warp_shuffle(x: np.ndarray, y: np.ndarray, M, N) -> None:
    """A few rows at a time: when their results are written they are still in a cache."""
    for row, out in _few(x, y):
        online(row, out, N)


def registers(x: np.ndarray, y: np.ndarray, N) -> None:
    """A few rows at a time, each number of them read from memory once."""
    for row, out in _few(x, y):
        three_pass(row, out, N)


def running(x: np.ndarray, scratch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, l), float32 [M, 1]: the maximum of each row and the sum of exp(x - m), tile after tile of its columns, the
    sum rescaled wherever the maximum grows. `scratch` is like x, and is overwritten."""
    m = np.full((len(x), 1), -np.inf, np.float32)
    l = np.zeros_like(m)  # noqa: E741  # the name of the paper
    with np.errstate(**QUIET):
        for j in range(0, x.shape[1], TILE):
            part, room = x[:, j : j + TILE], scratch[:, j : j + TILE]
            most = np.fmax(m, np.fmax.reduce(part, axis=1, keepdims=True))  # as fmaxf: a NaN is no maximum
            base = np.where(most == -np.inf, np.float32(0), most)
            np.exp(np.subtract(part, base, out=room), out=room)
            l = l * np.exp(m - base) + room.sum(axis=1, keepdims=True)  # noqa: E741
            m = most
    return m, l


def _finish(x: np.ndarray, y: np.ndarray, m: np.ndarray, l: np.ndarray) -> None:  # noqa: E741
    with np.errstate(**QUIET):
        np.subtract(x, m, out=y)
        np.exp(y, out=y)
        y /= l


def _few(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rows = max(1, NEAR // x.shape[1])
    for i in range(0, len(x), rows):
        yield x[i : i + rows], y[i : i + rows]
