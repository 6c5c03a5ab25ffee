"""The view of any kernel, made from its recording alone: arrays and variables, each statement a step, what one thread does in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from kernels.engines.emulator.watch.recording import Recording
from kernels.engines.emulator.watch.values import History
from kernels.i18n import mark, tr, trn
from visuals.scene.compiler.moment import Moment
from visuals.scene.compiler.steps import Visit
from visuals.scene.compiler.view import (
    Array,
    Buffer,
    Bytes,
    Number,
    PerThread,
    Place,
    Sentence,
    Shared,
    Shown,
    Step,
    View,
    box,
    row_of,
)
from visuals.scene.parts import Group

MAX_CELLS = 4096  # of a buffer that is shown whole
PART = 64  # rows and columns of a part of a larger one
GAP = 4  # between tensors beside each other, in columns
ROW = 32  # columns of a one-dimensional array with more elements
MAX_THREADS = 1024  # whose variables are shown
MAX_VARIABLES, MAX_NUMBERS = 8, 6  # that are tensors, and whole numbers beside the picture
MAX_LISTED = 3  # accesses or values of a thread in a sentence
MIN_ITERATIONS = 5  # of a loop that is folded
_ITERATIONS = " iterations"  # ends the kind of a step that is several iterations


def automatic_view(recordings: Sequence[Recording], thread: int = 0, most: int = 200) -> View:
    """Returns a view of launches. Its sentences follow a thread, by its number in the watched blocks. `most`: steps of a launch; of one with
    more, most iterations of loops are one step."""
    tensors: dict[str, Shown] = {}
    spaces: dict[str, dict[str, None]] = {"global": {}, "registers": {}, "shared": {}}
    for recording in recordings:
        arrays = recording.watched.buffers
        for space, found in (
            ("global", [_buffer(recording, name) for name in arrays if name in recording.before]),
            ("registers", list(_variables(recording, thread))),
            ("shared", [_shared(recording, name) for name in arrays if name in recording.watched.shared]),
        ):
            tensors |= {shown.name: shown for shown in found if shown.name not in tensors}
            spaces[space] |= {shown.name: None for shown in found if space == _space(tensors[shown.name])}
    groups = (
        Group(tuple(_rows([tensors[name] for name in names], recordings[0])), space, _TITLES[space])
        for space, names in spaces.items()
        if names
    )
    launches = tuple(_steps(recording, thread) for recording in recordings)
    numbers = {n.label: n for r, steps in zip(recordings, launches, strict=True) for n in _numbers(r, thread, steps)}
    return View(
        tuple(tensors.values()),
        tuple(groups),
        launches,
        (*list(numbers.values())[:MAX_NUMBERS], *_moved(tensors.values())),
        others=tuple(_OTHERS if recording.blocks < prod(recording.launch.grid) else "" for recording in recordings),
        arrange=partial(_arranged, most),
    )


_TITLES = {
    "global": mark("global memory"),
    "registers": mark("registers of the block’s {threads} threads"),
    "shared": mark("shared memory of the block"),
}
_OTHERS = mark("The other blocks do the same with their parts. This step shows what they have written.")


def _rows(shown: Sequence[Shown], recording: Recording) -> Iterator[tuple[str, ...]]:
    """Yields the names of tensors in rows: those beside each other that are narrow enough."""
    row: list[str] = []
    room = 0
    for tensor in shown:
        width = _width(tensor, recording)
        if row and width > room:
            yield tuple(row)
            row, room = [], 0
        room = (room or 2 * PART) - width
        row.append(tensor.name)
    yield tuple(row)


def _width(shown: Shown, recording: Recording) -> int:
    """Returns about how many columns a tensor takes, with its planes and the space between tensors."""
    if isinstance(shown, Buffer) and not shown.part:
        *planes, _, columns = (1, 1, *(shown.shape or recording.before[shown.of].shape))
        return prod(planes) * (columns + GAP)
    if isinstance(shown, PerThread):
        return recording.launch.block[0] + GAP
    return PART + GAP


def _space(shown: Shown) -> str:
    return "global" if isinstance(shown, Buffer) else "shared" if isinstance(shown, Shared) else "registers"


def _moved(tensors: Iterable[Shown]) -> list[Bytes]:
    buffers = [shown for shown in tensors if isinstance(shown, Buffer)]
    read = [Bytes(tr("bytes of {name} read", name=s.title), s.name, "ld") for s in buffers if s.role != "output"]
    return read + [
        Bytes(tr("bytes of {name} written", name=s.title), s.name, "st") for s in buffers if s.role != "input"
    ]


def _name(text: str) -> str:
    """Returns a text as the name of a tensor."""
    return re.sub(r"\W", "_", text)[:32]


# -- arrays ------------------------------------------------------------------------------------------------
def _buffer(recording: Recording, buffer: str) -> Buffer:
    of = recording.watched.accesses
    mine = of.buffer == recording.watched.buffers.index(buffer)
    reads, writes = bool((mine & ~of.write).any()), bool((mine & of.write).any())
    role = "workspace" if reads and writes else "output" if writes else "input"
    title = next((name for name, other in recording.arguments.items() if other == buffer), buffer)
    array = recording.before[buffer]
    columns = ROW if array.ndim == 1 and array.size > 2 * ROW and array.size % ROW == 0 else 0
    shape = (array.size // columns, columns) if columns else ()
    shown = Buffer(_name(title), role, title, of=buffer, shape=shape)
    if array.size <= MAX_CELLS:
        return shown
    row, column = np.divmod(of.element[mine].astype(int), columns or array.shape[-1])
    rows, columns_ = (range(int(n.min()), min(int(n.max()), int(n.min()) + PART - 1) + 1) for n in (row, column))
    return replace(shown, part=(rows, columns_))


def _shared(recording: Recording, name: str) -> Shared:
    """Returns a shared array, one that is long in rows: from the first element that a thread reads or writes on, or a part of it."""
    of, shown = recording.watched.accesses, Shared(_name(name), "filter", name, of=name)
    elements = of.element[of.buffer == recording.watched.buffers.index(name)]
    is_table = len(recording.watched.shared[name].shape) > 1
    first, last = int(elements.min()) // PART * PART, int(elements.max())
    if last - first < (MAX_CELLS if is_table else 2 * ROW):
        return shown
    return replace(shown, **box(first, min(PART, -(-(last + 1 - first) // PART)), PART, PART))


# -- variables ---------------------------------------------------------------------------------------------
def _variables(recording: Recording, thread: int) -> Iterator[Shown]:
    """Yields the variables with fractions: one number of each thread, or an array of the thread that is followed."""
    taken = {*recording.arguments, *recording.watched.buffers}
    values = recording.watched.values
    for variable, histories in zip(values.variables, values.histories, strict=True):
        if (
            variable.calls
            or variable.is_parameter
            or variable.name in taken
            or len(taken) > MAX_VARIABLES + len(recording.watched.buffers)
        ):
            continue
        paths = [path for path, history in histories.items() if history.leaf.dtype[0] == "f"]
        if not paths:
            continue
        taken.add(variable.name)
        if variable.type.shape:
            note = tr("of thread {thread}", thread=thread)
            at: dict[str, Any] = (
                row_of(thread) if len(variable.type.shape) == 1 else {"threads": range(thread, thread + 1)}
            )
            yield PerThread(_name(variable.name), "output", variable.name, note, of=variable.name, **at)
        elif recording.threads <= MAX_THREADS:
            for path in paths:
                yield PerThread(_name(variable.name + path), "output", variable.name + path, of=variable.name + path)


def _numbers(recording: Recording, thread: int, steps: Mapping[str, Step]) -> list[Number]:
    """Returns the variables that are whole numbers, of the thread that is followed, at the steps that see them."""
    watched = recording.watched
    kinds, of_step = np.unique([_kind(recording, n) for n in range(watched.steps)], return_inverse=True)
    found: dict[str, Number] = {}
    for variable, histories in zip(watched.values.variables, watched.values.histories, strict=True):
        whole = "" in histories and histories[""].leaf.dtype[0] in "iub" and variable.type.target is None
        if whole and not variable.calls and not variable.is_parameter and variable.name not in found:
            sees = (variable.start <= watched.pc) & (watched.pc < variable.stop)
            unseen = set(kinds[np.unique(of_step[~sees])].tolist())
            label = tr("{name} of thread {thread}", name=variable.name, thread=thread)
            during = tuple(kind for kind in steps if kind.removesuffix(_ITERATIONS) not in unseen)
            found[variable.name] = Number(label, f"at({variable.name}, {thread})", "workspace", during, float("nan"))
    return list(found.values())


def _kind(recording: Recording, step: int) -> str:
    """Returns the name of the step that a raw step belongs to: line, statement, kernel; "" if it is in another file."""
    watched = recording.watched
    line = watched.lines[watched.line[step]] if watched.line[step] >= 0 else None
    ours = line is not None and line.file == next(iter(recording.files))
    return f"{line.number}.{watched.statement[step]}.{recording.launch.name}" if line and ours else ""


# -- steps -------------------------------------------------------------------------------------------------
def _steps(recording: Recording, thread: int) -> dict[str, Step]:
    """Returns a step for each statement of the kernel that is executed."""
    file = next(iter(recording.files))
    lines = recording.files[file].splitlines()
    kinds = {_kind(recording, step) for step in range(recording.watched.steps)} - {""}
    places = sorted(
        (int(number), int(statement), kind) for kind in kinds for number, statement, _ in [kind.split(".", 2)]
    )
    steps = {
        kind: Step(Place(file, range(n, n + 1), statement), (), describe=_Describe(n, thread))
        for n, statement, kind in places
        if 0 < n <= len(lines) and lines[n - 1].strip(" {}\t;")
    }
    return steps | {kind + _ITERATIONS: replace(step, describe=_iterations) for kind, step in steps.items()}


def _arranged(most: int, recording: Recording, found: list[Visit]) -> list[Visit]:
    visits = _without_counting(recording, found)
    return visits if len(visits) <= most else _without_iterations(recording, visits)


def _without_counting(recording: Recording, found: list[Visit]) -> list[Visit]:
    """Returns the steps without those in which nothing is read, written or exchanged and no thread waits: if they give whole numbers values,
    they become part of the step after, else of the one before."""
    watched = recording.watched
    histories = [h for of in watched.values.histories for h in of.values()]
    moments = [watched.accesses.step, watched.shuffles.step, watched.barriers]
    moments += [history.step for history in histories if history.leaf.dtype[0] == "f"]
    busy = np.unique(np.concatenate([np.asarray(steps, np.int64) for steps in moments]))
    counting = np.unique(np.concatenate([np.zeros(0, np.int64), *(h.step.astype(np.int64) for h in histories)]))
    out: list[Visit] = []
    start = -1
    for visit in found:
        if _any_in(busy, visit):
            first = visit.first if start < 0 else start
            out.append(replace(visit, first=first, begins=visit.begin))
            start = -1
        elif out and start < 0 and not _any_in(counting, visit):
            out[-1] = replace(out[-1], stop=visit.stop)
        elif start < 0:
            start = visit.first
    if out and start >= 0:
        out[-1] = replace(out[-1], stop=found[-1].stop)
    return out or found


def _without_iterations(recording: Recording, found: list[Visit]) -> list[Visit]:
    """Returns the steps with the iterations of a loop as one step, but for the first two and the last. The longest loops come first."""
    pcs = [int(recording.watched.pc[visit.begin]) for visit in found]
    runs: dict[int, tuple[int, int]] = {}  # by the first step of a run, the last and the number of iterations
    taken = np.zeros(len(found), bool)
    for chain in sorted(_loops([visit.kind for visit in found], pcs), key=lambda chain: chain[0] - chain[-1]):
        if len(chain) >= MIN_ITERATIONS:
            first, last = chain[2], chain[-1] - 1
            if last > first and not taken[first : last + 1].any():
                taken[first : last + 1] = True
                runs[first] = last, len(chain) - 1
    out = []
    for n, visit in enumerate(found):
        if n in runs:
            last, iteration = runs[n]
            end, kind = found[last], f"{visit.kind}{_ITERATIONS}"
            out.append(replace(visit, kind=kind, end=end.end, stop=end.stop, number=3, count=iteration))
        elif not taken[n]:
            out.append(visit)
    return out


def _loops(kinds: Sequence[str], pcs: Sequence[int]) -> Iterator[list[int]]:
    """Yields the steps at which the iterations of a loop begin, of each kind of step that one begins with."""
    of_kind: dict[str, list[int]] = {}
    for n, kind in enumerate(kinds):
        of_kind.setdefault(kind, []).append(n)
    for starts in of_kind.values():
        chain = starts[:1]
        for a, b in pairwise(starts):
            goes_on = pcs[b] <= pcs[b - 1] and min(pcs[a:b]) >= pcs[a]
            if not goes_on:
                yield chain
                chain = []
            chain.append(b)
        yield chain


def _any_in(steps: np.ndarray, visit: Visit) -> bool:
    first, stop = np.searchsorted(steps, (visit.first, visit.stop))
    return bool(first < stop)


@dataclass(frozen=True)
class _Part:
    """A part of a sentence with numbered fields from 0 on, and its numbers."""

    text: str
    numbers: tuple[float, ...]


@dataclass(frozen=True)
class _Describe:
    """Says what a thread does at a visit of a line: what it reads, is given, sets and writes."""

    line: int
    thread: int

    def __call__(self, m: Moment) -> Sentence:
        said = self._said(m)
        wrong = "".join(f" {text[:1].upper()}{text[1:].rstrip('.')}." for text in m.faults())
        return replace(said, text=said.text + wrong.replace("{", "(").replace("}", ")"))

    def _said(self, m: Moment) -> Sentence:
        thread = self.thread if m.active[self.thread] else int(m.active.argmax())
        active = int(m.active.sum())
        begin = tr("Line {line}:", line=self.line)
        if _is_barrier(m):
            waiting = tr("{n} threads wait for each other at the barrier.", n=active)
            return Sentence(f"{begin} {waiting}", (), thread)
        done = [
            (verb, parts)
            for verb, parts in (
                (mark("reads {list}"), list(_accesses(m, thread, write=False))),
                (mark("gets {list}"), list(_received(m, thread))),
                (mark("sets {list}"), list(_values(m, thread))),
                (mark("writes {list}"), list(_accesses(m, thread, write=True))),
            )
            if parts
        ]
        if not done:
            others = tr("{n} of {threads} threads are here.", n=active, threads=m.played.threads)
            return Sentence(f"{begin} {others}", (), thread)
        numbers: list[float] = []
        phrases = [tr(verb, list=_listed(parts, numbers)) for verb, parts in done]
        text = tr("thread {thread} {done}.", thread=thread, done=", ".join(phrases))
        return Sentence(f"{begin} {text}", tuple(numbers), thread)


def _iterations(m: Moment) -> Sentence:
    """Says which iterations of a loop a step is."""
    text = tr(
        "Line {line}: the loop goes on in the same way. Its iterations {0} to {1} are one step here.",
        line=m.visit.kind.partition(".")[0],
    )
    return Sentence(text, (float(m.visit.number), float(m.visit.count)), int(m.active.argmax()))


def _is_barrier(m: Moment) -> bool:
    barriers = m.played.recording.watched.barriers
    return bool(((barriers >= m.visit.begin) & (barriers < m.visit.end)).any())


def _accesses(m: Moment, thread: int, write: bool) -> Iterator[_Part]:
    for shown in m.played.view.tensors:
        if isinstance(shown, Array):
            found = m.played.accessed(shown.array, m.visit.first, m.visit.stop)
            found = found.only((found.thread == thread) & (found.write == write))
            shape = _shape(m.played.recording, shown)
            for cell, value in zip(found.cell.tolist(), found.value.tolist(), strict=True):
                index = np.unravel_index(cell, shape) if len(shape) > 1 and cell < np.prod(shape) else (cell,)
                fields = ", ".join(f"{{{n}}}" for n in range(len(index)))
                yield _Part(
                    f"[{shown.title}]({shown.role})[{fields}] = {{{len(index)}}}", (*map(float, index), float(value))
                )


def _shape(recording: Recording, shown: Array) -> tuple[int, ...]:
    if isinstance(shown, Buffer):
        return recording.before[shown.of].shape
    return recording.watched.shared[shown.of].shape if shown.of in recording.watched.shared else ()


def _received(m: Moment, thread: int) -> Iterator[_Part]:
    of = m.played.recording.watched.shuffles
    here = np.arange(*np.searchsorted(of.step, (m.visit.first, m.visit.stop)))
    for at in here[of.thread[here] == thread].tolist():
        lane = int(of.source[at]) % 32
        yield _Part(tr("{0} from lane {1}"), (float(of.bits[at : at + 1].view(np.float32)[0]), float(lane)))


def _values(m: Moment, thread: int) -> Iterator[_Part]:
    """Yields the variables that a thread gives a value, fractions first."""
    values = m.played.recording.watched.values
    found: list[tuple[bool, str, History]] = [
        (history.leaf.dtype[0] != "f", f"{variable.name}{path}", history)
        for variable, histories in zip(values.variables, values.histories, strict=True)
        for path, history in histories.items()
        if not variable.is_parameter and variable.type.target is None and not variable.calls
    ]
    for _, name, history in sorted(found, key=lambda f: f[:2]):
        part = slice(*np.searchsorted(history.step, (m.visit.first, m.visit.stop)))
        mine = np.flatnonzero(history.thread[part] == thread)
        if mine.size:
            yield _Part(f"{name} = {{0}}", (float(history.values[part][mine[-1]]),))


def _listed(parts: Sequence[_Part], numbers: list[float]) -> str:
    """Returns the parts as one text, whose fields continue `numbers`, to which theirs are added."""
    texts = []
    for part in parts[:MAX_LISTED]:
        first = len(numbers)
        texts.append(re.sub(r"\{(\d+)\}", lambda m, first=first: f"{{{int(m[1]) + first}}}", part.text))
        numbers += part.numbers
    if len(parts) > MAX_LISTED:
        texts.append(trn("{n} more", "{n} more", len(parts) - MAX_LISTED))
    return _joined(texts)


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else tr("{first} and {last}", first=", ".join(texts[:-1]), last=texts[-1])
