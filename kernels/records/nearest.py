"""The recording nearest to what was asked: at just that shape, or at another one that is named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels.conv.shape import CONV_SINCE
from kernels.ladders import LADDERS, ladder_of
from kernels.model.rung import Ladder
from kernels.model.shape import ShapeError

SAME_WORK = 0.1  # doublings of multiply-adds that count as none: then the extents decide


@dataclass(frozen=True)
class Near:
    row: Mapping[str, Any]
    exact: bool
    words: str  # where it was recorded, and how much of the work that is


def nearest(
    rung: str, shape: Any, tiles: Mapping[str, int], mode: str, rows: Iterable[Mapping[str, Any]]
) -> Near | None:
    """The row of this rung and mode at the shape asked for, else at the nearest. None where none can speak of it.

    Near is measured in doublings: first those of the multiply-adds, in steps of SAME_WORK, then the sum of
    those of each extent. At another shape tile sizes that agree go before others; other ones are named.
    """
    asked, tiles = vars(shape), dict(tiles)
    ladder = ladder_of(rung)
    agree, best, best_key = agreeing(ladder, asked), None, None
    for row in rows:
        if (row["rung"], row["mode"]) != (rung, mode):
            continue
        there, other = ladder.later_fields | row["shape"], row["tiles"] != tiles
        if there.keys() != asked.keys() or any(there[name] != value for name, value in agree):
            continue
        apart = there != asked
        if best_key and (apart, other) > best_key[:2]:
            continue  # most are: their work need not be compared
        if (macs := _macs(ladder.name, tuple(there.items()))) is None:
            continue
        work = abs(_doublings(shape.macs, macs))
        first = (apart, other, round(work / SAME_WORK))
        if best_key and first > best_key[:3]:
            continue
        extents = sum(abs(_doublings(asked[n], there[n])) for n in asked if (n, asked[n]) not in agree)
        key = (*first, extents, work)
        if best_key is None or key < best_key:
            best, best_key = row, key
    if best is None:
        return None
    return Near(best, not any(best_key[:2]), _words(shape, ladder.shape(**best["shape"]), best, tiles))


def agreeing(ladder: Ladder, params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """(field, value) of those in which a recording must agree with a shape to say anything of it."""
    full = ladder.later_fields | params
    names = ladder.matching or sorted(name for name, value in full.items() if not isinstance(value, int))
    return tuple((name, full[name]) for name in names if name in full)


@cache
def _macs(ladder: str, params: tuple[tuple[str, Any], ...]) -> int | None:
    """Multiply-adds at a recorded shape; None where the ladder has no such shape."""
    try:
        return LADDERS[ladder].shape(**dict(params)).macs
    except ShapeError:
        return None


def _doublings(a: int, b: int) -> float:
    """log2 of a / b; of paddings, which may be 0, one is added to each."""
    return math.log2(a / b) if a and b else math.log2((a + 1) / (b + 1))


def _words(shape: Any, there: Any, row: Mapping[str, Any], tiles: Mapping[str, int]) -> str:
    told = []
    if row["tiles"] != dict(tiles):
        told.append("with " + ", ".join(f"{name} {value}" for name, value in row["tiles"].items()))
    if there == shape:
        return ", ".join(["recorded at this shape", *told])
    at = " ".join(f"{name}={value}" for name, value in there.params().items() if _tells(name, value))
    ratio = shape.macs / there.macs
    work = "as many multiply-adds" if ratio == 1 else f"{_times(ratio)} times the multiply-adds"
    return ", ".join([f"recorded at {at}", *told]) + f"; this shape has {work}"


def _tells(name: str, value: int | str) -> bool:
    """Whether a field of a convolution says more than its usual value."""
    usual = {"u": 1, "v": 1, "pad_h": 0, "pad_w": 0, "dilation_h": 1, "dilation_w": 1, "mode": "cross-correlation", **CONV_SINCE}  # fmt: skip
    return usual.get(name) != value


def _times(ratio: float) -> str:
    if 0.95 < ratio < 1.05:
        return f"{ratio:.3f}"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"
