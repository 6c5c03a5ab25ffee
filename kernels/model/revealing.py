"""Random inputs that make a small fault visible: a term that is left out of a long sum changes a result by more than the
allowed error.

A term of a sum of n equal terms is 1 / n of it, and the allowed error does not fall with n. So each of several sums has most
of its weight on a part of the terms, and the parts together are all terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

COLUMNS = 1024  # of a part of a row whose logarithm is an output
TERMS = 2**14  # of a part of a sum: one of them is 2^-14 of it, the allowed error is 2^-17
CHUNK = 2**20  # numbers at a time
SMALL = np.float32(2.0**-8)  # of a standard deviation: its square, 1.5e-5, is of the size of eps
Arrays = Mapping[str, np.ndarray]


def parts(count: int, terms: int = TERMS) -> int:
    """Returns into how many parts the terms of a sum are divided."""
    return -(-count // terms)


def concentrate_sums(t: np.ndarray) -> None:
    """Makes numbers of t [outer, C, inner] small, in place. The sum over outer and inner of a channel has most of its weight
    on every nth term for n parts: counted from the first term in one channel, from the last in the next, then from the
    second and the last but one."""
    outer, channels, inner = t.shape
    count = parts(outer * inner)
    if count == 1:
        return
    rows = max(1, CHUNK // (channels * inner))
    channel = np.arange(channels)[:, None]
    of_channel = np.where(channel % 2, outer * inner - 1 - channel // 2, channel // 2) % count
    for first in range(0, outer, rows):
        some = t[first : first + rows]
        number = (first + np.arange(len(some)))[:, None, None] * inner + np.arange(inner)
        some *= np.where(number % count == of_channel, np.float32(1), np.float32(1 / (4 * count)))


class _Rows(Protocol):
    """A shape of M rows of N elements."""

    @property
    def M(self) -> int: ...

    @property
    def N(self) -> int: ...


def of_rows(s: _Rows, random: Arrays) -> Arrays:
    """Returns x [M, N]. The softmax of row r has most of its weight on the columns whose number is r modulo the parts, and
    on the first and the last column."""
    if "x" not in random or (count := parts(s.N, COLUMNS)) == 1:
        return {}
    x = random["x"]
    for row in range(s.M):
        x[row, row % count :: count] += np.float32(np.log(count) + 2)
    x[:, [0, -1]] = np.log(s.N)
    return {"x": x}


def variances(s: object, random: Arrays) -> Arrays:
    """Returns every buffer of variances (var, var_2 ...) with a small one in every other channel. The gamma there is as small
    as the deviation, so that an output in FP16 stays finite."""
    found = {name: a for name, a in random.items() if name.partition("_")[0] in ("var", "gamma")}
    for name, a in found.items():
        a[::2] *= SMALL * SMALL if name.startswith("var") else SMALL
    return found
