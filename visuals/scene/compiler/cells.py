"""What the steps write into the tensors of a view, and which cells they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernels.engines.emulator.watch.recording import Called, Recording
from kernels.engines.emulator.watch.types import UNKNOWN
from kernels.i18n import tr
from visuals.scene.compiler.expressions import Value, parse, template
from visuals.scene.compiler.moment import Accessed, Moment, Number, array_of, between, parted
from visuals.scene.compiler.view import Buffer, Derived, OfThread, PerThread, Shared, Shown, Step, View, Writers
from visuals.scene.parts import Annotation, Captions, Tensor
from visuals.scene.recorder import Recorder, part_note

MAX_EXPLAINED = 2048  # cells of a tensor whose cells have sentences
MAX_LINKS = 8  # cells of a tensor that one cell is made of


@dataclass(frozen=True)
class Note:
    """What is said of cells that a step has written: numbers, one row a cell, and by tensor the threads and cells that it read.
    `named`: by tensor, for each cell the one that the sentence names."""

    text: str
    cells: np.ndarray
    threads: np.ndarray
    numbers: np.ndarray
    looked: Mapping[str, tuple[np.ndarray, np.ndarray]]
    named: Mapping[str, np.ndarray]


class OfCells:
    """The names in a sentence on cells: one number for each cell that a step has written (expressions.Names)."""

    def __init__(self, m: Moment, name: str, cells: np.ndarray, threads: np.ndarray):
        self.m, self.name, self.cells, self.threads = m, name, cells, threads
        self.among = np.ones(len(cells), bool)
        self.named: dict[str, np.ndarray] = {}  # elements of other tensors in global memory

    def value(self, name: str) -> Value:
        return Value(self.cells) if name == "cell" else self._of_threads(self.m.value(name))

    def element(self, name: str, index: Value) -> Value:
        shown, at = self.m.played.view.shown(name), np.broadcast_to(np.asarray(index.of, int), len(self.cells))
        if isinstance(shown, Buffer) and name != self.name:
            self.named[name] = at
        return self.m.played.content(shown or name, at, self.m.visit.first)

    def received(self, name: str) -> Value:
        return self._of_threads(self.m.received(name))

    def count(self, name: str) -> int:
        return self.m.count(name)

    def _of_threads(self, value: Value) -> Value:
        if np.ndim(value.of) == 0:
            return value
        return Value(value.of[self.threads], None if value.known is None else value.known[self.threads])


@dataclass(frozen=True)
class Written:
    """What step `at` of the scene, one of the view's or None, has written into cells of a tensor. `source`: the tensor that it may have
    copied, and the cells of it."""

    at: int
    step: Step | None
    target: str
    cells: np.ndarray
    values: np.ndarray
    source: str
    index: np.ndarray


@dataclass
class Cells:
    """Records the steps of a view, one after the other. `blocks`: how many are shown, `columns`: threads of each. `row`: the row that a
    tensor with rows writes now."""

    view: View
    recorder: Recorder
    blocks: int
    columns: int
    row: dict[str, int] = field(default_factory=dict)
    # By shared array with rows: where each element was written last.
    _row_of: dict[str, np.ndarray] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)  # how many rows a tensor of variables has
    # By tensor that shows a row in lines: how many, and their length.
    _lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    _writers: dict[str, np.ndarray] = field(default_factory=dict)
    _notes: dict[str, list[Note]] = field(default_factory=dict)
    _written: list[Written] = field(default_factory=list)
    # By tensor, in the step: threads and cells.
    _looked: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def record(self, m: Moment) -> None:
        """Record what a step does, after it was begun in the recorder."""
        self._looked = {}
        for shown in self.view.tensors:
            if isinstance(shown, Buffer | Shared):
                self._accesses(m, shown)
        for shown in self.view.tensors:
            if isinstance(shown, PerThread):
                self._variables(m, shown)
            elif isinstance(shown, OfThread):
                self._variable(m, shown)
            elif isinstance(shown, Writers) and shown.name not in self._writers:
                self._writers[shown.name] = writers_of(m, shown)
                self.recorder.put(shown.name, self._writers[shown.name])
            elif isinstance(shown, Derived) and m.visit.kind in shown.during:
                self._derived(m, shown)

    def others(self, m: Moment) -> None:
        """Record what the blocks that are not watched have written: the elements whose content differs from what is shown."""
        recording = m.played.recording
        for shown in self.view.tensors:
            if isinstance(shown, Buffer):
                name = recording.buffer(array_of(shown))
                after, written = elements(recording.after[name], shown), recording.written[name].ravel()
                written = written if len(written) == len(after) else np.ones(len(after), bool)
                shows = m.played.content(shown, np.arange(len(after)), recording.watched.steps)
                changed = np.flatnonzero(written & ~(shows.known_by(len(after)) & (shows.of == after)))
                inside, cells = cells_of(m, shown, changed)
                changed, cells = changed[inside], cells[inside]
                if changed.size and name in recording.arguments.values():
                    now = self.recorder.now
                    self._written.append(Written(now, None, shown.name, cells, after[changed], "", cells))

    def called(self, m: Moment, call: Called) -> None:
        """Record what a library's call has read, all of the buffers that it has not changed, and what it has written."""
        for shown in self.view.tensors:
            if isinstance(shown, Buffer) and (name := m.played.recording.buffer(array_of(shown))) in call.call.args:
                before, after = (elements(arrays[name], shown) for arrays in (call.before, call.after))
                inside, cells = cells_of(m, shown, np.arange(len(after)))
                if before.tobytes() == after.tobytes():
                    self.recorder.look(shown.name, cells[inside])
                else:
                    now, cells = self.recorder.now, cells[inside]
                    self._written.append(Written(now, None, shown.name, cells, after[inside], "", cells))

    # -- memory ----------------------------------------------------------------------------------------
    def _accesses(self, m: Moment, shown: Buffer | Shared) -> None:
        found = m.accessed(shown.name)
        if not len(found) or not _is_shown(shown, m):
            return
        found = in_part(m, shown, found)
        if isinstance(shown, Shared) and shown.lines:
            found = found.only(found.cell < np.prod(self._in_lines(m, shown, self._columns(m, shown))))
        reads, writes = found.only(~found.write), _last(found.only(found.write))
        if len(reads):
            cells = self._at(shown, reads.cell)
            self.recorder.look(shown.name, cells)
            self._looked[shown.name] = reads.thread, cells
        if not len(writes):
            return
        if isinstance(shown, Shared) and shown.rows:
            self.row[shown.name] = self.row.get(shown.name, 0) + (m.visit.kind in shown.rows)
            of = self._row_of.setdefault(shown.name, np.zeros(self._columns(m, shown), int))
            of[writes.cell] = self.row[shown.name]
        cells = self._at(shown, writes.cell)
        source, index = self._copied(m, shown, writes)
        self._written.append(Written(self.recorder.now, m.step, shown.name, cells, writes.value, source, index))
        self._explain(m, shown, shown.name, cells, writes.thread)

    def finish(self) -> None:
        """Record the writes to memory. They are copies if all that a step of the view writes into the tensor is, but for zeros: few whole
        numbers may be equal by chance."""
        sources: dict[tuple[int, str], set[str]] = {}
        for w in self._written:
            if not np.isnan(w.values).any() and (w.source or w.values.any()):
                sources.setdefault((id(w.step), w.target), set()).add(w.source)
        for w in self._written:
            if w.source and len(sources[id(w.step), w.target]) == 1:
                self.recorder.copy(w.target, w.source, w.index, w.cells, at=w.at)
            else:
                self.recorder.put(w.target, w.values, w.cells, at=w.at)

    def _at(self, shown: Buffer | Shared, element: np.ndarray) -> np.ndarray:
        """Returns the cells of elements: in a tensor with rows, where each was written last."""
        rows = self._row_of.get(shown.name)
        lines, length = self._lines.get(shown.name, (1, 0 if rows is None else len(rows)))
        place = element % lines * length + element // lines if lines > 1 else element
        return place if rows is None else rows[element] * lines * length + place

    def _in_lines(self, m: Moment, shown: Shared | PerThread, count: int) -> tuple[int, int]:
        """Returns in how many lines a row of so many numbers is shown, and their length."""
        lines = int(parse(shown.lines).value(m).at(0)) if shown.lines else 1
        return self._lines.setdefault(shown.name, (lines, count // lines))

    def _columns(self, m: Moment, shown: Shared) -> int:
        return int(np.prod(shape_of(m, shown)))

    def _copied(self, m: Moment, target: Buffer | Shared, writes: Accessed) -> tuple[str, np.ndarray]:
        """Returns the tensor whose cells a step copies, and the cells: every thread writes the bits that it has read there, in their order;
        else those that it has read just before, or a zero if it has read none. "" if there is none."""
        if np.isnan(writes.value).any():  # a cell that holds NaN counts as not written
            return "", np.zeros(0, int)
        for shown in self.view.tensors:
            if not isinstance(shown, Buffer | Shared) or shown.name == target.name or shown.name in self._row_of:
                continue
            if not _is_shown(shown, m):
                continue
            found = in_part(m, shown, m.accessed(shown.name))
            reads = found.only(~found.write)
            if found.write.any() or not len(reads) or reads.value.dtype != writes.value.dtype:
                continue
            order = np.lexsort((reads.row, reads.thread))
            of_writes = np.lexsort((writes.row, writes.thread))
            pairs = np.array_equal(reads.thread[order], writes.thread[of_writes])
            if pairs and np.array_equal(reads.value[order], writes.value[of_writes]):
                index = np.empty(len(writes), int)
                index[of_writes] = reads.cell[order]
                return shown.name, index
            every = m.accessed(array_of(target))  # also of elements that are not shown
            every = every.only(every.write)
            span = int(max(reads.row.max(), every.row.max())) + 1
            keys = reads.thread[order] * span + reads.row[order]
            now = writes.thread * span + writes.row
            at = np.searchsorted(keys, now) - 1
            in_order = np.sort(every.thread * span + every.row)
            before = np.append(-1, in_order)[
                np.searchsorted(in_order, now)
            ]  # the last write, perhaps of another thread
            has_read = (at >= 0) & (reads.thread[order][at] == writes.thread) & (keys[at] > before)
            same = np.where(has_read, reads.value[order][at] == writes.value, writes.value == 0)
            if same.all() and has_read.any():
                return shown.name, np.where(has_read, reads.cell[order][at], -1)
        return "", np.zeros(0, int)

    # -- variables -------------------------------------------------------------------------------------
    def _variables(self, m: Moment, shown: PerThread) -> None:
        if shown.during and m.visit.kind not in shown.during:
            return
        numbers = m.shown_by(shown)
        if shown.hollow:
            for number in numbers:
                self.recorder.look(shown.name, self._placed(m, shown, number.row, np.flatnonzero(m.active))[1])
            return
        for number in numbers:
            self._read(m, shown, number)
        first, stop = m.visit.first, m.visit.stop
        given = [(n, between(n.history.step, first, stop)) for n in numbers]
        given = [(n, part) for n, part in given if m.mine[n.history.thread[part]].any()]
        if not given:
            return
        if len(numbers) == 1 or shown.name in m.step.shows:
            self._read_by_lanes(m, shown)
        if shown.rows:
            self.row[shown.name] = self.row.get(shown.name, 0) + (m.visit.kind in shown.rows)
        for number, part in sorted(given, key=lambda g: int(g[0].history.step[g[1].stop - 1])):
            threads = _own(m, number.history.thread[part])
            values = m.played.after(number.history, stop - 1).of[threads]
            row = self.row[shown.name] if shown.rows else number.row
            self._rows[shown.name] = max(self._rows.get(shown.name, 0), row + 1)
            for name, mine, cells in self._of_blocks(m, shown, row, threads):
                numbers = np.bincount(cells, values[mine])[cells] if shown.adds else values[mine]
                self.recorder.put(name, numbers, cells)
                self._explain(m, shown, name, cells, threads[mine])

    def _variable(self, m: Moment, shown: OfThread) -> None:
        for number in m.played.numbers(shown.of or shown.name, m.pcs, in_function=False):
            part = between(number.history.step, m.visit.first, m.visit.stop)
            if m.mine[shown.thread] and (number.history.thread[part] == shown.thread).any():
                value = m.played.after(number.history, m.visit.stop - 1).of[shown.thread]
                self.recorder.put(shown.name, [value], [number.row])

    def _derived(self, m: Moment, shown: Derived) -> None:
        value, cell = parse(shown.value).value(m), parse(shown.cell).value(m)
        known = m.active & value.known_by(m.played.threads) & cell.known_by(m.played.threads)
        cells = np.broadcast_to(np.asarray(cell.of, int), m.played.threads)
        threads = np.flatnonzero(known & (cells >= 0))
        if not threads.size:
            return
        if shown.rows:
            self.row[shown.name] = self.row.get(shown.name, -1) + 1
        cells = cells[threads] + self.row.get(shown.name, 0) * shown.columns
        self._rows[shown.name] = max(self._rows.get(shown.name, 1), int(cells.max()) // shown.columns + 1)
        if self.view.shown(shown.value):
            self.recorder.copy(shown.name, shown.value, parse(f"{shown.value}.at").value(m).of[threads], cells)
        else:
            self.recorder.put(shown.name, np.broadcast_to(value.of, m.played.threads)[threads], cells)

    def _of_blocks(
        self, m: Moment, shown: PerThread, row: int, threads: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yields the tensor of each block, which of the threads are in it, and their cells in a row."""
        if shown.place[0]:
            yield shown.name, *self._placed(m, shown, row, threads)
            return
        if shown.turn:
            assert m.visit.threads is not None  # such a tensor needs a view of groups
            own = threads[threads < m.visit.threads.start + self.view.group] - m.visit.threads.start
            yield shown.name, np.arange(len(own)), row * self.view.group + own
            return
        block, own = np.divmod(threads, m.played.recording.block_threads)
        lines, length = self._in_lines(m, shown, shown.threads or m.played.columns)
        for b in np.unique(block).tolist():
            mine = np.flatnonzero((block == b) & (own < lines * length))
            yield self.name_of(shown, b), mine, (row * lines + own[mine] % lines) * length + own[mine] // lines

    def _placed(self, m: Moment, shown: PerThread, number: int, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns which of the threads have a number of an array in the part that is shown, and its cells."""
        of, extents = OfCells(m, shown.name, np.full(len(threads), number), threads), shown.part
        row, column = (np.broadcast_to(parse(text).value(of).of, len(threads)).astype(int) for text in shown.place)
        inside = (row >= extents[0].start) & (row < extents[0].stop)
        inside &= (column >= extents[1].start) & (column < extents[1].stop)
        cells = (row - extents[0].start) * len(extents[1]) + column - extents[1].start
        return np.flatnonzero(inside), cells[inside]

    def columns_of(self, shown: PerThread) -> int:
        return self.view.group if shown.turn else shown.threads or self.columns

    def name_of(self, shown: PerThread, block: int) -> str:
        return f"{shown.name}_{block}" if self.is_of_blocks(shown) else shown.name

    def is_of_blocks(self, shown: Shown | None) -> bool:
        """Returns whether a tensor is one for each block."""
        return self.blocks > 1 and isinstance(shown, PerThread) and not shown.turn and not shown.place[0]

    def _read(self, m: Moment, shown: PerThread, number: Number) -> None:
        """Record the reads of an element of an array."""
        if number.reads is None:
            return
        part = between(number.reads.step, m.visit.first, m.visit.stop)
        if part.start == part.stop:
            return
        threads = _own(m, number.reads.thread[part])
        for name, _, cells in self._of_blocks(m, shown, number.row, threads):
            self.recorder.look(name, cells)

    def _read_by_lanes(self, m: Moment, shown: PerThread) -> None:
        """Record the reads by shuffles: those that got the bits that the variable had in the other lane, and its own."""
        of = m.played.recording.watched.shuffles
        part = between(of.step, m.visit.first, m.visit.end)
        if part.start == part.stop:
            return
        held = m.variable_of(shown, "before")
        if held.known is None or held.of.itemsize != 4:
            return
        thread, source = of.thread[part].astype(int), of.source[part].astype(int)
        same = m.mine[thread] & held.known[source] & (held.of.view(np.uint32)[source] == of.bits[part])
        row = self.row.get(shown.name, 0)
        for name, _, cells in self._of_blocks(m, shown, row, np.union1d(thread[same], source[same])):
            self.recorder.look(name, cells)
        if self.blocks == 1 and not shown.place[0]:
            both = np.concatenate([thread[same], source[same]])
            self._looked[shown.name] = np.tile(thread[same], 2), row * self.columns_of(shown) + both

    # -- sentences on cells ----------------------------------------------------------------------------
    def _explain(self, m: Moment, shown: Shown, name: str, cells: np.ndarray, threads: np.ndarray) -> None:
        """Note what is said of cells that a step has written, and which cells their threads have read for them."""
        text = m.step.cells.get(shown.name, "")
        most = MAX_EXPLAINED if isinstance(shown, Buffer) else MAX_EXPLAINED // 4
        if not text or (self.blocks > 1 and name != shown.name) or int(cells.max(initial=0)) >= most:
            return
        of = OfCells(m, name, cells, threads)
        columns = [np.broadcast_to(expression.value(of).of, len(cells)) for expression in template(text)[1]]
        note = Note(text, cells, threads, np.stack(columns, axis=1), dict(self._looked), of.named)
        self._notes.setdefault(name, []).append(note)

    def annotations(self, tensors: Sequence[Tensor]) -> list[Annotation]:
        sizes = {tensor.name: tensor.size for tensor in tensors}
        return [
            _annotation(name, sizes[name], notes) for name, notes in self._notes.items() if sizes[name] <= MAX_EXPLAINED
        ]

    # -- tensors ---------------------------------------------------------------------------------------
    def tensors(self, moments: Sequence[Moment], notes: Mapping[str, str]) -> list[Tensor]:
        """Returns the tensors after the last step. `moments`: the first of each launch. `notes`: beside titles, by tensor."""
        found = (tensor for shown in self.view.tensors for tensor in self._tensors(shown, moments, notes))
        return list({tensor.name: tensor for tensor in found}.values())

    def _tensors(self, shown: Shown, moments: Sequence[Moment], notes: Mapping[str, str]) -> Iterator[Tensor]:
        symbol, title = shown.symbol or shown.name, tr(shown.title)
        note = notes.get(shown.name) or tr(shown.note)
        if isinstance(shown, PerThread) and shown.place[0]:
            rows, columns = shown.part
            size, origin = (1, len(rows), len(columns)), (0, rows.start, columns.start)
            yield Tensor(shown.name, symbol, title, shown.role, *size, origin=origin, note=note)
            return
        if isinstance(shown, PerThread):
            rows, columns = self._rows.get(shown.name, 1), self.columns_of(shown)
            lines, length = self._lines.get(shown.name, (1, columns))
            across, *_ = moments[0].played.recording.launch.block
            shapes = (m.played.shape_of(shown.variables[0]) for m in moments)
            if columns == 1 and len(shape := next(filter(None, shapes), ())) > 1:
                rows, length = shape
            elif rows == 1 and not length % across and not shown.rows and not shown.lines:
                rows, length = length // across, across
            extents = (rows, lines, length) if shown.lines else (1, rows, length)
            for block in range(self.blocks if self.is_of_blocks(shown) else 1):
                name, note = self.name_of(shown, block), "" if block else note
                yield Tensor(name, symbol, title, shown.role, *extents, note=note, plane_name=tr(shown.plane))
            return
        if isinstance(shown, Derived):
            rows = self._rows.get(shown.name, 1)
            yield Tensor(shown.name, symbol, title, shown.role, 1, rows, shown.columns, note=note)
            return
        if isinstance(shown, OfThread):
            shapes = (m.played.shape_of(shown.of or shown.name) for m in moments)
            *rows, columns = (1, *max(shapes, key=np.prod))
            yield Tensor(shown.name, symbol, title, shown.role, 1, int(np.prod(rows)), columns, note=note)
            return
        if isinstance(shown, Writers):
            yield Tensor(shown.name, symbol, title, shown.role, 1, *self._writers[shown.name].shape, note=note)
            return
        there = [m for m in moments if m.played.array(array_of(shown)) >= 0]
        planes, rows, columns = max((shape_of(m, shown) for m in there or moments[:1]), key=np.prod)
        if isinstance(shown, Shared) and shown.rows:
            rows = self.row.get(shown.name, 0) + 1
            if shown.lines:
                planes, rows, columns = rows, *self._lines[shown.name]
        extents, plane = (planes, rows, columns), tr(shown.plane)
        if not isinstance(shown, Buffer):
            yield Tensor(shown.name, symbol, title, shown.role, *extents, note=note, plane_name=plane)
            return
        values, part = initial(moments[0], shown), shown.part
        origin = (0, part[0].start, part[1].start) if part else (0, 0, 0)
        whole = _whole(moments[0].played.recording, shown)[1:]
        partial = part is not None and (len(part[0]), len(part[1])) != whole
        if part and partial:
            note = note or part_note(*((axis.start, len(axis), size) for axis, size in zip(part, whole, strict=True)))
        yield Tensor(shown.name, symbol, title, shown.role, *extents, values, origin, note, plane, partial=partial)


def writers_of(m: Moment, shown: Writers) -> np.ndarray:
    """Returns what a tensor of writers shows, int64[rows, columns]; -1 for an element that no watched thread writes."""
    recording = m.played.recording
    found = m.played.accessed(shown.of, 0, recording.watched.steps)
    found = found.only(found.write)
    array = recording.before[recording.buffer(shown.of)]
    of = np.full(array.size, -1)
    of[found.cell] = found.thread // shown.per
    of = of.reshape(-1, array.shape[-1])
    for axis in (0, 1):
        others = (of >= 0).any(axis=1 - axis) & (np.diff(of, axis=axis, prepend=-2) != 0).any(axis=1 - axis)
        of = of.compress(others, axis=axis)
    return of


def shape_of(m: Moment, shown: Shown) -> tuple[int, int, int]:
    """Returns planes, rows and columns of a buffer or of a shared array."""
    assert isinstance(shown, Buffer | Shared)
    recording, name, step = m.played.recording, array_of(shown), shown.elements.step
    if isinstance(shown, Buffer):
        return (1, len(shown.part[0]), len(shown.part[1])) if shown.part else _whole(recording, shown)
    if shown.box:
        planes, rows, columns = shown.box[1:4]
        return planes, rows, columns
    type_, array = recording.watched.shared.get(name, UNKNOWN), m.played.array(name)
    itemsize = np.dtype(recording.watched.dtypes[array]).itemsize if array >= 0 else type_.size // len(type_.leaves)
    size = (type_.size or recording.launch.shared) // itemsize
    if len(type_.shape) < 2 or step > 1:
        return 1, recording.blocks, size // step
    *planes, rows, _ = (1, *type_.shape)
    count = int(np.prod(planes))
    return count, rows * recording.blocks, size // (count * rows)


def initial(m: Moment, shown: Buffer) -> np.ndarray | None:
    """Returns the cells of a buffer before the program, float32; None of one that has no values yet."""
    recording = m.played.recording
    buffer = recording.buffer(array_of(shown))
    if buffer not in recording.given:
        return None
    values = elements(recording.before[buffer], shown).astype(np.float32)
    if shown.part is None:
        return values
    rows, columns = shown.part
    return values.reshape(-1, _whole(recording, shown)[2])[rows.start : rows.stop, columns.start : columns.stop].ravel()


def _whole(recording: Recording, shown: Buffer) -> tuple[int, int, int]:
    """Returns planes, rows and columns of a buffer, whole."""
    array = recording.before[recording.buffer(array_of(shown))]
    *outer, _ = array.shape or (1,)
    extents = shown.shape or (*outer, elements(array, shown).size // int(np.prod(outer)))
    *planes, rows, columns = (1, 1, *extents)[-max(3, len(extents)) :]
    return int(np.prod(planes)), rows, columns


def cells_of(m: Moment, shown: Buffer | Shared, element: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which elements are in the part that is shown, and the cell of each."""
    if not isinstance(shown, Buffer) or shown.part is None:
        return np.ones(len(element), bool), element
    rows, columns = shown.part
    row, column = np.divmod(element, _whole(m.played.recording, shown)[2])
    inside = (row >= rows.start) & (row < rows.stop) & (column >= columns.start) & (column < columns.stop)
    return inside, (row - rows.start) * len(columns) + column - columns.start


def in_part(m: Moment, shown: Buffer | Shared, found: Accessed) -> Accessed:
    """Returns the accesses to cells that are shown."""
    inside, cells = cells_of(m, shown, found.cell)
    return replace(found, cell=cells).only(inside)


def elements(array: np.ndarray, shown: Buffer) -> np.ndarray:
    """Returns the cells of a tensor, in their order, of the array that it shows."""
    return parted(array, shown.dtype)[shown.elements]


def _own(m: Moment, threads: np.ndarray) -> np.ndarray:
    """Returns the threads of the step that are among these, in order."""
    found = np.zeros(m.played.threads, bool)
    found[threads] = True
    return np.flatnonzero(found & m.mine)


def _is_shown(shown: Buffer | Shared, m: Moment) -> bool:
    """Returns whether a step reads and writes a tensor's array as this tensor."""
    return isinstance(shown, Buffer) or not shown.during or m.visit.kind in shown.during


def _last(writes: Accessed) -> Accessed:
    """Returns the last write of each cell."""
    _, first = np.unique(writes.cell[::-1], return_index=True)
    return writes.only(len(writes) - 1 - first)


def _annotation(name: str, size: int, notes: Sequence[Note]) -> Annotation:
    texts = list(dict.fromkeys(note.text for note in notes))
    numbers = np.zeros((size, max(note.numbers.shape[1] for note in notes)))
    kind, links = np.full(size, len(texts)), {}
    for note in notes:
        numbers[note.cells, : note.numbers.shape[1]], kind[note.cells] = note.numbers, texts.index(note.text)
        for source, named in note.named.items():
            of = links.setdefault(source, np.full((size, MAX_LINKS), -1))
            of[note.cells], of[note.cells, 0] = -1, named
        for source, (threads, cells) in {} if note.named else note.looked.items():
            of = links.setdefault(source, np.full((size, MAX_LINKS), -1))
            for cell, thread in zip(note.cells, note.threads, strict=True):
                mine = np.unique(cells[threads == thread])[:MAX_LINKS]
                of[cell], of[cell, : len(mine)] = -1, mine
    used = {source: of[:, : int((of >= 0).sum(axis=1).max())] for source, of in links.items()}
    return Annotation(name, Captions((*(template(tr(text))[0] for text in texts), ""), kind, numbers), used)
