"""Elementwise layers as scenes: one warp a step, as the emulator executed it. A backward scene has the same tensors at the
same places as the forward scene, and its arrows run the other way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels.elementwise.shape import BITS, WORD, BiasShape, MapsShape, ReluShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from visuals.elementwise import sums
from visuals.elementwise.captions import (
    ITERATION,
    ITERATIONS,
    LAST,
    OPERATIONS,
    POSITIVE,
    VALUES,
    WIDTH,
    WORDS,
    lit,
    template,
)
from visuals.elementwise.plan import BALLOT, IDLE, SUMMED, Step, bits_of, channels, link_of, operation, steps_of
from visuals.scene.parts import Annotation, Captions, Group, Number, Reading, Source, Tensor
from visuals.scene.program_traces import Given, TracedProgram, traced
from visuals.scene.recorder import Recorder
from visuals.scene.requests import ORDER, ORDER_NOTE, mask_of
from visuals.scene.scene import Scene
from visuals.scene.source import margin, resources, source_of

MAX_ELEMENTS = 2048
NOTE = mark("The picture shows one warp per step, block by block, as the emulator executed them.")
ROLES = {
    "x": "input",
    "a": "input",
    "b": "filter",
    "y": "output",
    "mask": "workspace",
    "sum": "workspace",
    "sums": "workspace",
    "dx": "input",
    "da": "input",
    "db": "filter",
    "dy": "output",
}
TITLES = {
    "dx": mark("dx, the gradient of x"),
    "da": mark("da, the gradient of a"),
    "db": mark("db, the gradient of b"),
    "dy": mark("dy, the gradient of y"),
    "mask": mark("mask, what is kept"),
    "sum": mark("a + b, written to memory"),
    "sums": mark("sums of the parts"),
}
# Where a tensor stands: what the forward pass reads, and its gradient, on the left; y and dy on the right.
LEFT, MIDDLE, RIGHT = ("x", "a", "b", "dx", "da", "db"), ("sum", "sums", "mask"), ("dy", "y")


def elementwise_scene(
    rung: str, s: MapsShape, tiles: Mapping[str, int], seed: int = 0, given: Given | None = None
) -> Scene:
    """Returns the scene of one of our rungs at a shape, at seeded inputs or at those of `given` (plan.as_forward). RuleError
    above MAX_ELEMENTS elements, or with too many blocks."""
    if s.elements > MAX_ELEMENTS:
        raise RuleError(
            tr(
                "at most {most} elements are shown, {shape} has {count}",
                most=decimal(f"{MAX_ELEMENTS:,}"),
                shape=s,
                count=decimal(f"{s.elements:,}"),
            )
        )
    t = traced(rung, s, tuple(sorted(tiles.items())), seed, given=given)
    r, kinds = Recorder(), Kinds()
    summed: dict[str, Tensor] = {}
    for n, of in enumerate(t.launches):
        kinds.launch(of)
        if of.launch.entry in SUMMED:
            summed |= sums.record(r, kinds, t, s, n)
        else:
            _record(r, kinds, t, rung, s, n)
    tensors = {b.name: _tensor(t, s, b.name) for b in t.program.buffers}
    source, *others = kinds.sources(t)
    return Scene(
        key=f"{rung} {s} {given.__name__ if given else seed} " + ",".join(f"{k}={v}" for k, v in sorted(tiles.items())),
        title=tr(find(rung).title),
        tensors=(*tensors.values(), *summed.values()),
        groups=_groups(tensors, summed),
        steps=r.steps,
        step_name=tr("step") if summed else tr("warp"),
        order_name=tr(ORDER),
        order_note=f"{tr(NOTE)} {tr(ORDER_NOTE)}",
        writes=r.writes(),
        reads=r.reads(),
        readings=(
            Reading(tr("bytes read from global memory"), r.so_far("read"), "counted"),
            Reading(tr("bytes written to global memory"), r.so_far("written"), "counted"),
        ),
        captions=r.captions(kinds.templates),
        annotations=tuple(_annotations(t, ladder_of(rung).name, s)),
        source=source,
        next_sources=tuple(others),
        lanes=r.lanes(),
    )


class Kinds:
    """The kinds of steps of a program: for each its caption's template, and the line of its launch that it lights."""

    def __init__(self):
        self.templates: list[str] = []
        self._launches: list = []
        self._lit: list[list[str]] = []  # by launch and step
        self._numbers: dict[tuple[int, str], int] = {}

    def launch(self, of) -> None:
        self._launches.append(of)
        self._lit.append([])

    def number(self, kind: str, text: str, line: str) -> int:
        """Returns the number of a kind of step of the current launch, and notes that a step of it follows."""
        self._lit[-1].append(line)
        key = len(self._launches) - 1, kind
        if key not in self._numbers:
            self._numbers[key] = len(self.templates)
            self.templates.append(text)
        return self._numbers[key]

    def sources(self, t: TracedProgram) -> list[Source]:
        """Returns the files of the launches, each from its first step on. Launches of one kernel share a file."""
        found, since = [], 0
        for of, lines in zip(self._launches, self._lit, strict=True):
            marks = list(dict.fromkeys(lines))
            found.append(
                source_of(
                    of.launch.source,
                    marks,
                    np.array([marks.index(line) for line in lines]),
                    notes=margin(t.counters, of.file),
                    detail=resources(of.launch),
                    since=since,
                )
            )
            since += len(lines)
        return found


# -- steps -----------------------------------------------------------------------------------------
def _record(r: Recorder, kinds: Kinds, t: TracedProgram, rung: str, s: MapsShape, n: int) -> None:
    entry = t.launches[n].launch.entry
    op = operation(ladder_of(rung).name, s, entry)
    for step in steps_of(t, s, n):
        number = kinds.number(step.kind, template(step.kind, op), lit(step.kind, entry))
        counts = {"read": step.read_bytes, "written": step.written_bytes}
        r.step(number, *_args(t, s, step, op), warp=step.warp, mask=mask_of(step.lanes), **counts)
        for name, elements in step.reads.items():
            r.look(name, elements)
        for name, (cells, values) in step.writes.items():
            r.put(name, values, cells)


def _args(t: TracedProgram, s: MapsShape, step: Step, op: str) -> np.ndarray:
    """Returns the numbers of a step's caption."""
    args = np.zeros(WIDTH)
    args[:4] = step.block, step.warp, len(step.lanes), step.element
    if step.kind == IDLE:
        return args
    of = t.launches[step.launch]
    last = min(step.element + 4 * len(step.lanes), s.elements) - 1
    args[[ITERATION, ITERATIONS, LAST]] = step.iteration + 1, dict(of.launch.defines).get("PER", 1), last
    if op in OPERATIONS:
        numbers = [_number(t, s, step, name) for name in OPERATIONS[op][1]]
        args[VALUES : VALUES + len(numbers)] = numbers
    if step.kind == BALLOT:
        args[[WORDS, POSITIVE]] = step.element // WORD, step.writes["mask"][1].sum()
    return args


def _number(t: TracedProgram, s: MapsShape, step: Step, name: str) -> Number:
    """Returns a number of the step's first element: its value in a buffer after the run, or before it; its channel."""
    i = step.element
    if name == "channel":
        return channels(s)[i]
    if name == "db_after":  # of the atomic addition of the first lane
        _cells, values = step.writes["db"]
        return values[0]
    if name == "mask":
        return (bits_of(t.arrays["mask"]) if getattr(s, "keep", "") == BITS else t.flat["mask"])[i]
    buffer, _, when = name.partition("_")
    return (t.before if when else t.flat)[buffer][link_of(s, buffer)[i]]


# -- tensors ---------------------------------------------------------------------------------------
def _tensor(t: TracedProgram, s: MapsShape, name: str) -> Tensor:
    """Returns a buffer as a tensor: maps of P rows and Q columns, or one row per pixel if the channels are neighbours."""
    planes, rows, cols = s.N * s.C, s.P, s.Q
    plane_name, note = tr("map"), f"N = {s.N}, C = {s.C}, {s.P} × {s.Q}"
    if isinstance(s, BiasShape) and s.layout == "nhwc":
        planes, rows, cols, plane_name, note = 1, s.N * s.P * s.Q, s.C, "", tr("one row per pixel")
    if name == "sums":
        (rows, cols), planes, plane_name, note = t.arrays["sums"].shape, 1, "", tr("one row per part")
    elif name in ("b", "db") and isinstance(s, BiasShape):
        planes, rows, cols, plane_name, note = 1, 1, s.C, "", tr("one number per channel")
    elif name == "mask" and isinstance(s, ReluShape) and s.keep == BITS:
        planes, rows, cols, plane_name, note = 1, s.words, WORD, "", tr("one row per word of 32 bits")
    values = None
    if name in t.inputs:
        values = (bits_of(t.inputs[name]) if note == tr("one row per word of 32 bits") else t.before[name]).astype(
            np.float32
        )
    return Tensor(
        name,
        name,
        tr(TITLES[name]) if name in TITLES else name,
        ROLES[name],
        planes,
        rows,
        cols,
        values,
        note=note,
        plane_name=plane_name,
    )


def _groups(tensors: Mapping[str, Tensor], summed: Mapping[str, Tensor]) -> tuple[Group, ...]:
    def row(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in tensors)

    groups = [Group(tuple(filter(None, (row(LEFT), row(MIDDLE), row(RIGHT)))), "global", tr("global memory"))]
    for space, title in (
        ("registers", tr("one register of each thread")),
        ("shared", tr("shared memory of the block")),
    ):
        if names := [name for name in summed if sums.SPACES[name.rstrip("0123456789")] == space]:
            groups.append(Group(tuple((name,) for name in names), space, title))
    return tuple(groups)


# -- notes on cells ----------------------------------------------------------------------------------
# Of an element of a result: the sentence, and the buffers whose numbers are in it, after the run or before it.
_NOTES: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "relu": {"y": (mark("max({0}, 0)."), ("x",))},
    "relu-backward": {"dx": (mark("{0} of dy, and 0 where x was not positive."), ("dy",))},
    "gelu": {"y": (mark("{0} times the share of normal numbers below it."), ("x",))},
    "gelu-backward": {"dx": (mark("{0} of dy, times the slope of GELU at x = {1}."), ("dy", "x"))},
    "bias": {"y": (mark("{0} + {1}, the bias of its channel."), ("x", "b"))},
    "residual": {"y": (mark("max({0} + {1}, 0)."), ("a", "b"))},
    "residual-backward": {
        "da": (mark("{0} of dy, and 0 where y is not positive: {1}."), ("dy", "y")),
        "db": (mark("It was {0}. The gradient {1} was added to it."), ("db_before", "da")),
    },
}
_ADDED = mark("The sum of the lit cells: all elements of channel {0}.")


def _annotations(t: TracedProgram, ladder: str, s: MapsShape) -> list[Annotation]:
    """Returns notes on the results: the cells that each was computed from, by the links of both directions."""
    if ladder == "bias-backward":
        per_channel = [np.flatnonzero(channels(s) == c) for c in range(s.C)]
        args = np.arange(s.C)[:, None]
        return [Annotation("db", Captions((tr(_ADDED),), np.zeros(s.C, int), args), {"dy": np.stack(per_channel)})]
    return [_annotation(t, s, name, *note) for name, note in _NOTES[ladder].items()]


def _annotation(t: TracedProgram, s: MapsShape, name: str, text: str, numbers: Sequence[str]) -> Annotation:
    args, lit_cells = [], {}
    for number in numbers:
        buffer, _, when = number.partition("_")
        link = link_of(s, buffer)
        args.append((t.before if when else t.flat)[buffer][link])
        if buffer != name:
            lit_cells[buffer] = link[:, None]
    captions = Captions((tr(text),), np.zeros(s.elements, int), np.stack(args, axis=1))
    return Annotation(name, captions, lit_cells)
