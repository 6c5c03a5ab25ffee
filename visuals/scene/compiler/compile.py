"""The scene of a program, compiled from its recording and a view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels import sources
from kernels.engines.emulator.threads import LANES
from kernels.engines.emulator.watch.recording import Recorded, Recording
from kernels.i18n import mark, tr
from visuals.scene.compiler.cells import Cells
from visuals.scene.compiler.expressions import Expression, parse, template
from visuals.scene.compiler.moment import Moment, Played
from visuals.scene.compiler.steps import Visit, joined, lit_line, split, visits
from visuals.scene.compiler.view import Bytes, Number, PerThread, Say, Step, View
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Group, MatMul, Reading, Source
from visuals.scene.recorder import Recorder
from visuals.scene.requests import mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_at

DIFFERENCE = mark(
    "The kernel that is measured rounds some sums in another order: its results differ from these by up to {difference} of the largest."
)


class ViewError(ValueError):
    """A view that does not fit what the kernel did."""


@dataclass
class _Compiler:
    view: View
    recorder: Recorder
    cells: Cells
    templates: list[str] = field(default_factory=list)  # in the reader's language, with numbered fields
    moments: list[Moment] = field(default_factory=list)  # one a step of the scene
    readings: dict[str, list[float]] = field(default_factory=dict)  # by label
    _totals: dict[str, float] = field(default_factory=dict)
    _silent: list[Moment] = field(default_factory=list)  # steps without words before the first

    def add(self, m: Moment) -> None:
        """Add a step. One without words becomes a part of the step before, or of the first."""
        say, example = _said(m)
        if say.text:
            self._begin(m, f"{tr(m.step.lead)} {tr(say.text)}".strip(), example)
        now = {reading.label: self._reading(reading, m) for reading in self.view.readings}
        if not self.moments:
            self._silent.append(m)
            return
        for part in (*self._silent, m):
            self.cells.record(part)
        self._silent.clear()
        for label, value in now.items():
            self.readings.setdefault(label, [])[len(self.moments) - 1 :] = [value]

    def _begin(self, m: Moment, text: str, example: int) -> None:
        sentence, fields = template(text)
        block, thread = divmod(example, m.played.recording.block_threads)
        active = m.active.reshape(m.played.recording.blocks, -1)[block]
        warp = thread // LANES
        lanes = np.flatnonzero(active[warp * LANES : (warp + 1) * LANES])
        numbers = [field.value(m).at(example) for field in fields]
        self.recorder.step(self._template(sentence), *numbers, warp=warp, mask=mask_of(lanes))
        self.moments.append(m)

    def add_others(self, m: Moment, text: str) -> None:
        """Add the step in which the blocks follow that are not watched. `m`: the last step of the launch."""
        sentence, fields = template(tr(text))
        self.recorder.step(self._template(sentence), *(field.value(m).at(0) for field in fields))
        self.moments.append(m)
        self.cells.others(m)
        for values in self.readings.values():
            values.append(values[-1])

    def _template(self, sentence: str) -> int:
        if sentence not in self.templates:
            self.templates.append(sentence)
        return self.templates.index(sentence)

    def _reading(self, reading: Bytes | Number, m: Moment) -> float:
        so_far = self._totals.get(reading.label, 0.0 if isinstance(reading, Bytes) else reading.start)
        if isinstance(reading, Bytes):
            for found in map(m.accessed, reading.of.split()):
                found = found.only(m.played.again[found.row]) if reading.again else found
                so_far += np.count_nonzero(found.write == (reading.op == "st")) * found.value.itemsize
        elif m.visit.kind in reading.during:
            so_far = parse(reading.value).value(m.of_all()).at(0)
        self._totals[reading.label] = so_far
        return so_far / parse(reading.per).value(m).at(0) if isinstance(reading, Bytes) else so_far

    def result(self) -> Iterator[Reading]:
        for reading in self.view.readings:
            values = np.array(self.readings[reading.label])
            if isinstance(reading, Bytes):
                yield Reading(tr(reading.label), values, "counted")
            else:
                yield Reading(tr(reading.label), values, role=reading.role)


def compile_scene(
    recorded: Recorded,
    view: View,
    key: str,
    title: str,
    notes: Mapping[str, str] = {},
    tensors: Mapping[str, Mapping[str, Any]] = {},
    **parts: Any,
) -> Scene:
    """Returns the scene of a program. `notes`: beside the titles of tensors. `tensors`: further fields of tensors, by name, and `parts`: of
    the scene, in place of those made here. ViewError names the line for which a name or a sentence is missing, MarkError the mark that no
    line has."""
    recorder, first = Recorder(), recorded.launches[0]
    c = _Compiler(view, recorder, Cells(view, recorder, first.blocks, view.threads or first.block_threads))
    starts, launches = [], []
    for n, (recording, steps) in enumerate(zip(recorded.launches, view.launches, strict=True)):
        launches.append(list(moments_of(recording, view, steps)))
        starts.append(recorder.steps)
        for m in launches[-1]:
            c.add(m)
        if recorder.steps == starts[-1]:
            raise ViewError(f"{recording.launch.source}: no step of the view is executed")
        if n < len(view.others) and view.others[n]:
            c.add_others(launches[-1][-1], view.others[n])
    firsts = [moments[0] for moments in launches]
    shown = [replace(tensor, **tensors.get(tensor.name, {})) for tensor in c.cells.tensors(firsts, notes)]
    first_source, *next_sources = (
        _source(recording, c.moments[start:stop], start)
        for recording, start, stop in zip(recorded.launches, starts, [*starts[1:], None], strict=True)
    )
    fields = {
        "step_name": tr(view.step_name),
        "order_name": tr(view.order[0]),
        "order_note": _order_note(view, recorded),
        "readings": tuple(c.result()),
        "annotations": tuple(c.cells.annotations(shown)),
        "matmuls": tuple(MatMul(*product) for product in view.products),
    }
    scene = Scene(
        key=key,
        title=title,
        tensors=tuple(shown),
        groups=tuple(_groups(c, firsts[0])),
        steps=recorder.steps,
        writes=recorder.writes(),
        reads=recorder.reads(),
        captions=recorder.captions(tuple(c.templates)),
        source=first_source,
        next_sources=tuple(next_sources),
        lanes=recorder.lanes(),
        finite=False,
        **fields | parts,
    )
    return _folded(scene, c.moments)


def _folded(scene: Scene, moments: Sequence[Moment]) -> Scene:
    """Returns a scene with its repetitions folded, those of the first step that has a sentence for them."""
    step = next((m.step for m in moments if m.step.fold), None)
    if step is None:
        return scene
    sentence, fields = template(tr(step.fold))
    runs = repeats([0 if m.step is step else n for n, m in enumerate(moments, 1)], {0})

    def numbers(run: tuple[int, int]) -> list[float]:
        first, last = (moments[n] for n in run)
        m = last.after(first)
        return [field.value(m).at(int(m.active.argmax())) for field in fields]

    return folded(scene, runs, sentence, numbers)


def _order_note(view: View, recorded: Recorded) -> str:
    if not recorded.difference:
        return tr(view.order[1])
    return f"{tr(view.order[1])} {tr(DIFFERENCE, difference=f'{recorded.difference:.0e}')}"


def moments_of(recording: Recording, view: View, steps: Mapping[str, Step]) -> Iterator[Moment]:
    """Yields the steps of a launch."""
    played, files = Played(recording, view), sources.files(recording.launch.source)

    def key(visit: Visit) -> object:
        m = Moment(played, visit, steps[visit.kind])
        return parse(m.step.each).value(m).at(int(m.active.argmax())) if m.step.each else None

    found: Iterable[Visit] = joined(visits(recording.watched, steps, files), key)
    if view.group:
        found = split(found, recording.watched, view, steps, recording.block_threads)
    for m in (Moment(played, visit, steps[visit.kind]) for visit in found):
        if not m.step.by:
            yield m
            continue
        values = np.broadcast_to(parse(m.step.by).value(m).of, played.threads)
        for value in np.unique(values[m.active]):
            yield Moment(played, replace(m.visit, own=m.active & (values == value)), m.step)


def watched_names(view: View) -> frozenset[str]:
    """Returns the names of the variables that a view may need."""
    names = {path for shown in view.tensors if isinstance(shown, PerThread) for path in shown.variables}
    for step in (step for launch in view.launches for step in launch.values()):
        names |= set(step.shows.values())
    names |= {name for expression in expressions(view) for name in expression.names}
    return frozenset(name.partition(".")[0].partition("[")[0] for name in names)


def expressions(view: View) -> Iterator[Expression]:
    """Yields the expressions of a view."""
    for step in (step for launch in view.launches for step in launch.values()):
        yield from expressions_of(step)
    yield from map(parse, view.names.values())
    for reading in view.readings:
        yield parse(reading.per if isinstance(reading, Bytes) else reading.value)


def expressions_of(step: Step) -> Iterator[Expression]:
    yield from template(step.lead)[1]
    yield from (parse(text) for text in (step.each, step.by) if text)
    for say in step.cases:
        yield from template(say.text)[1]
        yield from (parse(text) for text in (say.among, say.pick) if text)
    for text in step.cells.values():
        yield from template(text)[1]


# -- sentences -------------------------------------------------------------------------------------------
def _said(m: Moment) -> tuple[Say, int]:
    """Returns the first sentence that fits a step, and the example thread."""
    for say in m.step.cases:
        among = m.active & _truth(m, say.among) if say.among else m.active
        if among.any():
            return say, _example(m, say, among)
    raise ViewError(f"{m.where()}: no sentence fits the step {m.visit.kind}")


def _truth(m: Moment, condition: str) -> np.ndarray:
    value = parse(condition).value(m)
    return np.broadcast_to(np.asarray(value.of, bool), m.played.threads) & value.known_by(m.played.threads)


def _example(m: Moment, say: Say, among: np.ndarray) -> int:
    if not say.pick:
        return int(among.argmax())
    value = parse(say.pick).value(m)
    score = np.broadcast_to(np.asarray(value.of, np.float64), m.played.threads)
    score = np.where(among & value.known_by(m.played.threads) & ~np.isnan(score), score, -np.inf)
    return int(score.argmax()) if (score > -np.inf).any() else int(among.argmax())


# -- around the tensors ------------------------------------------------------------------------------------
def _groups(c: _Compiler, m: Moment) -> Iterator[Group]:
    """Yields the groups, those of variables once a block."""
    for group in c.view.groups:
        shown = [c.view.shown(name) for row in group.rows for name in row]
        if not any(map(c.cells.is_of_blocks, shown)):
            yield _group(group, group.rows, m, 0)
            continue
        for block in range(c.cells.blocks):
            rows = tuple(tuple(f"{name}_{block}" for name in row) for row in group.rows)
            yield _group(group, rows, m, block)


def _group(group: Group, rows: Sequence[Sequence[str]], m: Moment, block: int) -> Group:
    sentence, fields = template(tr(group.title))
    numbers = [int(field.value(m).at(block * m.played.recording.block_threads)) for field in fields]
    return Group(
        tuple(map(tuple, rows)), group.memory_space, sentence.format(*numbers), group.aligned, group.table, group.column
    )


def _source(recording: Recording, moments: Sequence[Moment], since: int) -> Source:
    launch, file = recording.launch, recording.launch.source.rpartition("/")[2]
    files = sources.files(launch.source)
    lines = np.array([lit_line(m.step, m.visit, recording.watched, files) for m in moments])
    return source_at(
        launch.source, lines, notes=margin(recording.counters, file), detail=resources(launch), since=since
    )
