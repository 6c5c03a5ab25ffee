"""What the steps write into the tensors of a view, and which cells they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.engines.emulator.watch.recording import Called
from kernels.i18n import tr
from visuals.scene.compiler.expressions import Value, parse, template
from visuals.scene.compiler.layout import origin_of, parted, placed
from visuals.scene.compiler.moment import Accessed, Moment, Number, between
from visuals.scene.compiler.view import Array, Buffer, PerThread, Shown, Step, View, Writers
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
    """Records the steps of a view, one after the other. `blocks`: how many are shown, `columns`: threads of each. `row`: the row, or the
    plane, that a tensor with rows writes now."""

    view: View
    recorder: Recorder
    blocks: int
    columns: int
    row: dict[str, int] = field(default_factory=dict)
    # By tensor: how many cells are written, from the first on.
    _size: dict[str, int] = field(default_factory=dict)
    # By array with rows: where each cell was written last.
    _row_of: dict[str, np.ndarray] = field(default_factory=dict)
    _writers: dict[str, np.ndarray] = field(default_factory=dict)
    _notes: dict[str, list[Note]] = field(default_factory=dict)
    _written: list[Written] = field(default_factory=list)
    # By tensor, in the step: threads and cells.
    _looked: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def record(self, m: Moment) -> None:
        """Record what a step does, after it was begun in the recorder."""
        self._looked = {}
        shown_now = [shown for shown in self.view.tensors if shown.is_during(m.visit.kind)]
        for shown in shown_now:
            if isinstance(shown, Array):
                self._accesses(m, shown)
        for shown in shown_now:
            if isinstance(shown, PerThread):
                self._variables(m, shown)
            elif isinstance(shown, Writers) and shown.name not in self._writers:
                self._writers[shown.name] = writers_of(m, shown)
                self.recorder.put(shown.name, self._writers[shown.name])

    def others(self, m: Moment) -> None:
        """Record what the blocks that are not watched have written: the elements whose content differs from what is shown."""
        recording = m.played.recording
        for shown in self._buffers():
            name = recording.buffer(shown.array)
            after, written = m.played.numbers_of(shown, recording.after[name]), recording.written[name].ravel()
            is_of_bytes = written.size != parted(recording.after[name], shown.dtype).size
            written = (
                np.ones(len(after), bool) if is_of_bytes else m.played.numbers_of(replace(shown, dtype=""), written)
            )
            shows = m.played.content(shown, np.arange(len(after)), recording.watched.steps)
            changed = np.flatnonzero(written & ~(shows.known_by(len(after)) & (shows.of == after)))
            if name in recording.arguments.values():
                self._found(m, shown, changed, after[changed])

    def called(self, m: Moment, call: Called) -> None:
        """Record what a library's call has read, all of the buffers that it has not changed, and what it has written."""
        for shown in self._buffers():
            if (name := m.played.recording.buffer(shown.array)) in call.call.args:
                before, after = (m.played.numbers_of(shown, arrays[name]) for arrays in (call.before, call.after))
                if before.tobytes() == after.tobytes():
                    self.recorder.look(shown.name, np.arange(np.prod(m.played.layout(shown).extents)))
                else:
                    self._found(m, shown, np.arange(len(after)), after)

    def _found(self, m: Moment, shown: Buffer, index: np.ndarray, values: np.ndarray) -> None:
        cells = drawn(m, shown, index)
        if (cells >= 0).any():
            values, cells = values[cells >= 0], cells[cells >= 0]
            self._written.append(Written(self.recorder.now, None, shown.name, cells, values, "", cells))

    def _buffers(self) -> list[Buffer]:
        return [shown for shown in self.view.tensors if isinstance(shown, Buffer)]

    # -- memory ----------------------------------------------------------------------------------------
    def _accesses(self, m: Moment, shown: Array) -> None:
        found = in_part(m, shown)
        reads, writes = found.only(~found.write), _last(found.only(found.write))
        if len(reads):
            cells = self._at(shown, reads.cell)
            self.recorder.look(shown.name, cells)
            self._looked[shown.name] = reads.thread, cells
        if not len(writes):
            return
        if shown.rows:
            self._begin_row(m, shown)
            of = self._row_of.setdefault(shown.name, np.zeros(np.prod(m.played.layout(shown).extents), int))
            of[writes.cell] = self.row[shown.name] * len(of)
        cells = self._at(shown, writes.cell)
        source, index = self._copied(m, shown, writes)
        self._written.append(Written(self.recorder.now, m.step, shown.name, cells, writes.value, source, index))
        self._explain(m, shown, shown.name, cells, writes.thread)

    def _begin_row(self, m: Moment, shown: Shown) -> None:
        """Begin the next row of a tensor if the step does; the first numbers are in the first row."""
        self.row[shown.name] = self.row[shown.name] + (m.visit.kind in shown.rows) if shown.name in self.row else 0

    def _at(self, shown: Array, cell: np.ndarray) -> np.ndarray:
        """Returns where cells of an array are: in a tensor with rows, where each was written last."""
        rows = self._row_of.get(shown.name)
        return cell if rows is None else rows[cell] + cell

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

    def _copied(self, m: Moment, target: Array, writes: Accessed) -> tuple[str, np.ndarray]:
        """Returns the tensor whose cells a step copies, and the cells: every thread writes the bits that it has read there, in their order;
        those that it has read just before, or a zero if it has read none; or those that are not zero, in any order. "" if there is none."""
        if np.isnan(writes.value).any():  # a cell that holds NaN counts as not written
            return "", np.zeros(0, int)
        for shown in self.view.tensors:
            if not isinstance(shown, Array) or shown.name == target.name or shown.name in self._row_of:
                continue
            found = in_part(m, shown)
            if not len(found) or found.write.any() or found.value.dtype != writes.value.dtype:
                continue
            if not shown.is_during(m.visit.kind):
                continue
            order, of_writes = (np.lexsort((of.row, of.thread)) for of in (found, writes))
            threads, values = found.thread[order], found.value[order]
            if np.array_equal(threads, writes.thread[of_writes]) and np.array_equal(values, writes.value[of_writes]):
                index = np.empty(len(writes), int)
                index[of_writes] = found.cell[order]
                return shown.name, index
            every = m.accessed(target.array)  # also of elements that are not shown
            every = every.only(every.write)
            span = int(max(found.row.max(), every.row.max())) + 1
            keys, now = threads * span + found.row[order], writes.thread * span + writes.row
            at, in_order = np.searchsorted(keys, now) - 1, np.sort(every.thread * span + every.row)
            last_write = np.append(-1, in_order)[np.searchsorted(in_order, now)]  # perhaps of another thread
            has_read = (at >= 0) & (threads[at] == writes.thread) & (keys[at] > last_write)
            same = np.where(has_read, values[at] == writes.value, writes.value == 0)
            if same.all() and has_read.any():
                return shown.name, np.where(has_read, found.cell[order][at], -1)
            by_value = [np.lexsort((of.row, of.value, of.thread)) for of in (found, writes)]
            read, written = (at[of.value[at] != 0] for at, of in zip(by_value, (found, writes), strict=True))
            pairs = (
                len(read) and len(found) <= len(writes) and np.array_equal(found.thread[read], writes.thread[written])
            )
            if pairs and np.array_equal(found.value[read], writes.value[written]):
                index = np.full(len(writes), -1)
                index[written] = found.cell[read]
                return shown.name, index
        return "", np.zeros(0, int)

    # -- variables -------------------------------------------------------------------------------------
    def _variables(self, m: Moment, shown: PerThread) -> None:
        if shown.value:
            self._value(m, shown)
            return
        numbers = m.shown_by(shown)
        for number in numbers:
            if len(threads := self._readers(m, shown, number)):
                for name, _, cells in self._cells(m, shown, number.row, threads):
                    self.recorder.look(name, cells)
        if shown.hollow:
            return
        first, stop = m.visit.first, m.visit.stop
        given = [(n, between(n.history.step, first, stop)) for n in numbers]
        given = [(n, part) for n, part in given if m.mine[n.history.thread[part]].any()]
        if given and (len(numbers) == 1 or shown.name in m.step.shows):
            self._read_by_lanes(m, shown)
        if given and shown.rows:
            self._begin_row(m, shown)
        for number, part in sorted(given, key=lambda g: int(g[0].history.step[g[1].stop - 1])):
            threads = _own(m, number.history.thread[part])
            values = m.played.after(number.history, stop - 1).of[threads]
            for name, mine, cells in self._cells(m, shown, number.row, threads):
                new = np.bincount(cells, values[mine])[cells] if shown.adds else values[mine]
                self.recorder.put(name, new, cells)
                self._wrote(shown, cells)
                self._explain(m, shown, name, cells, threads[mine])

    def _value(self, m: Moment, shown: PerThread) -> None:
        """Record the values of the threads, of those with one cell that of the last."""
        value = parse(shown.value).value(m)
        threads = np.flatnonzero(m.active & value.known_by(m.played.threads))
        ((_, mine, cells),) = self._cells(m, shown, 0, threads)
        if not cells.size:
            return
        if shown.rows:
            self._begin_row(m, shown)
            ((_, mine, cells),) = self._cells(m, shown, 0, threads)
        cells, last = np.unique(cells[::-1], return_index=True)
        threads = threads[mine[::-1][last]]
        self._wrote(shown, cells)
        if self.view.shown(shown.value):
            self.recorder.copy(shown.name, shown.value, m.value(f"{shown.value}.at").of[threads], cells)
        else:
            self.recorder.put(shown.name, np.broadcast_to(value.of, m.played.threads)[threads], cells)

    def _readers(self, m: Moment, shown: PerThread, number: Number) -> np.ndarray:
        """Returns the threads that read an element of an array, of a hollow tensor those that see it."""
        if shown.hollow:
            return np.flatnonzero(m.active)
        if number.reads is None:
            return np.zeros(0, int)
        return _own(m, number.reads.thread[between(number.reads.step, m.visit.first, m.visit.stop)])

    def _read_by_lanes(self, m: Moment, shown: PerThread) -> None:
        """Record the reads by shuffles: those that got the bits that the variable had in the other lane, and its own."""
        of = m.played.recording.watched.shuffles
        part = between(of.step, m.visit.first, m.visit.end)
        held = m.variable_of(shown, "before")
        if part.start == part.stop or held.known is None or held.of.itemsize != 4:
            return
        thread, source = of.thread[part].astype(int), of.source[part].astype(int)
        same = m.mine[thread] & held.known[source] & (held.of.view(np.uint32)[source] == of.bits[part])
        both, cell_of = np.concatenate([thread[same], source[same]]), np.full(m.played.threads, -1)
        threads = np.unique(both)
        for name, mine, cells in self._cells(m, shown, 0, threads):
            self.recorder.look(name, cells)
            cell_of[threads[mine]] = cells
        if self.blocks == 1:
            seen = cell_of[both] >= 0
            self._looked[shown.name] = np.tile(thread[same], 2)[seen], cell_of[both][seen]

    def _cells(
        self, m: Moment, shown: PerThread, number: int, threads: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yields the tensor of each block, or one for all, which of the threads it shows, and the cells of their number."""
        if shown.place:
            part = (*shown.part[:-1], shown.part[-1] or range(1 << 20))
            names = OfCells(m, shown.name, np.full(len(threads), number), threads)
            cells, extents = placed(shown.place, part, names, len(threads))
            mine = np.flatnonzero(cells >= 0)
            yield shown.name, mine, cells[mine] + self.row.get(shown.name, 0) * int(np.prod(extents))
            return
        of, per_block = self._threads(shown), m.played.recording.block_threads
        own, blocks = threads % per_block, threads // per_block
        if len(of) == 1:
            own, blocks = threads, 0 * threads
        inside, row = (own >= of.start) & (own < of.stop), self.row.get(shown.name, 0) if shown.rows else number
        for block in np.unique(blocks[inside]).tolist():
            mine = np.flatnonzero(inside & (blocks == block))
            yield self.name_of(shown, block), mine, row * len(of) + own[mine] - of.start

    def _wrote(self, shown: Shown, cells: np.ndarray) -> None:
        self._size[shown.name] = max(self._size.get(shown.name, 1), int(cells.max(initial=0)) + 1)

    def _threads(self, shown: PerThread) -> range:
        return shown.threads or range(self.columns)

    def name_of(self, shown: PerThread, block: int) -> str:
        return f"{shown.name}_{block}" if self.is_of_blocks(shown) else shown.name

    def is_of_blocks(self, shown: Shown | None) -> bool:
        """Returns whether a tensor is one for each block."""
        return self.blocks > 1 and isinstance(shown, PerThread) and not shown.place and len(self._threads(shown)) > 1

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
        names = shown.symbol or shown.name, tr(shown.title), shown.role
        fields: dict[str, Any] = {
            "note": notes.get(shown.name) or tr(shown.note),
            "plane_name": tr(shown.plane),
            "origin": origin_of(shown),
        }
        if isinstance(shown, Writers):
            yield Tensor(shown.name, *names, 1, *self._writers[shown.name].shape, **fields)
        elif isinstance(shown, PerThread):
            extents = self._extents(shown, moments)
            for block in range(self.blocks if self.is_of_blocks(shown) else 1):
                note = "" if block else fields["note"]
                yield Tensor(self.name_of(shown, block), *names, *extents, **{**fields, "note": note})
        elif isinstance(shown, Array):
            there = [m for m in moments if m.played.array(shown.array) >= 0] or moments[:1]
            layout = max((m.played.layout(shown) for m in there), key=lambda layout: np.prod(layout.extents))
            planes, rows, columns = layout.extents
            if shown.rows and len(shown.place) == 3:
                planes *= self.row.get(shown.name, 0) + 1
            elif shown.rows:
                rows *= self.row.get(shown.name, 0) + 1
            if isinstance(shown, Buffer):
                partial, _, sizes = layout.extents != layout.whole, *np.split(np.array(layout.whole), [1])
                if partial and shown.part:
                    of = zip(origin_of(shown)[1:], layout.extents[1:], sizes.tolist(), strict=True)
                    fields["note"] = fields["note"] or part_note(*of)
                fields |= {"values": initial(moments[0], shown), "partial": partial}
            yield Tensor(shown.name, *names, planes, rows, columns, **fields)

    def _extents(self, shown: PerThread, moments: Sequence[Moment]) -> tuple[int, int, int]:
        """Returns planes, rows and columns of a tensor of variables."""
        lens = [len(of) if of else 0 for of in shown.part] if shown.place else [0, len(self._threads(shown))]
        open_ = lens.index(0) if 0 in lens else 0  # the axis that is as long as there are numbers
        lens[open_] = -(
            -self._size.get(shown.name, 1) // max(1, int(np.prod([n for n in lens if n]))) * (lens[open_] or 1)
        )
        planes, rows, columns = (1, *lens)[-3:]
        shapes = [shape for name in shown.variables[:1] for m in moments if (shape := m.played.shape_of(name))]
        across, *_ = moments[0].played.recording.launch.block
        is_own = columns == planes == 1 and shapes and (not shown.place or shown.place[0] == "cell")
        shape = max(shapes, key=np.prod) if is_own else ()
        if len(shape) > 1 or (shape and shown.part and not shown.place):
            return 1, int(np.prod(shape[:-1])), shape[-1]
        if rows == 1 and not shown.place and not columns % across:
            return 1, columns // across, across
        return planes, rows, columns


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


def initial(m: Moment, shown: Buffer) -> np.ndarray | None:
    """Returns the cells of a buffer before the program, float32; None of one that has no values yet."""
    recording = m.played.recording
    buffer = recording.buffer(shown.array)
    if buffer not in recording.given:
        return None
    return m.played.layout(shown).shown(parted(recording.before[buffer], shown.dtype)).astype(np.float32)


def drawn(m: Moment, shown: Array, index: np.ndarray) -> np.ndarray:
    """Returns the cells of numbers; -1 for one that is not in the part that is shown."""
    return m.played.layout(shown).of(index) if shown.part and not shown.place else index


def in_part(m: Moment, shown: Array) -> Accessed:
    """Returns the accesses to cells that are shown."""
    found = m.accessed(shown.name)
    cells = drawn(m, shown, found.cell)
    return replace(found, cell=cells).only(cells >= 0)


def _own(m: Moment, threads: np.ndarray) -> np.ndarray:
    """Returns the threads of the step that are among these, in order."""
    found = np.zeros(m.played.threads, bool)
    found[threads] = True
    return np.flatnonzero(found & m.mine)


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
