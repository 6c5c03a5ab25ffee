"""The scene of a program, compiled from its recording and a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels import sources
from kernels.engines.emulator.threads import LANES
from kernels.engines.emulator.watch.recording import Recorded, Recording
from kernels.i18n import mark, tr
from visuals.scene.compiler.cells import Cells
from visuals.scene.compiler.expressions import Expression, parse, template
from visuals.scene.compiler.moment import Moment, Played
from visuals.scene.compiler.steps import Visit, joined, lit_line, visits
from visuals.scene.compiler.view import Bytes, Number, PerThread, Say, Step, View
from visuals.scene.parts import Captions, Group, Reading, Source
from visuals.scene.recorder import Recorder
from visuals.scene.requests import mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_at

ORDER = mark("step by step")
ORDER_NOTE = mark(
    "One step is one line of the kernel, executed by all threads that reach it together. On a GPU the warps of a block run in any order "
    "between two barriers, and other blocks run at the same time. All values are those of the kernel in the emulator."
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
    readings: list[list[float]] = field(default_factory=list)  # one list a reading
    _totals: dict[int, float] = field(default_factory=dict)

    def add(self, m: Moment) -> None:
        """Add a step."""
        say, example = _said(m)
        sentence, fields = template(f"{tr(m.step.lead)} {tr(say.text)}".strip())
        numbers = [field.value(m).at(example) for field in fields]
        block, thread = divmod(example, m.played.recording.block_threads)
        active = m.active.reshape(m.played.recording.blocks, -1)[block]
        warp = thread // LANES
        lanes = np.flatnonzero(active[warp * LANES : (warp + 1) * LANES])
        if sentence not in self.templates:
            self.templates.append(sentence)
        self.recorder.step(self.templates.index(sentence), *numbers, warp=warp, mask=mask_of(lanes))
        self.cells.record(m)
        for n, reading in enumerate(self.view.readings):
            self.readings[n].append(
                self._bytes(n, reading, m) if isinstance(reading, Bytes) else self._number(n, reading, m)
            )

    def _bytes(self, n: int, reading: Bytes, m: Moment) -> float:
        found = m.accessed(reading.of)
        moved = np.count_nonzero(found.write == (reading.op == "st")) * found.value.itemsize
        self._totals[n] = self._totals.get(n, 0.0) + moved
        return self._totals[n] / parse(reading.per).value(m).at(0)

    def _number(self, n: int, reading: Number, m: Moment) -> float:
        if m.visit.kind in reading.during:
            self._totals[n] = parse(reading.value).value(m.of_all()).at(0)
        return self._totals.get(n, reading.start)

    def captions(self) -> Captions:
        return self.recorder.captions(tuple(self.templates))

    def result(self) -> Iterator[Reading]:
        for reading, values in zip(self.view.readings, self.readings, strict=True):
            if isinstance(reading, Bytes):
                yield Reading(tr(reading.label), np.array(values), "counted")
            else:
                yield Reading(tr(reading.label), np.array(values), role=reading.role)


def compile_scene(recorded: Recorded, view: View, key: str, title: str, notes: Mapping[str, str] = {}) -> Scene:
    """Returns the scene of a program. `notes`: beside the titles of tensors. ViewError names the line for which a name or a sentence is
    missing, MarkError the mark that no line has."""
    first = recorded.launches[0]
    recorder = Recorder()
    c = _Compiler(
        view,
        recorder,
        Cells(view, recorder, first.blocks, view.threads or first.block_threads),
        readings=[[] for _ in view.readings],
    )
    moments, lit = [], []
    for recording, steps in zip(recorded.launches, view.launches, strict=True):
        files, since = sources.files(recording.launch.source), recorder.steps
        found = list(moments_of(recording, view, steps))
        if not found:
            raise ViewError(f"{recording.launch.source}: no step of the view is executed")
        for m in found:
            c.add(m)
        lines = np.array([lit_line(m.step, m.visit, recording.watched, files) for m in found])
        lit.append(_source(recording, lines, since))
        moments.append(found[0])
    tensors = c.cells.tensors(moments, notes)
    return Scene(
        key=key,
        title=title,
        tensors=tuple(tensors),
        groups=tuple(_groups(c, moments[0])),
        steps=recorder.steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=_order_note(recorded),
        writes=recorder.writes(),
        reads=recorder.reads(),
        captions=c.captions(),
        readings=tuple(c.result()),
        annotations=tuple(c.cells.annotations(tensors)),
        source=lit[0],
        next_sources=tuple(lit[1:]),
        lanes=recorder.lanes(),
        finite=False,
    )


def _order_note(recorded: Recorded) -> str:
    if not recorded.difference:
        return tr(ORDER_NOTE)
    return f"{tr(ORDER_NOTE)} {tr(DIFFERENCE, difference=f'{recorded.difference:.0e}')}"


def moments_of(recording: Recording, view: View, steps: Mapping[str, Step]) -> Iterator[Moment]:
    """Yields the steps of a launch."""
    played, files = Played(recording, view), sources.files(recording.launch.source)

    def key(visit: Visit) -> object:
        m = Moment(played, visit, steps[visit.kind])
        return m.value(m.step.each).at(int(m.active.argmax())) if m.step.each else None

    for visit in joined(visits(recording.watched, steps, files), key):
        yield Moment(played, visit, steps[visit.kind])


def watched_names(view: View) -> frozenset[str]:
    """Returns the names of the variables that a view may need."""
    names = {path for shown in view.tensors if isinstance(shown, PerThread) for path in shown.variables}
    for step in (step for launch in view.launches for step in launch.values()):
        names |= {*step.shows.values(), *([step.each] if step.each else [])}
    names |= {name for expression in expressions(view) for name in expression.names}
    return frozenset(name.partition(".")[0].partition("[")[0] for name in names)


def expressions(view: View) -> Iterator[Expression]:
    """Yields the expressions of a view."""
    for step in (step for launch in view.launches for step in launch.values()):
        yield from expressions_of(step)
    for reading in view.readings:
        yield parse(reading.per if isinstance(reading, Bytes) else reading.value)


def expressions_of(step: Step) -> Iterator[Expression]:
    yield from template(step.lead)[1]
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
        if c.cells.blocks == 1 or not any(isinstance(s, PerThread) for s in shown):
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


def _source(recording: Recording, lines: np.ndarray, since: int) -> Source:
    launch, file = recording.launch, recording.launch.source.rpartition("/")[2]
    return source_at(
        launch.source, lines, notes=margin(recording.counters, file), detail=resources(launch), since=since
    )
