"""Which thread of a block handles which columns of a row, iteration by iteration: one plan for forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

FOUR = 4  # floats of a 16-byte access


@dataclass(frozen=True)
class Iteration:
    """Columns of a row that a block handles together, and the thread of each."""

    cols: np.ndarray
    thread: np.ndarray

    @property
    def active(self) -> np.ndarray:
        """Returns the threads that have a column, each once."""
        return np.unique(self.thread)


def one_by_one(count: int, block: int) -> Iterator[Iteration]:
    """Yields the iterations of a loop in which thread t has columns t, t + block and so on."""
    for first in range(0, count, block):
        cols = np.arange(first, min(first + block, count))
        yield Iteration(cols, cols - first)


def before_16(first: int, count: int) -> int:
    """Returns how many of `count` floats, of which the first is element `first` of an array, come before a multiple of 16
    bytes."""
    return min(-first % FOUR, count)


def fours(first: int, count: int, block: int, loads: int) -> Iterator[Iteration]:
    """Yields the iterations of a loop over the groups of four floats: in each a thread loads up to `loads` of them."""
    before = before_16(first, count)
    groups = (count - before) // FOUR
    for start in range(0, groups, loads * block):
        group = np.arange(start, min(start + loads * block, groups))
        cols = before + FOUR * np.repeat(group, FOUR) + np.tile(np.arange(FOUR), len(group))
        yield Iteration(cols, np.repeat((group - start) % block, FOUR))


def singles(first: int, count: int, block: int) -> Iteration | None:
    """Returns the columns before and after the groups of four, and their threads; None if there are none."""
    before = before_16(first, count)
    groups = (count - before) // FOUR
    i = np.arange(count - FOUR * groups)
    return Iteration(np.where(i < before, i, i + FOUR * groups), i % block) if i.size else None


def piece(first: int, count: int, number: int, block: int, loads: int) -> Iteration:
    """Returns the columns of a piece of a row, and their threads. The groups of four begin at multiples of 16 bytes, the
    first of them up to 3 columns before the row."""
    start = number * FOUR * loads * block
    i = np.arange(start, start + FOUR * loads * block)
    cols = i - first % FOUR
    inside = (cols >= 0) & (cols < count)
    return Iteration(cols[inside], i[inside] // FOUR % block)
