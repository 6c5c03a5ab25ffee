"""The recording nearest to a shape: at that shape, or at another one that the caption names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from kernels.conv.shape import CONV_SINCE
from kernels.ladders import LADDERS, ladder_of
from kernels.model.row import Row
from kernels.model.rung import Ladder
from kernels.model.shape import Shape, ShapeError

SAME_WORK = 0.1  # log2 step of multiply-adds; within one step the extents decide


@dataclass(frozen=True)
class Match:
    """A recording and its relation to the requested shape."""

    row: Row
    exact: bool
    caption: str  # the shape it was recorded at, and the ratio of multiply-adds


def nearest(rung: str, shape: Shape, tiles: Mapping[str, int], mode: str, rows: Iterable[Row]) -> Match | None:
    """Returns the row of this rung and mode at the requested shape, else at the nearest. None if no row is comparable.

    Distance is |log2| of a ratio: first of the multiply-adds, in steps of SAME_WORK, then the sum over the
    extents. At another shape, rows with equal tile sizes go before others. The caption names other tile sizes.
    """
    query, tiles = vars(shape), dict(tiles)
    ladder = ladder_of(rung)
    fixed, best = matching_fields(ladder, query), None
    best_key: tuple | None = None
    for row in rows:
        if (row["rung"], row["mode"]) != (rung, mode):
            continue
        recorded, other_tiles = {**ladder.later_fields, **row["shape"]}, row["tiles"] != tiles
        if recorded.keys() != query.keys() or any(recorded[name] != value for name, value in fixed):
            continue
        other_shape = recorded != query
        if best_key and (other_shape, other_tiles) > best_key[:2]:
            continue  # true of most rows, and cheaper than a comparison of the work
        if (macs := _macs(ladder.name, tuple(recorded.items()))) is None:
            continue
        work = abs(_doublings(shape.macs, macs))
        distance = (other_shape, other_tiles, round(work / SAME_WORK))
        if best_key and distance > best_key[:3]:
            continue
        extents = sum(abs(_doublings(query[n], recorded[n])) for n in query if (n, query[n]) not in fixed)
        key = (*distance, extents, work)
        if best_key is None or key < best_key:
            best, best_key = row, key
    if best is None or best_key is None:
        return None
    return Match(best, not any(best_key[:2]), _caption(shape, ladder.shape(**best["shape"]), best, tiles))


def matching_fields(ladder: Ladder, params: Row) -> tuple[tuple[str, object], ...]:
    """Returns (field, value) of the fields in which a comparable recording must equal a shape."""
    full = {**ladder.later_fields, **params}
    names = ladder.matching or sorted(name for name, value in full.items() if not isinstance(value, int))
    return tuple((name, full[name]) for name in names if name in full)


@cache
def _macs(ladder: str, params: tuple[tuple[str, object], ...]) -> int | None:
    """Returns the multiply-adds at a recorded shape; None if the ladder has no such shape."""
    try:
        return LADDERS[ladder].shape(**dict(params)).macs
    except ShapeError:
        return None


def _doublings(a: int, b: int) -> float:
    """Returns log2 of a / b. If one of them is 0, as a padding may be, 1 is added to each."""
    return math.log2(a / b) if a and b else math.log2((a + 1) / (b + 1))


def _caption(shape: Shape, recorded: Shape, row: Row, tiles: Mapping[str, int]) -> str:
    notes = []
    if row["tiles"] != dict(tiles):
        notes.append("with " + ", ".join(f"{name} {value}" for name, value in row["tiles"].items()))
    if recorded == shape:
        return ", ".join(["recorded at this shape", *notes])
    where = " ".join(f"{name}={value}" for name, value in recorded.params().items() if _is_not_default(name, value))
    ratio = shape.macs / recorded.macs
    work = "as many multiply-adds" if ratio == 1 else f"{_times(ratio)} times the multiply-adds"
    return ", ".join([f"recorded at {where}", *notes]) + f"; this shape has {work}"


def _is_not_default(name: str, value: int | str) -> bool:
    """Returns whether a field of a convolution differs from its default."""
    default = {
        "u": 1,
        "v": 1,
        "pad_h": 0,
        "pad_w": 0,
        "dilation_h": 1,
        "dilation_w": 1,
        "mode": "cross-correlation",
        **CONV_SINCE,
    }
    return default.get(name) != value


def _times(ratio: float) -> str:
    if 0.95 < ratio < 1.05:
        return f"{ratio:.3f}"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"
