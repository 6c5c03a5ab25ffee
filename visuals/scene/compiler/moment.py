"""What the names in a sentence are at a step: variables, elements and lanes of a recorded launch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernels.engines.emulator.threads import LANES
from kernels.engines.emulator.watch.recording import Recording
from kernels.engines.emulator.watch.types import UNKNOWN
from kernels.engines.emulator.watch.values import History, Reads
from kernels.engines.emulator.watch.watch import Variable
from visuals.scene.compiler.expressions import Value, parse
from visuals.scene.compiler.layout import Layout, layout_of, parted
from visuals.scene.compiler.steps import Visit, active_threads, wanted
from visuals.scene.compiler.view import SHARED_MEMORY, Array, PerThread, Shown, Step, View

_OF_ACCESSES = ("before", "at", "new", "read", "largest", "times", "ties", "again")  # what may follow a name


def first_from(steps: np.ndarray, step: int) -> int:
    """Returns the first index in sorted steps from `step` on. NumPy would convert all of them for a number of another type."""
    return int(np.searchsorted(steps, steps.dtype.type(step)))


def between(steps: np.ndarray, first: int, stop: int) -> slice:
    """Returns the part of sorted steps from `first` to before `stop`."""
    return slice(first_from(steps, first), first_from(steps, stop))


@dataclass(frozen=True)
class Accessed:
    """Accesses to one array, in the order of time: cells, whether they write, threads, values, and their rows in the recording."""

    cell: np.ndarray
    write: np.ndarray
    thread: np.ndarray
    value: np.ndarray
    row: np.ndarray

    def only(self, chosen: np.ndarray) -> Accessed:
        return Accessed(*(getattr(self, name)[chosen] for name in ("cell", "write", "thread", "value", "row")))

    def __len__(self) -> int:
        return len(self.cell)


@dataclass(frozen=True)
class Number:
    """A number of a variable: its place among the numbers of an array or a structure, what it held, and where it was read."""

    row: int
    history: History
    reads: Reads | None


@dataclass
class Played:
    """A recorded launch with a view of it: finds histories and accesses. What it finds is kept."""

    recording: Recording
    view: View
    _after: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    # By history: the last step that was needed, events until then.
    _latest: dict[int, tuple[int, int]] = field(default_factory=dict)
    _seen: dict[tuple[str, tuple[int, ...], bool], bool] = field(default_factory=dict)
    _layouts: dict[str, Layout] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        return self.recording.threads

    @property
    def columns(self) -> int:
        """Returns how many threads of a block are shown."""
        return self.view.threads or self.recording.block_threads

    # -- variables -------------------------------------------------------------------------------------
    def numbers(self, path: str, pcs: tuple[int, ...], in_function: bool) -> list[Number]:
        """Returns the numbers of a variable or of a part of it, "m", "running.m" or "sum[0][3]", that instructions see: of several scopes
        the innermost. `in_function`: those of the function, too."""
        values = self.recording.watched.values
        root = _root(path)
        seen = [
            n
            for n, variable in enumerate(values.variables)
            if variable.name == root and _sees(variable, pcs, in_function)
        ]
        if not seen:
            return []
        n = min(seen, key=lambda n: _extent(values.variables[n]))
        inner = path.removeprefix(root)
        paths = [leaf.path for leaf in values.variables[n].type.leaves if leaf.path.startswith(inner)]
        histories, reads = values.histories[n], values.reads[n]
        return [Number(row, histories[p], reads.get(p)) for row, p in enumerate(paths) if p in histories]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Returns the extents of a variable that is an array, those of its structures at last; () of another. Of several of the name, the
        largest."""
        types = (v.type for v in self.recording.watched.values.variables if v.name == name)
        found = max(types, key=lambda type_: len(type_.leaves), default=UNKNOWN)
        per = len(found.leaves) // max(1, math.prod(found.shape))
        return (*found.shape, per) if per > 1 and found.shape else found.shape

    def sees(self, path: str, pcs: tuple[int, ...], in_function: bool) -> bool:
        """Returns whether instructions see a variable."""
        key = _root(path), pcs, in_function
        if key not in self._seen:
            variables = self.recording.watched.values.variables
            self._seen[key] = any(v.name == key[0] and _sees(v, pcs, in_function) for v in variables)
        return self._seen[key]

    def after(self, history: History, step: int) -> Value:
        """Returns what each thread holds after a raw step."""
        key = id(history), step
        if key not in self._after:
            until = first_from(history.step, step + 1)
            last, done = self._latest.get(id(history), (-1, 0))
            if last < 0 or last > step:
                values, known, done = np.zeros(self.threads, history.values.dtype), np.zeros(self.threads, bool), 0
            else:
                values, known = (array.copy() for array in self._after[id(history), last])
            threads = history.thread[done:until]
            values[threads], known[threads] = history.values[done:until], True
            self._after[key], self._latest[id(history)] = (values, known), (step, until)
        return Value(*self._after[key])

    # -- memory ----------------------------------------------------------------------------------------
    def array(self, name: str) -> int:
        """Returns the index of a buffer or shared array by its name or the kernel's, -1 if no thread has accessed it."""
        buffers = self.recording.watched.buffers
        name = self.recording.buffer(name)
        return buffers.index(name) if name in buffers else -1

    @cached_property
    def _rows(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Returns the rows of the recording that access each array, and their steps."""
        of = self.recording.watched.accesses
        rows = {int(n): np.flatnonzero(of.buffer == n) for n in np.unique(of.buffer)}
        return {n: (mine, of.step[mine]) for n, mine in rows.items()}

    @cached_property
    def bytes_of(self) -> Mapping[str, np.ndarray]:
        """Returns the bytes of an element of each array, by the names of memories in Bytes: 0 of one that is elsewhere."""
        watched = self.recording.watched
        arrays = list(zip(watched.buffers, watched.dtypes, strict=True))
        memories = {"": self.recording.before, SHARED_MEMORY: watched.shared}
        return {
            memory: np.array([np.dtype(dtype).itemsize if name in names else 0 for name, dtype in arrays], int)
            for memory, names in memories.items()
        }

    @cached_property
    def again(self) -> np.ndarray:
        """Returns bool, one an access: whether the launch has read, or written, the element before."""
        of = self.recording.watched.accesses
        again = np.ones(len(of.step), bool)
        again[np.unique(of.buffer.astype(int) << 33 | of.element.astype(int) << 1 | of.write, return_index=True)[1]] = (
            False
        )
        return again

    def layout(self, shown: Array) -> Layout:
        if shown.name not in self._layouts:
            self._layouts[shown.name] = layout_of(self.recording, shown)
        return self._layouts[shown.name]

    def numbers_of(self, shown: Array, array: np.ndarray) -> np.ndarray:
        """Returns the numbers of a tensor that has places, or of the whole array, flat, of what an array held."""
        numbers = parted(array, shown.dtype)
        return self.layout(shown).shown(numbers) if shown.place else numbers

    def accessed(self, shown: Shown | str, first: int, stop: int) -> Accessed:
        """Returns the accesses of raw steps to the numbers of a tensor that has places, or to a whole array; its name will do."""
        is_array = isinstance(shown, Array)
        array, of = self.array(shown.array if is_array else _name_of(shown)), self.recording.watched.accesses
        rows, steps = self._rows.get(array, (np.zeros(0, int), np.zeros(0, int)))
        rows = rows[between(steps, first, stop)]
        stored = np.dtype(self.recording.watched.dtypes[array]) if array >= 0 else np.dtype("f4")
        values = of.bits[rows].astype(f"u{stored.itemsize}")
        numbers = parted(values.view(stored), shown.dtype if is_array else "")
        parts = numbers.size // max(1, rows.size)
        if not parts:  # no access, or of a type narrower than what is shown
            rows = rows[:0]
            return Accessed(rows, np.zeros(0, bool), rows, numbers[:0], rows)
        if parts > 1:
            rows = np.repeat(rows, parts)
        cell = of.element[rows].astype(int) * parts + np.arange(len(rows)) % parts
        cell = self.layout(shown).of(cell) if is_array and shown.place else cell
        found = Accessed(cell, of.write[rows], of.thread[rows].astype(int), numbers, rows)
        return found.only(cell >= 0) if (cell < 0).any() else found

    def content(self, shown: Shown | str, cells: np.ndarray, step: int) -> Value:
        """Returns numbers of a tensor that has places, or of a whole array, as they are before a raw step."""
        found = self.accessed(shown, 0, step)
        found = found.only(found.write)
        is_array = isinstance(shown, Array)
        initial = self.recording.before.get(
            self.recording.buffer(shown.array if is_array else _name_of(shown)), np.zeros(0)
        )
        initial = self.numbers_of(shown, initial) if is_array and initial.size else initial.ravel()
        size = int(max([cells.max(initial=0), found.cell.max(initial=0), initial.size - 1])) + 1
        known = np.arange(size) < initial.size
        values = np.zeros(size, found.value.dtype if len(found) else initial.dtype)
        values[: initial.size] = initial
        values[found.cell], known[found.cell] = found.value, True
        inside = (cells >= 0) & (cells < size)
        at = np.where(inside, cells, 0)
        return Value(values[at], known[at] & inside)


def _name_of(shown: Shown | str) -> str:
    return shown if isinstance(shown, str) else shown.of or shown.name


def _root(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _sees(variable: Variable, pcs: tuple[int, ...], in_function: bool) -> bool:
    """Returns whether a variable is seen that holds numbers: the name of a pointer is that of its array."""
    is_here = (in_function or not variable.calls) and any(map(variable.is_visible, pcs))
    return is_here and variable.type.target is None


def _extent(variable: Variable) -> int:
    return variable.stop - variable.start


class Moment:
    """The names at a step of a launch (expressions.Names)."""

    def __init__(self, played: Played, visit: Visit, step: Step):
        self.played, self.visit, self.step = played, visit, step
        watched = played.recording.watched
        self.pcs = int(watched.pc[visit.begin]), int(watched.pc[visit.end - 1])
        self.active = active_threads(watched, visit, played.recording.block_threads)
        self.mine = np.ones(played.threads, bool)  # the threads whose step it is
        if visit.threads is not None:
            self.mine[:] = False
            self.mine[visit.threads.start : visit.threads.stop] = True
        if visit.chosen is not None:
            self.mine &= visit.chosen
        self.active &= self.mine
        self.among = self.active
        self.repeated = visit.number, visit.number
        self._accessed: dict[str, Accessed] = {}

    def of_all(self) -> Moment:
        """Returns the moment with functions over all threads."""
        other = Moment(self.played, self.visit, self.step)
        other.among = np.ones(self.played.threads, bool)
        return other

    def after(self, first: Moment) -> Moment:
        """Returns the moment as the last of a repetition, with the names {first} and {last}."""
        other = Moment(self.played, self.visit, self.step)
        other.repeated = first.visit.number, self.visit.number
        return other

    def accessed(self, name: str) -> Accessed:
        """Returns the accesses in the step to a tensor's array, or to an array by its name."""
        if name not in self._accessed:
            shown = self.played.view.shown(name)
            found = self.played.accessed(shown or name, self.visit.first, self.visit.stop)
            found = found if self.mine.all() else found.only(self.mine[found.thread])
            self._accessed[name] = found.only(found.write == (self.step.op == "st")) if self.step.op else found
        return self._accessed[name]

    def moved(self, op: str, name: str, again: bool, once: bool = False) -> int:
        """Returns the bytes of a tensor or a memory, as of Bytes, that the step reads (op "ld") or writes ("st"), "" for both."""
        if name not in self.played.bytes_of:
            shown = self.played.view.shown(name)
            if shown and not shown.is_during(self.visit.kind):
                return 0
            found = self.accessed(name)
            found = found.only(self.played.again[found.row] == again) if again or once else found
            return int(np.count_nonzero(found.write == (op == "st"))) * found.value.itemsize
        of = self.played.recording.watched.accesses
        part = between(of.step, self.visit.first, self.visit.stop)
        counted = self.mine[of.thread[part]] & (not op or of.write[part] == (op == "st"))
        sizes = self.played.bytes_of[name]
        if name == SHARED_MEMORY:
            return int(sizes[of.buffer[part][counted]].sum())
        counted &= ~of.atomic[part] & (sizes[of.buffer[part]] > 0)
        if op == "st" or not counted.any():
            return int(sizes[of.buffer[part][counted]].sum())
        buffer, element, thread, step = (
            c[part][counted].astype(int) for c in (of.buffer, of.element, of.thread, of.step)
        )
        first, read = np.unique(buffer << 48 | element << 16 | thread, return_index=True, return_inverse=True)[1:]
        # An instruction occurs once in a raw step, and again in another one that begins at the same instruction.
        in_step = np.unique(read << 32 | step)
        reads, times = np.unique(
            in_step >> 32 << 32 | self.played.recording.watched.pc[in_step & 0xFFFFFFFF], return_counts=True
        )
        most = np.maximum.reduceat(times, np.flatnonzero(np.diff(reads >> 32, prepend=-1)))
        return int((sizes[buffer[first]] * most).sum())

    # -- names -----------------------------------------------------------------------------------------
    def value(self, name: str) -> Value:
        if m := re.fullmatch(r"(\w+)\[(\d+)\]", name):
            return self.element(m[1], Value(np.asarray(int(m[2]))))
        base, _, what = name.rpartition(".")
        base, what = (base, what) if what in _OF_ACCESSES and base else (name, "")
        found = self._found(base, what)
        if found is None:
            raise KeyError(f"{self.where()}: nothing is called {name}")
        return found

    def faults(self) -> list[str]:
        """Returns what is wrong at the step: data races, and what ends the launch."""
        recording, visit = self.played.recording, self.visit
        texts = [text for step, text in recording.watched.races if visit.first <= step < visit.stop]
        texts += [recording.fault] if recording.fault and visit.stop == recording.watched.steps else []
        return [text.partition(": ")[2] or text for text in texts]

    def where(self) -> str:
        """Returns the line of the kernel."""
        watched = self.played.recording.watched
        return str(watched.lines[watched.line[self.visit.begin]])

    def _found(self, name: str, what: str) -> Value | None:
        shown = self.played.view.shown(name)
        if isinstance(shown, PerThread):
            return self.variable_of(shown, what)
        if shown is not None:
            return self._access(name, what)
        if name in self.played.view.names:
            return parse(self.played.view.names[name]).value(self)
        in_function = bool(self.step.inside)
        if self.played.sees(name, self.pcs, in_function):
            numbers = self.played.numbers(name, self.pcs, in_function)
            return self._held(numbers[0].history, what) if numbers else self._nothing()
        if self.played.array(name) >= 0 and name not in self._numbers:
            return self._access(name, what)
        return self._number(name)

    def variable_of(self, shown: PerThread, what: str = "") -> Value:
        """Returns what a tensor of variables shows: the one that was given a value last."""
        step = (self.visit.first if what == "before" else self.visit.end) - 1
        histories = [number.history for number in self.shown_by(shown)]
        given = [(first_from(h.step, step + 1), h) for h in histories]
        given = [(int(h.step[until - 1]), n, h) for n, (until, h) in enumerate(given) if until]
        return self._held(max(given, key=lambda g: g[:2])[2], what) if given else self._nothing()

    def shown_by(self, shown: PerThread) -> list[Number]:
        """Returns the numbers that a tensor of variables shows at this step."""
        if given := self.step.shows.get(shown.name):
            return self.played.numbers(given, self.pcs, in_function=True)
        return [number for path in shown.variables for number in self.played.numbers(path, self.pcs, in_function=False)]

    def _held(self, history: History, what: str) -> Value:
        value = self.played.after(history, (self.visit.first if what == "before" else self.visit.end) - 1)
        if history.leaf.dtype[0] in "iub":
            return Value(value.of.astype(np.int64), value.known)
        return value

    def _nothing(self) -> Value:
        return Value(np.zeros(self.played.threads), np.zeros(self.played.threads, bool))

    def _access(self, name: str, what: str) -> Value:
        found = self.accessed(name)
        if what == "new" or (what != "read" and found.write.all()):
            found = found.only(found.write)
        else:
            found = found.only(~found.write)
        values = np.zeros(self.played.threads, int if what == "at" else found.value.dtype)
        known = np.zeros(self.played.threads, bool)
        values[found.thread] = found.cell if what == "at" else found.value
        if what in ("largest", "ties"):
            np.maximum.at(values, found.thread, found.value)
        if what in ("times", "ties", "again"):
            counted = {"ties": found.value == values[found.thread], "again": self.played.again[found.row]}
            return Value(np.bincount(found.thread, counted.get(what), self.played.threads).astype(int))
        known[found.thread] = True
        return Value(values, known)

    @cached_property
    def _numbers(self) -> Mapping[str, object]:
        return dict(self._specials())

    def _specials(self) -> Iterator[tuple[str, object]]:
        recording = self.played.recording
        slot = np.arange(recording.threads)
        thread, active = slot % recording.block_threads, int(self.active.sum())
        threads = self.played.columns * recording.blocks
        yield from recording.launch.defines
        yield from (("thread", thread), ("block", slot // recording.block_threads), ("lane", thread % LANES))
        yield from (("warp", thread // LANES), ("threads", threads), ("blocks", recording.blocks))
        yield "turn", slot - (self.visit.threads.start if self.visit.threads else 0)
        yield "others", recording.others
        yield from (("active", active), ("idle", threads - active))
        yield from (("visit", self.visit.number), ("visits", self.visit.count))
        yield from zip(("first", "last"), self.repeated, strict=True)
        yield from zip(("part", "parts"), self.visit.part, strict=True)
        line = recording.watched.lines[recording.watched.line[self.visit.begin]]
        yield from (("line", line.number), ("level", self.step.level))

    def _stays(self, first: int, way: int) -> np.ndarray:
        """Returns whether each thread's step after this one, or before it (`way` -1), from `first` on, is of the same lines."""
        watched, block = self.played.recording.watched, self.played.recording.block_threads
        own = np.bitwise_or.reduce(watched.masks[self.visit.begin : self.visit.end], axis=0)
        others = (watched.masks[first::way] if first >= 0 else watched.masks[:0]) & own != 0
        if not len(others):
            return np.zeros(self.played.threads, bool)
        raw = first + way * others.argmax(axis=0)
        is_own = wanted(self.visit.kind, self.step, self.played.recording.files)
        stays = np.array([is_own.at(watched, step) for step in raw.tolist()]) & others.any(axis=0)
        return np.repeat(stays.reshape(-1, -(-block // LANES)), LANES, axis=1)[:, :block].ravel()

    def _number(self, name: str) -> Value | None:
        if name in ("waits", "waited"):
            return Value(self._stays(self.visit.end, 1) if name == "waits" else self._stays(self.visit.begin - 1, -1))
        number = self._numbers.get(name)
        return None if number is None else Value(np.asarray(number))

    def element(self, name: str, index: Value) -> Value:
        shown, threads = self.played.view.shown(name), self.played.threads
        at = np.broadcast_to(np.asarray(index.of, int), threads)
        is_variable = shown is None and self.played.sees(name, self.pcs, bool(self.step.inside))
        if is_variable or isinstance(shown, PerThread):
            return self._element_of_variable(name, at)
        value = self.played.content(shown or name, at, self.visit.first)
        return Value(value.of, value.known_by(threads) & index.known_by(threads))

    def _element_of_variable(self, name: str, at: np.ndarray) -> Value:
        """Returns the number of a variable at a place among its numbers, after the step."""
        threads = self.played.threads
        out, known = np.zeros(threads), np.zeros(threads, bool)
        for number in self.played.numbers(name, self.pcs, bool(self.step.inside)):
            mine = at == number.row
            if not mine.any():
                continue
            value = self._held(number.history, "")
            out = out.astype(value.of.dtype)
            out[mine], known[mine] = value.of[mine], value.known_by(threads)[mine]
        return Value(out, known)

    def received(self, name: str) -> Value:
        """Returns what each thread has got last from another lane, of the lanes' values of a variable."""
        of = self.played.recording.watched.shuffles
        here = between(of.step, self.visit.first, self.visit.stop)
        bits, known = np.zeros(self.played.threads, np.uint32), np.zeros(self.played.threads, bool)
        bits[of.thread[here]], known[of.thread[here]] = of.bits[here], True
        return Value(bits.view(self.value(name).of.dtype), known)

    def count(self, name: str) -> int:
        found = self.accessed(name)
        return len(np.unique(found.thread[~found.write]))
