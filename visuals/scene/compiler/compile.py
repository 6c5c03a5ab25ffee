"""The scene of a program, compiled from its recording and a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.engines.emulator.threads import LANES
from kernels.engines.emulator.watch.recording import Called, Recorded, Recording
from kernels.i18n import mark, tr
from visuals.scene.compiler.cells import Cells
from visuals.scene.compiler.expressions import Expression, parse, template
from visuals.scene.compiler.moment import Moment, Played
from visuals.scene.compiler.steps import Visit, complete, joined, lit_line, merged, place_of, split, visits
from visuals.scene.compiler.view import BLOCK, ORDER_NOTE, Bytes, Number, PerThread, Say, Sentence, Step, View
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Group, MatMul, Reading, Source
from visuals.scene.recorder import Recorder
from visuals.scene.requests import mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_at

GROUP_NOTE = mark(
    "One step is one line of the kernel. Threads that take it together: {threads}. Such groups follow each other between two barriers. On a "
    "GPU the warps and the blocks run at the same time, in any order. All values are those of the kernel in the emulator."
)
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
    _before: dict[str, float] = field(default_factory=dict)  # the totals before the launch
    _silent: list[Moment] = field(default_factory=list)  # steps without words before the first

    def launch(self) -> None:
        """Begin a launch."""
        self._before = dict(self._totals)

    def add(self, m: Moment) -> None:
        """Add a step. One without words becomes a part of the step before, or of the first."""
        sentence = m.step.describe(m) if m.step.describe else _said(m)
        if sentence.text:
            self._begin(m, sentence)
        now = {reading.label: self._reading(reading, m) for reading in self.view.readings}
        if not self.moments:
            self._silent.append(m)
            return
        for part in (*self._silent, m):
            self.cells.record(part)
        self._silent.clear()
        for label, value in now.items():
            self.readings.setdefault(label, [])[len(self.moments) - 1 :] = [value]

    def _begin(self, m: Moment, sentence: Sentence) -> None:
        block, thread = divmod(sentence.example, m.played.recording.block_threads)
        active = m.active.reshape(m.played.recording.blocks, -1)[block]
        warp = thread // LANES
        lanes = np.flatnonzero(active[warp * LANES : (warp + 1) * LANES])
        self.recorder.step(self._template(sentence.text), *sentence.numbers, warp=warp, mask=mask_of(lanes))
        self.moments.append(m)

    def add_others(self, m: Moment, text: str) -> None:
        """Add the step in which the blocks follow that are not watched. `m`: the last step of the launch."""
        sentence, fields = template(tr(text))
        self.recorder.step(self._template(sentence), *(field.value(m).at(0) for field in fields))
        self.moments.append(Moment(m.played, m.visit, replace(m.step, fold="")))
        self.cells.others(m)
        for reading in self.view.readings:
            values = self.readings[reading.label]
            if isinstance(reading, Bytes) and not reading.of:
                counted = m.played.recording.counters.total[f"bytes_{reading.op}"]
                self._totals[reading.label] = self._before.get(reading.label, 0.0) + counted
                values.append(self._totals[reading.label])
            else:
                values.append(values[-1])

    def add_call(self, m: Moment, call: Called, text: str) -> Source:
        """Add the step of a library's call after a launch, whose last step is `m`."""
        self.recorder.step(self._template(tr(text)))
        self.moments.append(Moment(m.played, m.visit, replace(m.step, fold="")))
        self.cells.called(m, call)
        for values in self.readings.values():
            values.append(values[-1])
        names = ", ".join(arg for arg in call.call.args if isinstance(arg, str))
        note = tr("The source of the library’s kernels is not public.")
        return Source(
            call.call.routine, f"{call.call.routine}({names});\n// {note}", np.array([1]), since=self.recorder.now
        )

    def _template(self, sentence: str) -> int:
        if sentence not in self.templates:
            self.templates.append(sentence)
        return self.templates.index(sentence)

    def _reading(self, reading: Bytes | Number, m: Moment) -> float:
        so_far = self._totals.get(reading.label, 0.0 if isinstance(reading, Bytes) else reading.start)
        if isinstance(reading, Bytes):
            so_far += sum(m.moved(reading.op, name, reading.again, reading.once) for name in reading.of.split() or [""])
        elif m.visit.kind in reading.during:
            now = parse(reading.value).value(m.of_all()).at(0)
            so_far = so_far + now if reading.adds else now
        self._totals[reading.label] = so_far
        return so_far / parse(reading.per).value(m).at(0) if isinstance(reading, Bytes) else so_far

    def result(self) -> Iterator[Reading]:
        for reading in self.view.readings:
            values = np.array(self.readings[reading.label])
            if isinstance(reading, Bytes):
                yield Reading(tr(reading.label), values, "counted")
            else:
                yield Reading(tr(reading.label), values, "" if reading.role else "counted", reading.role)


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
    recorder, columns = Recorder(), max(recording.block_threads for recording in recorded.launches)
    c = _Compiler(view, recorder, Cells(view, recorder, recorded.launches[0].blocks, view.threads or columns))
    spans, launches, calls = [], [], []
    for n, (recording, steps) in enumerate(zip(recorded.launches, view.launches, strict=True)):
        launches.append(list(moments_of(recording, view, steps)))
        start = recorder.steps
        c.launch()
        for m in launches[-1]:
            c.add(m)
        if recorder.steps == start:
            raise ViewError(f"{recording.launch.source}: no step of the view is executed")
        if n < len(view.others) and view.others[n] and recording.others:
            c.add_others(launches[-1][-1], view.others[n])
        spans.append((start, recorder.steps))
        for call in recorded.calls:
            if call.launches == n + 1 and (text := view.calls.get(call.call.routine)):
                calls.append(c.add_call(launches[-1][-1], call, text))
    c.cells.finish()
    firsts = [moments[0] for moments in launches]
    shown = [replace(tensor, **tensors.get(tensor.name, {})) for tensor in c.cells.tensors(firsts, notes)]
    first_source, *next_sources = (
        _source(recording, c.moments[start:stop], start)
        for recording, (start, stop) in zip(recorded.launches, spans, strict=True)
    )
    fields = {
        "step_name": tr(view.step_name),
        "order_name": tr(view.order[0]),
        "order_note": _order_note(view, recorded),
        "readings": tuple(c.result()),
        "annotations": tuple(c.cells.annotations(shown)),
        "matmuls": tuple(MatMul(*product) for product in view.products),
        "faults": tuple(_faults(c.moments)),
    }
    scene = Scene(
        key=key,
        title=title,
        tensors=tuple(shown),
        groups=tuple(_groups(c, firsts[0])),
        steps=recorder.steps,
        writes=recorder.writes({tensor.name: tensor.size for tensor in shown}),
        reads=recorder.reads(),
        captions=recorder.captions(tuple(c.templates)),
        source=first_source,
        next_sources=tuple(sorted([*next_sources, *calls], key=lambda source: source.since)),
        lanes=recorder.lanes(),
        finite=False,
        **fields | parts,
    )
    sentence, numbers = _repetitions(c.moments)
    return folded(scene, list(numbers), sentence, lambda run: numbers[run])


def _faults(moments: Sequence[Moment]) -> Iterator[tuple[int, str]]:
    for n, m in enumerate(moments):
        yield from ((n, text) for text in m.faults())


def _repetitions(moments: Sequence[Moment]) -> tuple[str, dict[tuple[int, int], list[float]]]:
    """Returns what is said of the repetitions of the steps with the first sentence that there is for them. A repetition is of one group of
    threads."""
    text = next((m.step.fold for m in moments if m.step.fold), "")
    if not text:
        return "", {}
    sentence, fields = template(tr(text))
    same = list(dict.fromkeys((id(m.step), m.visit.threads) for m in moments if m.step.fold == text))
    kinds = [same.index((id(m.step), m.visit.threads)) if m.step.fold == text else -n for n, m in enumerate(moments, 1)]
    numbers = {}
    for first, last in repeats(kinds, range(len(same))):
        m = moments[last].after(moments[first])
        numbers[first, last] = [field.value(m).at(int(m.active.argmax())) for field in fields]
    return sentence, numbers


def _order_note(view: View, recorded: Recorded) -> str:
    plain = view.order[1] == ORDER_NOTE
    note = tr(GROUP_NOTE, threads=view.group) if view.group > 0 and plain else tr(view.order[1])
    return f"{note} {tr(DIFFERENCE, difference=f'{recorded.difference:.0e}')}" if recorded.difference else note


def moments_of(recording: Recording, view: View, steps: Mapping[str, Step]) -> Iterator[Moment]:
    """Yields the steps of a launch."""
    played, files = Played(recording, view), recording.files

    def key(visit: Visit) -> object:
        if not (each := steps[visit.kind].each):
            return None
        m = Moment(played, visit, steps[visit.kind])
        return parse(each).value(m).at(int(m.active.argmax()))

    def group(visit: Visit) -> np.ndarray | None:
        step = steps[visit.kind]
        if step.by:
            return np.broadcast_to(parse(step.by).value(Moment(played, visit, step)).of, recording.threads)
        if step.together or not view.group:
            return None
        block, own = np.divmod(np.arange(recording.threads), recording.block_threads)
        if view.group == BLOCK:
            return block
        groups = block * recording.block_threads + own // view.group * view.group
        return np.minimum(groups, view.alone) if view.alone else groups

    found = joined(visits(recording.watched, steps, files), key)
    found = view.arrange(recording, found) if view.arrange else found
    barriers = np.zeros(0, int) if view.group == BLOCK else complete(recording.watched)
    groups = split(found, recording.watched, barriers, group, recording.block_threads, view.detailed)
    for visit in merged(groups, steps):
        m = Moment(played, visit, steps[visit.kind])
        if not m.step.apart:
            yield m
            continue
        values = np.broadcast_to(parse(m.step.apart).value(m).of, played.threads)
        different = np.unique(values[m.active])
        for n, value in enumerate(different, 1):
            chosen = m.active & (values == value)
            yield Moment(played, replace(m.visit, chosen=chosen, part=(n, len(different))), m.step)


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
    for shown in view.tensors:
        if isinstance(shown, PerThread):
            yield from (parse(text) for text in (*shown.place, shown.value) if text)
    for reading in view.readings:
        yield parse(reading.per if isinstance(reading, Bytes) else reading.value)


def expressions_of(step: Step) -> Iterator[Expression]:
    yield from template(step.lead)[1]
    yield from (parse(text) for text in (step.each, step.by, step.apart) if text)
    for say in step.cases:
        yield from template(say.text)[1]
        yield from (parse(text) for text in (say.among, say.pick) if text)
    for text in step.cells.values():
        yield from template(text)[1]


# -- sentences -------------------------------------------------------------------------------------------
def _said(m: Moment) -> Sentence:
    """Returns the first sentence that fits a step."""
    for say in m.step.cases:
        among = m.active & _truth(m, say.among) if say.among else m.active
        if among.any():
            example = _example(m, say, among)
            text, fields = template(f"{tr(m.step.lead)} {tr(say.text)}".strip() if say.text else "")
            return Sentence(text, tuple(field.value(m).at(example) for field in fields), example)
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
    file, text = next(iter(recording.files.items()))
    places = {mark: place_of(mark, recording.files) for mark in {m.step.lit or m.step.at for m in moments}}
    lines = np.array([lit_line(places[m.step.lit or m.step.at], m.visit, recording.watched, file) for m in moments])
    notes, detail = margin(recording.counters, file), resources(recording.launch)
    return source_at(file, text, lines, notes=notes, detail=detail, since=since)
