"""The captions of im2col: of the copied columns, of the product's tiles and of the reshape."""

from __future__ import annotations

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr
from visuals.conv.part import Part

LOAD = ("load", "load_k")  # tiles of several k, of one k
MULTIPLY = ("multiply", "multiply_column")  # of several columns, of one column
# Steps, in the order of the templates. The barriers: after "complete" tiles can be read, after "read" overwritten.
KINDS = ("copy", "copy_zeros", *LOAD, "complete", *MULTIPLY, "read", "rest", "store", "library", "reshape")


def templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the template of each of KINDS. A copy has {0} column, {1} {2} row and column of the output, {3} loads,
    {4} zeros. Tiles have {0} {1} block, {2} {3} first and last k, {4} {5} first and last column; barriers {0} {1}."""
    return (*_of_copies(s, part), *_of_tiles(), *_of_ends(s, part))


def copies(s: ConvShape, part: Part, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (kind, args) of the steps that copy a column; index as from gather_index."""
    crs, steps = index.shape
    padding = (index < 0).sum(axis=0)
    step = np.arange(steps)
    row, column = part.p + step // part.Q, part.q + step % part.Q
    args = np.stack([row * s.Q + column, row, column, crs - padding, padding], axis=1)
    return (padding > 0).astype(np.int64), args


def reshape(rows: int, cols: int) -> str:
    """Returns the caption of the reshape to planes of `rows` x `cols`."""
    size = f"{rows} × {cols}"
    return tr(
        "Each row of the [output matrix](output) is read as one plane of {size}. Only the view changes: no bytes move.",
        size=size,
    )


def _of_copies(s: ConvShape, part: Part) -> tuple[str, str]:
    crs = part.C * s.R * s.S
    copied = (
        tr("Thread {0} copies the window of output row {1}, column {2} from the [input](input).")
        if s.C == 1
        else tr(
            "{threads} threads, one per channel, copy the window of output row {1}, column {2} from the [input](input).",
            threads=decimal(f"{s.C:,}"),
        )
    )
    target = tr("It becomes column {0} of the [data matrix](workspace).")
    loads = tr("Loads: {n}. Stores: {n}.", n=crs)
    with_zeros = tr("Loads: {3}. Stores: {n}, {4} of them zeros of the padding.", n=crs)
    counted = [tr("Only the {n} channels shown are counted.", n=part.C)] if part.C < s.C else []
    return " ".join((copied, target, loads, *counted)), " ".join((copied, target, with_zeros, *counted))


def _of_tiles() -> tuple[str, ...]:
    return (
        tr(
            "Block ({0}, {1}) loads two tiles into shared memory: columns {2} to {3} of the [filters](filter), rows {2} to {3} of the [data matrix](workspace)."
        ),
        tr(
            "Block ({0}, {1}) loads two tiles into shared memory: column {2} of the [filters](filter), row {2} of the [data matrix](workspace)."
        ),
        tr(
            "Barrier: every thread of block ({0}, {1}) waits until both tiles are complete. A thread reads values that other threads have loaded."
        ),
        tr(
            "Block ({0}, {1}) multiplies the two tiles. Their product is added to the sums of [output](output) columns {4} to {5}."
        ),
        tr(
            "Block ({0}, {1}) multiplies the two tiles. Their product is added to the sums of [output](output) column {4}."
        ),
        tr(
            "Barrier: every thread of block ({0}, {1}) waits until all threads have read both tiles. Only then may new values overwrite them."
        ),
    )


def _of_ends(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the templates of what follows the tiles: the channels not shown, a store, a library's product, the reshape."""
    shown = tr("{n} of {K} rows are shown.", n=part.K, K=s.K) if part.K < s.K else ""
    return (
        tr(
            "The other {n} channels are not shown. Their products are added to the sums in the same way.",
            n=s.C - part.C,
        ),
        tr(
            "The sums of block ({0}, {1}) have all {n} terms. Each thread stores its sum in the [output matrix](output).",
            n=s.CRS,
        ),
        tr(
            "One call of cuBLAS multiplies the [filters](filter) by the [data matrix](workspace). How it divides the work is not shown."
        ),
        " ".join(filter(None, (reshape(part.P, part.Q), shown))),
    )
