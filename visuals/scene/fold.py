"""Folding: steps that say the same become one step, so that a reader sees a repetition once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from visuals.scene.parts import Captions, Cells, Lanes, MatMul, Number, Read, Source, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.scene import Scene

Run = tuple[int, int]  # the first and the last step
BEFORE, AFTER = 2, 1  # steps of a repetition that stay: the first, the second and the last
MIN_FOLDED = 2


def repeats(kinds: Cells, same: Collection[int]) -> list[Run]:
    """Returns the runs of steps to fold: consecutive steps of one kind of `same`, without the first two and the last.

    `kinds` has the kind of each step. Runs of fewer than two steps are left out."""
    kinds = np.asarray(kinds)
    starts = np.append(np.flatnonzero(np.diff(kinds, prepend=kinds[0] - 1)), len(kinds))
    runs = [(int(a) + BEFORE, int(b) - 1 - AFTER) for a, b in pairwise(starts) if kinds[a] in same]
    return [run for run in runs if run[1] - run[0] + 1 >= MIN_FOLDED]


def folded(scene: Scene, runs: Sequence[Run], template: str, args: Callable[[Run], Sequence[Number]]) -> Scene:
    """Returns the scene with each run of steps as one step. Its caption is `template`, filled from `args(run)`.

    After a folded step all cells, readings and lanes are as after the last step of its run. No step of a run may write a
    cell that an earlier step of the run has copied."""
    if not runs:
        return scene
    new = _new_steps(scene.steps, runs)
    last = np.flatnonzero(np.diff(new, append=scene.steps))  # old step whose end each new step shows
    return replace(
        scene,
        steps=len(last),
        writes=_writes(scene, new),
        reads=tuple(_read(read, last) for read in scene.reads),
        matmuls=tuple(_matmul(product, last) for product in scene.matmuls),
        readings=tuple(replace(r, values=np.asarray(r.values)[last]) for r in scene.readings),
        captions=_captions(scene.captions, last, new, runs, template, args),
        source=scene.source and _source(scene.source, last, new),
        next_sources=tuple(_source(source, last, new) for source in scene.next_sources),
        lanes=scene.lanes and Lanes(scene.lanes.warp[last], scene.lanes.mask[last]),
        folds=tuple((int(new[first]), first) for first, _ in runs),
        faults=tuple((int(new[step]), text) for step, text in scene.faults),
    )


def _new_steps(steps: int, runs: Sequence[Run]) -> np.ndarray:
    """Returns int64[steps]: the folded step that each step is part of."""
    joined = np.zeros(steps, int)
    for first, last in runs:
        joined[first + 1 : last + 1] = 1
    return np.arange(steps) - np.cumsum(joined)


def _source(source: Source, last: np.ndarray, new: np.ndarray) -> Source:
    """Returns a file with its lit lines at the new steps. No run of folded steps may be of two files."""
    count = np.size(source.lines)
    if count > 1:
        own = last[(last >= source.since) & (last < source.since + count)]
        source = replace(source, lines=np.asarray(source.lines)[own - source.since])
    return replace(source, since=int(new[source.since]))


def _matmul(product: MatMul, last: np.ndarray) -> MatMul:
    return product if product.upto is None else replace(product, upto=np.asarray(product.upto)[last])


def _read(read: Read, last: np.ndarray) -> Read:
    stops = np.asarray(read.start)[last + 1]
    starts = np.append(read.start[0], stops[:-1])
    cells = [np.unique(np.asarray(read.cells)[a:b]) for a, b in zip(starts, stops, strict=True)]
    return read_per_step(read.source, cells)


def _captions(captions: Captions, last, new, runs, template, args) -> Captions:
    kind, table = np.asarray(captions.kind)[last], np.asarray(captions.args)[last]
    rows = [list(args(run)) for run in runs]
    wider = max(len(row) for row in rows) - table.shape[1]
    if wider > 0:
        table = np.pad(table, ((0, 0), (0, wider)))
    for (first, _), row in zip(runs, rows, strict=True):
        kind[new[first]] = len(captions.templates)
        table[new[first], : len(row)] = row
    return Captions((*captions.templates, template), kind, table)


# -- writes ----------------------------------------------------------------------------------------
def _writes(scene: Scene, new: np.ndarray) -> tuple[Write, ...]:
    """Returns the writes at their new steps. If a folded step writes a cell more than once, the last write stays."""
    kept: dict[int, np.ndarray] = {}
    for target in {w.target for w in scene.writes}:
        numbers = [n for n, w in enumerate(scene.writes) if w.target == target]
        events = [_events(scene, scene.writes[n]) for n in numbers]
        steps, cells = (np.concatenate(column) for column in zip(*events, strict=True))
        order = np.lexsort((np.arange(len(steps)), steps, cells, new[steps]))
        same = (np.diff(new[steps][order]) == 0) & (np.diff(cells[order]) == 0)
        stays = np.ones(len(steps), bool)
        stays[order[:-1][same]] = False
        kept |= dict(zip(numbers, np.split(stays, np.cumsum([len(c) for _, c in events])[:-1]), strict=True))
    written = (_write(scene, w, new, kept[n]) for n, w in enumerate(scene.writes))
    return tuple(w for w in written if w is not None)


def _events(scene: Scene, w: Write) -> tuple[np.ndarray, np.ndarray]:
    """Returns (old step, cell) of each write, int64."""
    cells = np.arange(scene.tensor(w.target).size) if w.cells is None else np.ravel(w.cells).astype(int)
    return np.resize(w.steps, cells.size).astype(int), cells


def _write(scene: Scene, w: Write, new: np.ndarray, stays: np.ndarray) -> Write | None:
    if stays.all():
        return replace(w, steps=new[np.asarray(w.steps, int)])
    if not stays.any():
        return None
    steps, cells = _events(scene, w)
    parts = {name: None if (a := getattr(w, name)) is None else np.ravel(a)[stays] for name in ("values", "index")}
    return replace(w, steps=new[steps[stays]], cells=cells[stays], **parts)
