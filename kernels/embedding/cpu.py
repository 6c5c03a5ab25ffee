"""The kernels of an embedding in NumPy, with the same arguments: the cpu engine runs these.

tokens, ranks and order are [M], counts and earlier [chunks, V], totals and first [V]; table and dtable [V, d], y and dy [M, d].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def embedding(tokens: np.ndarray, table: np.ndarray, y: np.ndarray, M, d) -> None:
    """Copy element after element of a row, for all rows at once."""
    for column in range(table.shape[1]):
        y[:, column] = table[tokens, column]


def embedding_rows(tokens: np.ndarray, table: np.ndarray, y: np.ndarray, M, d) -> None:
    """Copy row after row."""
    np.take(table, tokens, axis=0, out=y)


def scatter_add(tokens: np.ndarray, dy: np.ndarray, dtable: np.ndarray, M, d) -> None:
    """Add row after row, in the order of m."""
    np.add.at(dtable, tokens, dy)


# -- sorting -------------------------------------------------------------------------------------------
def clear(counts: np.ndarray, count) -> None:
    counts[...] = 0


def rank_tokens(size: int) -> Callable[..., None]:
    """Returns a function that writes ranks and counts of chunks of `size` tokens."""

    def rank(tokens: np.ndarray, ranks: np.ndarray, counts: np.ndarray, M, V) -> None:
        for chunk, start in enumerate(range(0, len(tokens), size)):
            part = tokens[start : start + size]
            order = np.argsort(part, kind="stable")
            found, first, count = np.unique(part[order], return_index=True, return_counts=True)
            ranks[start + order] = np.arange(len(part)) - np.repeat(first, count)
            counts[chunk, found] = count

    return rank


def chunk_totals(counts: np.ndarray, earlier: np.ndarray, totals: np.ndarray, chunks, V) -> None:
    """Write the counts of each token to totals, and to `earlier`, for each chunk, the sum of the chunks before."""
    np.sum(counts, axis=0, out=totals)
    np.subtract(np.cumsum(counts, axis=0, dtype=counts.dtype), counts, out=earlier)


def first_positions(totals: np.ndarray, first: np.ndarray, V) -> None:
    np.subtract(np.cumsum(totals, dtype=totals.dtype), totals, out=first)


def place(size: int) -> Callable[..., None]:
    """Returns a function that writes the order of the tokens, from chunks of `size`."""

    def place(
        tokens: np.ndarray, ranks: np.ndarray, earlier: np.ndarray, first: np.ndarray, order: np.ndarray, M, V
    ) -> None:
        m = np.arange(len(tokens))
        order[first[tokens] + earlier[m // size, tokens] + ranks] = m

    return place


# -- sums ------------------------------------------------------------------------------------------------
def sum_tokens(dy: np.ndarray, order: np.ndarray, first: np.ndarray, totals: np.ndarray, dtable: np.ndarray, d) -> None:
    """Write the sum of each token's rows. A token that does not occur gets zeros."""
    found = np.flatnonzero(totals)
    dtable[...] = 0
    dtable[found] = np.add.reduceat(dy[order], first[found], axis=0)


def sum_runs(size: int) -> Callable[..., None]:
    """Returns a function that sums the runs of one token within `size` neighbours of the order: to dtable if the run is the
    whole token, else to the row of parts where the run begins."""

    def sum_runs(
        tokens: np.ndarray,
        dy: np.ndarray,
        order: np.ndarray,
        first: np.ndarray,
        totals: np.ndarray,
        parts: np.ndarray,
        dtable: np.ndarray,
        M,
        d,
    ) -> None:
        token, position = tokens[order], np.arange(len(order))
        starts = np.flatnonzero(np.diff(token, prepend=-1).astype(bool) | (position % size == 0))
        lengths = np.diff(starts, append=len(order))
        sums = np.add.reduceat(dy[order], starts, axis=0)
        whole = lengths == totals[token[starts]]
        dtable[token[starts[whole]]] = sums[whole]
        parts[starts[~whole]] = sums[~whole]

    return sum_runs


def join_runs(size: int) -> Callable[..., None]:
    """Returns a function that writes the rows of dtable that are missing: zeros, and the sums of parts."""

    def join_runs(parts: np.ndarray, first: np.ndarray, totals: np.ndarray, dtable: np.ndarray, d) -> None:
        dtable[totals == 0] = 0
        last = first + totals - 1
        for token in np.flatnonzero((totals > 0) & (first // size != last // size)):
            later = np.arange(first[token] // size + 1, last[token] // size + 1) * size
            dtable[token] = parts[[first[token], *later]].sum(axis=0)

    return join_runs
