"""The Scene contract: what the stage shows, as data. Documented here and nowhere else.

A scene is tensors (grids of cells), what is written into them at which step, and a caption for each step. The picture
at step t is a pure function of (scene, t), so pause, scrub, deep link, export and test need no further code.

* A **Tensor** is `planes` grids of rows x cols, drawn side by side; cell indices are flat in
  (plane, row, col) order. Its `role` sets its colour, or `roles` that of each cell. `values` are its values before the first step; a cell that
  has not been written yet is a ghost. A tensor without values that is never written is one that an algorithm
  avoids: its cells are air.
* **Group**s are regions of the stage, each in one memory space: global memory, workspace, shared memory, registers. In an
  aligned group, row i of all tensors of a row is on one line. A group that is a table aligns its tensors, as a matrix
  product is drawn: B above C, A left of C.
* A **Flow** is an arrow with a label from one group to another, for example the bytes that move between two memories.
* A **Write** gives cells new values at certain steps: numbers, or copies of another tensor's cells, which then keep
  the hue of their source. A cell may be written again: the last write counts. A copy made at step t sees all writes
  up to and including t. It may not read a cell that is not written yet, and copies may not form a cycle. A write that
  `reshapes` shows the source's cells under another index: the same bytes, of which none moves.
* A **View** shows another tensor's cells as the cells of a tensor that is never written. A copy from a view is a copy
  from that other tensor.
* A **Read** lists the cells that a step reads without copying them.
* A **MatMul** says out[m, j] = sum_i left[m, i] * right[i, j] + rest[m, j], where left and right are read as
  (rows, cols) and out, in its flat order, as (left's rows, right's cols). `rest` is the sum of the terms outside the
  part shown (None if nothing is left out); `upto[t]` is the number of terms in the sum after step t (None: all of
  them, as soon as it is written).
* An **Annotation** explains each cell of a tensor that no copy and no product explains: a caption filled from numbers of
  the cell, and the cells of other tensors that are highlighted with it.
* A **Sum** says out[i] = the sum of factor * right over the terms start[i] .. start[i + 1] - 1: the factors are
  numbers, or cells of `left`. Each counts with its value at the step that writes out[i].
* **Readings** are numbers that change with the steps: counters with their badge, running values of the
  algorithm (a maximum, a sum) with their role.
* **Captions** are templates with {0}, {1} ... filled from numbers, one row per step; words that name a role are
  written [text](role). `caption(t)` is the text form of step t.
* **Source** is the kernel's CUDA text, the line lit at each step and notes in the margin. A program of several kernels
  shows the file of the kernel that runs: `next_sources` follow `source`, each from its step `since` on. **Lanes** are
  the warp of a step and its active lanes.
* **Faults** are steps at which something is wrong, such as a data race: the scrubber marks them.
* A **Diagram** (visuals.scene.diagram) shows cells as boxes with arrows between them, in place of the grids.

visuals/scene/payload.py turns a scene into what is sent to the browser.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from visuals.scene.checks import validate
from visuals.scene.diagram import Diagram
from visuals.scene.parts import (
    HUGE,
    MARK,
    VERSION,
    Annotation,
    Captions,
    Flow,
    Group,
    Lanes,
    MatMul,
    Read,
    Reading,
    Source,
    Sum,
    Tensor,
    View,
    Write,
)

MAX_CACHED_SCENES = 64  # of each lesson, on the server: each at most a megabyte, most about 10 KB


@dataclass(frozen=True)
class Scene:
    key: str  # equal keys mean equal scenes; a player keeps its step while the key stays the same
    title: str
    tensors: tuple[Tensor, ...]
    groups: tuple[Group, ...]
    steps: int
    step_name: str  # what one step is: "column"
    order_name: str  # the order of the steps: "explaining order"
    order_note: str  # how that order differs from the GPU's
    writes: tuple[Write, ...]
    captions: Captions
    matmuls: tuple[MatMul, ...] = ()
    reads: tuple[Read, ...] = ()
    readings: tuple[Reading, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    source: Source | None = None
    next_sources: tuple[Source, ...] = ()
    lanes: Lanes | None = None
    sums: tuple[Sum, ...] = ()
    views: tuple[View, ...] = ()
    flows: tuple[Flow, ...] = ()
    diagram: Diagram | None = None
    # Pairs: a step that stands for several, and the first of these when all are shown.
    folds: tuple[tuple[int, int], ...] = ()
    faults: tuple[tuple[int, str], ...] = ()  # step, what is wrong
    finite: bool = True  # False: cells, readings and captions may hold infinities and NaN, and print them
    version: int = field(default=VERSION, init=False)

    def __post_init__(self):
        validate(self)

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def write(self, target: str) -> Write:
        """Returns the first write into a tensor."""
        return next(w for w in self.writes if w.target == target)

    def caption(self, t: int) -> str:
        """Returns the caption of step t without its role marks: the scene's text form."""
        return MARK.sub(r"\1", self.marked_caption(t))

    def marked_caption(self, t: int) -> str:
        template = self.captions.templates[int(self.captions.kind[t])]
        args = np.asarray(self.captions.args[t])
        return template.format(*(number(a) for a in (args.astype("f4") if args.dtype.kind == "f" else args)))

    def source_at(self, t: int) -> tuple[Source, int]:
        """Returns the file shown at step t and its lit line, 0 if none is. The scene must have a source."""
        source = [s for s in (self.source, *self.next_sources) if s and s.since <= t][-1]
        return source, int(source.lines[t - source.since if len(source.lines) > 1 else 0])

    def cells(self, name: str, t: int | None = None) -> np.ndarray:
        """Returns the values of a tensor's cells after step t (default: the last) as float32, NaN where unwritten."""
        tensor, last = self.tensor(name), self.steps - 1 if t is None else t
        values = np.full(tensor.size, np.nan, np.float32)
        if tensor.values is not None:
            values[:] = np.ravel(tensor.values)
        steps, cells, written = self._events(name)
        done = np.searchsorted(steps, last, side="right")
        values[cells[:done]] = written[:done]  # if a cell occurs twice, the later write wins
        return values

    @cached_property
    def _known(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return {}

    def _events(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (step, cell, value) of every write into a tensor, in order of the steps."""
        if name not in self._known:
            parts = [self.written(w) for w in self.writes if w.target == name]
            columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros(0, int)] * 3
            order = np.argsort(columns[0], kind="stable")
            step, cell, value = (column[order] for column in columns)
            self._known[name] = step, cell, value
        return self._known[name]

    def written(self, w: Write) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        cells = np.arange(self.tensor(w.target).size) if w.cells is None else np.ravel(w.cells).astype(int)
        steps = np.resize(w.steps, cells.size).astype(int)
        if w.values is not None:
            return steps, cells, np.ravel(w.values).astype(np.float32)
        assert w.index is not None  # a copy
        index = np.ravel(w.index).astype(int)
        for v in self.views:
            if v.tensor == w.source:
                index = np.append(np.ravel(v.index), -1).astype(int)[index]
                w = replace(w, source=v.source, index=index)
        source = self.tensor(w.source)
        known = (
            np.full(source.size + 1, np.nan, np.float32)
            if source.values is None
            else np.append(source.values, np.float32(0))
        )
        known[-1] = 0  # the value of index -1
        if not any(other.target == w.source for other in self.writes):
            return steps, cells, known[index]
        return steps, cells, self._copied(w.source, steps, index, known[index])

    def _copied(self, name: str, steps: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Returns the values of the cells `index` of a tensor after `steps`; those that nothing has written yet from `values`."""
        when, cells, written = self._events(name)
        if not cells.size:
            return values
        order = np.argsort(cells, kind="stable")  # by cell, and the writes of each cell by step
        keys = cells[order] * self.steps + when[order]
        last = np.searchsorted(keys, index * self.steps + steps, side="right") - 1
        found = (last >= 0) & (cells[order][last] == index)
        return np.where(found, written[order][last], values)


def number(v: float) -> str:
    """Format a number as captions print it: integers plain, others to four digits or to all before the point, with "−";
    from 10^15 on a power of ten."""
    if not np.isfinite(v):
        return "NaN" if np.isnan(v) else "∞" if v > 0 else "−∞"
    if abs(v) >= HUGE:
        return f"{v:.3e}".replace("-", "−").replace("e+", "·10^")
    whole = float(v).is_integer() or abs(v) >= 1e4
    text = (
        str(round(float(v)))
        if whole
        else np.format_float_positional(float(v), precision=4, unique=False, fractional=False, trim="-")
    )
    return text.replace("-", "−")


def required(found: tuple[Scene | None, str]) -> Scene:
    """Returns the scene of a pair (scene, note). ValueError with the note if there is none."""
    scene, note = found
    if scene is None:
        raise ValueError(note)
    return scene
