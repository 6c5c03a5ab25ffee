"""A diagram: boxes in columns and rows in place of grids of cells, arrows between them, and stacked areas over the steps.

Each box is a cell of one of the scene's tensors, so that it can be pinned, linked and explained as any cell. Its state
follows from the step: it exists from `first` to `last`. A `kernel` is lit while it exists and keeps its place afterwards;
a tensor is filled while it exists and empty before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.model.row import Json
from visuals.scene.parts import ROLES, SceneError

INK = "ink"  # the colour of a line over the areas


@dataclass(frozen=True)
class Box:
    """A box: cell `index` of `tensor`, at a column and a row; `left` and `right` are shares of the column's width."""

    tensor: str
    index: int
    column: int
    row: int
    role: str
    lines: tuple[str, ...]  # its texts, the most important first
    first: int  # the steps at which it exists; `first` and `last` are the number of steps if it exists at none
    last: int
    kernel: bool = False
    left: float = 0.0
    right: float = 1.0


@dataclass(frozen=True)
class Area:
    """One of the stacked areas: what it is and its height at each step."""

    name: str
    role: str
    values: np.ndarray  # one per step
    faint: bool = False  # paler than another area of its role


@dataclass(frozen=True)
class Line:
    """A line over the areas, in their unit: what it is and its height at each step."""

    name: str
    values: np.ndarray  # one per step


@dataclass(frozen=True)
class Diagram:
    """The boxes; arrows as pairs of boxes by their position; the heights of the rows; groups of columns as (title, first,
    last); the areas over the steps with a label for each step and a line if there is one, and the phases of the steps as
    (title, first step).

    `rows`: titles beside the rows, or none. `ticks`: of an axis over the first column, as (text, share of its width)."""

    boxes: tuple[Box, ...]
    heights: tuple[float, ...]
    arrows: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[str, int, int], ...] = ()
    areas: tuple[Area, ...] = ()
    line: Line | None = None
    title: str = ""  # above the areas
    totals: tuple[str, ...] = ()  # beside it, one per step
    phases: tuple[tuple[str, int], ...] = ()
    rows: tuple[str, ...] = ()
    ticks: tuple[tuple[str, float], ...] = ()


def check(diagram: Diagram, tensors: Json, steps: int, need: Callable) -> None:
    """Raise SceneError that names what is wrong with a diagram of a scene with these tensors and steps."""
    for b in diagram.boxes:
        inside = b.tensor in tensors and 0 <= b.index < tensors[b.tensor].size
        need(inside, SceneError(f"a box is no cell of {b.tensor}"))
        need(b.role in ROLES, SceneError(f"a box of {b.tensor} has the role {b.role!r}"))
        need(0 <= b.row < len(diagram.heights) and b.column >= 0, SceneError("a box is outside the diagram"))
        need(
            0 <= b.first <= b.last < steps or b.first == b.last == steps,
            SceneError(f"a box of {b.tensor} leaves the steps"),
        )
        need(0 <= b.left < b.right <= 1, SceneError(f"a box of {b.tensor} is outside its column"))
    for pair in diagram.arrows:
        need(all(0 <= n < len(diagram.boxes) for n in pair), SceneError("an arrow joins no boxes"))
    for area in (*diagram.areas, *filter(None, [diagram.line])):
        need(np.shape(area.values) == (steps,), SceneError(f"{area.name} has not one height a step"))
        need(bool(np.isfinite(area.values).all()), SceneError(f"{area.name} is not finite"))
    need(len(diagram.totals) in (0, steps), SceneError("the areas have not one total a step"))
    need(len(diagram.rows) in (0, len(diagram.heights)), SceneError("the rows have not one title each"))
    need(all(0 <= at <= 1 for _, at in diagram.ticks), SceneError("a tick is outside the axis"))


def payload(diagram: Diagram, put: Callable) -> Json:
    """Returns a diagram as it is sent: texts as JSON, heights of areas in the block. A line is sent as an area in ink."""
    areas = [*diagram.areas, *(Area(line.name, INK, line.values) for line in (diagram.line,) if line)]
    return {
        "boxes": [
            {
                "name": b.tensor,
                "index": b.index,
                "column": b.column,
                "row": b.row,
                "role": b.role,
                "lines": list(b.lines),
                "first": b.first,
                "last": b.last,
                "kernel": b.kernel,
                "left": b.left,
                "right": b.right,
            }
            for b in diagram.boxes
        ],
        "heights": list(diagram.heights),
        "arrows": [list(pair) for pair in diagram.arrows],
        "groups": [list(group) for group in diagram.groups],
        "areas": [
            {"name": a.name, "role": a.role, "faint": a.faint, "values": put(np.asarray(a.values, np.float32))}
            for a in areas
        ],
        "title": diagram.title,
        "totals": list(diagram.totals),
        "phases": [list(phase) for phase in diagram.phases],
        "rows": list(diagram.rows),
        "ticks": [list(tick) for tick in diagram.ticks],
    }
