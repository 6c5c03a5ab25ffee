"""A timeline as a scene: what follows what, from left to right. A row for each resource, a column for each step.

The columns say the order, not the duration. A cell prints the number of its event; an event may last several steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.i18n import tr
from visuals.scene.parts import Annotation, Captions, Group, Reading, Source, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.scene import Scene


@dataclass(frozen=True)
class Row:
    """One grid of the timeline, with `lanes` rows of cells. `idle` explains its empty cells."""

    name: str
    title: str
    role: str
    lanes: int = 1
    note: str = ""
    idle: str = ""


@dataclass(frozen=True)
class Event:
    """A number that stands in a lane of a row from step `start` to step `end`. `text` explains its cells."""

    row: str
    lane: int
    start: int
    end: int
    number: int
    text: str


@dataclass(frozen=True)
class Step:
    """One column. `line` of the source is lit. `reads`: (row, lane, column) of cells whose events it depends on."""

    caption: str
    line: int
    reads: tuple[tuple[str, int, int], ...] = ()


def timeline_scene(
    key: str,
    title: str,
    rows: Sequence[Row],
    events: Sequence[Event],
    steps: Sequence[Step],
    source: Source,
    order_name: str,
    order_note: str,
    group_title: str,
    readings: Sequence[Reading] = (),
) -> Scene:
    """Returns the scene of some events. `source`: the kernel's text, with any line lit. ValueError if two events are in one
    cell."""
    count = len(steps)
    return Scene(
        key=key,
        title=title,
        tensors=tuple(
            Tensor(r.name, r.title, r.title, r.role, 1, r.lanes, count, note=r.note, timed=True) for r in rows
        ),
        groups=(Group(tuple((r.name,) for r in rows), "shared", group_title),),
        steps=count,
        step_name=tr("step"),
        order_name=order_name,
        order_note=order_note,
        writes=tuple(write for r in rows if (write := _write(r, events, count))),
        reads=tuple(
            read_per_step(r.name, [_cells(r, step, count) for step in steps])
            for r in rows
            if any(row == r.name for step in steps for row, _, _ in step.reads)
        ),
        annotations=tuple(_annotation(r, events, count) for r in rows),
        captions=Captions.of([step.caption for step in steps]),
        readings=tuple(readings),
        source=replace(source, lines=np.array([max(step.line, source.first) for step in steps])),
    )


def _write(row: Row, events: Sequence[Event], count: int) -> Write | None:
    """Returns the write of a row's events: each cell in the step of its column."""
    cells, numbers = [], []
    for event in events:
        if event.row == row.name:
            cells += [event.lane * count + step for step in range(event.start, event.end + 1)]
            numbers += [event.number] * (event.end + 1 - event.start)
    if len(set(cells)) < len(cells):
        raise ValueError(f"two events of {row.name} are in one cell")
    at = np.array(cells, int)
    return Write(row.name, at % count, np.array(numbers, np.float32), cells=at) if cells else None


def _cells(row: Row, step: Step, count: int) -> np.ndarray:
    return np.array([lane * count + column for name, lane, column in step.reads if name == row.name], int)


def _annotation(row: Row, events: Sequence[Event], count: int) -> Annotation:
    texts = [row.idle] * (row.lanes * count)
    for event in events:
        if event.row == row.name:
            first = event.lane * count
            texts[first + event.start : first + event.end + 1] = [event.text] * (event.end + 1 - event.start)
    return Annotation(row.name, Captions.of(texts))
