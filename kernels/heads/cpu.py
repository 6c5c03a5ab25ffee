"""Splitting rows into heads and merging them in NumPy, with the kernels' arguments: the cpu engine runs these.

Rows are [N, T, parts, h, d], the heads of each part [N, h, T, d]. `shape` and `count` are the kernels' own; NumPy takes
them from the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def _parts(rows: np.ndarray, heads: tuple[np.ndarray, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields, of each part, its rows seen as [N, h, T, d], and its heads."""
    for part, of_part in enumerate(heads):
        yield rows[:, :, part].transpose(0, 2, 1, 3), of_part


def split_heads(x: np.ndarray, *args) -> None:
    """Copy head after head."""
    for rows, heads in _parts(x, args[:-2]):
        for head in range(heads.shape[1]):
            heads[:, head] = rows[:, head]


def split_axes(x: np.ndarray, *args) -> None:
    """Copy each part at once, with its axes exchanged."""
    for rows, heads in _parts(x, args[:-2]):
        np.copyto(heads, rows)


def merge_heads(*args) -> None:
    """Copy head after head."""
    *heads_of_parts, y, _, _ = args
    for rows, heads in _parts(y, tuple(heads_of_parts)):
        for head in range(heads.shape[1]):
            rows[:, head] = heads[:, head]


def merge_axes(*args) -> None:
    """Copy each part at once, with its axes exchanged."""
    *heads_of_parts, y, _, _ = args
    for rows, heads in _parts(y, tuple(heads_of_parts)):
        np.copyto(rows, heads)
