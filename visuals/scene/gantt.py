"""A timeline with durations as a diagram: a row for each resource, a box for each span, an axis of time above."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from visuals import units
from visuals.scene.diagram import Area, Box, Diagram

MIN_SHARE = 1e-4  # of the axis: a shorter box could not be found


@dataclass(frozen=True)
class Bar:
    """A box of a timeline: cell `index` of `tensor`, in a row, from `start` to `end` in ms, from step `first` on."""

    tensor: str
    index: int
    row: int
    start: float
    end: float
    role: str
    lines: tuple[str, ...]
    first: int


def gantt(
    bars: Sequence[Bar],
    rows: Sequence[str],
    total_ms: float,
    steps: int,
    areas: Sequence[Area] = (),
    title: str = "",
    totals: Sequence[str] = (),
    heights: Sequence[float] = (),
) -> Diagram:
    """Returns the diagram of some bars over `total_ms`. A box is filled from its step on."""
    whole = max(total_ms, 1e-9)
    return Diagram(
        boxes=tuple(
            Box(b.tensor, b.index, 0, b.row, b.role, b.lines, b.first, steps - 1, left=left, right=right)
            for b, (left, right) in ((b, _place(b, whole)) for b in bars)
        ),
        heights=tuple(heights) or (1.0,) * len(rows),
        areas=tuple(areas),
        title=title,
        totals=tuple(totals),
        rows=tuple(rows),
        ticks=ticks(whole),
    )


def _place(bar: Bar, whole: float) -> tuple[float, float]:
    left = float(np.clip(bar.start / whole, 0, 1 - MIN_SHARE))
    return left, float(np.clip(bar.end / whole, left + MIN_SHARE, 1))


def ticks(whole: float, most: int = 6) -> tuple[tuple[str, float], ...]:
    """Returns round times for an axis of `whole` ms, from 0 on, as (text, share)."""
    step = 10 ** math.floor(math.log10(whole / most))
    step *= next(factor for factor in (1, 2, 5, 10) if whole / (step * factor) <= most)
    return tuple((units.time_(n * step) if n else "0", n * step / whole) for n in range(int(whole / step + 1e-9) + 1))
