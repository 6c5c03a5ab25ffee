"""What the steps write into the tensors of a view, and which cells they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.i18n import tr
from visuals.scene.compiler.expressions import template
from visuals.scene.compiler.moment import Accessed, Moment, Number, array_of, parted
from visuals.scene.compiler.view import Buffer, PerThread, Shared, Shown, View
from visuals.scene.parts import Annotation, Captions, Tensor
from visuals.scene.recorder import Recorder

MAX_EXPLAINED = 2048  # cells of a tensor whose cells have sentences
MAX_LINKS = 8  # cells of a tensor that one cell is made of


@dataclass(frozen=True)
class Note:
    """What is said of cells that a step has written: numbers, one row a cell, and by tensor the threads and cells that it read."""

    text: str
    cells: np.ndarray
    threads: np.ndarray
    numbers: np.ndarray
    looked: Mapping[str, tuple[np.ndarray, np.ndarray]]


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
    _notes: dict[str, list[Note]] = field(default_factory=dict)
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

    def others(self, m: Moment) -> None:
        """Record what the blocks that are not watched have written: the elements whose content differs from what is shown."""
        recording = m.played.recording
        for shown in self.view.tensors:
            if isinstance(shown, Buffer):
                name = recording.arguments.get(array_of(shown), array_of(shown))
                after, written = elements(recording.after[name], shown), recording.written[name].ravel()
                written = written if len(written) == len(after) else np.ones(len(after), bool)
                now = m.played.content(shown, np.arange(len(after)), recording.watched.steps)
                changed = np.flatnonzero(written & ~(now.known_by(len(after)) & (now.of == after)))
                if changed.size and (array_of(shown) in recording.arguments or name in recording.arguments.values()):
                    self.recorder.put(shown.name, after[changed], changed)

    # -- memory ----------------------------------------------------------------------------------------
    def _accesses(self, m: Moment, shown: Buffer | Shared) -> None:
        found = m.accessed(shown.name)
        if not len(found) or (isinstance(shown, Shared) and shown.during and m.visit.kind not in shown.during):
            return
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
        if source:
            self.recorder.copy(shown.name, source, index, cells)
        else:
            self.recorder.put(shown.name, writes.value, cells)
        self._explain(m, shown, shown.name, cells, writes.thread)

    def _at(self, shown: Buffer | Shared, element: np.ndarray) -> np.ndarray:
        """Returns the cells of elements: in a tensor with rows, where each was written last."""
        rows = self._row_of.get(shown.name)
        return element if rows is None else rows[element] * len(rows) + element

    def _columns(self, m: Moment, shown: Shared) -> int:
        return int(np.prod(shape_of(m, shown)))

    def _copied(self, m: Moment, target: Buffer | Shared, writes: Accessed) -> tuple[str, np.ndarray]:
        """Returns the tensor whose cells a step copies, and the cells: every thread writes the bits that it has read there just before, or
        a zero if it has read none. "" if there is none."""
        if np.isnan(writes.value).any():  # a cell that holds NaN counts as not written
            return "", np.zeros(0, int)
        for shown in self.view.tensors:
            if not isinstance(shown, Buffer | Shared) or shown.name == target.name or shown.name in self._row_of:
                continue
            found = m.accessed(shown.name)
            reads = found.only(~found.write)
            if found.write.any() or not len(reads) or reads.value.dtype != writes.value.dtype:
                continue
            order = np.lexsort((reads.row, reads.thread))
            span = int(max(reads.row.max(), writes.row.max())) + 1
            keys = reads.thread[order] * span + reads.row[order]
            at = np.searchsorted(keys, writes.thread * span + writes.row) - 1
            has_read = (at >= 0) & (reads.thread[order][at] == writes.thread)
            same = np.where(has_read, reads.value[order][at] == writes.value, writes.value == 0)
            if same.all() and has_read.any():
                return shown.name, np.where(has_read, reads.cell[order][at], -1)
        return "", np.zeros(0, int)

    # -- variables -------------------------------------------------------------------------------------
    def _variables(self, m: Moment, shown: PerThread) -> None:
        numbers = m.shown_by(shown)
        for number in numbers:
            self._read(m, shown, number)
        first, stop = m.visit.first, m.visit.stop
        given = [(n, slice(*np.searchsorted(n.history.step, (first, stop)))) for n in numbers]
        given = [(n, part) for n, part in given if m.mine[n.history.thread[part]].any()]
        if not given:
            return
        if len(numbers) == 1 or shown.name in m.step.shows:
            self._read_by_lanes(m, shown)
        if shown.rows:
            self.row[shown.name] = self.row.get(shown.name, 0) + (m.visit.kind in shown.rows)
        for number, part in sorted(given, key=lambda g: int(g[0].history.step[g[1].stop - 1])):
            threads = np.unique(number.history.thread[part]).astype(int)
            threads = threads[m.mine[threads]]
            values = m.played.after(number.history, stop - 1).of[threads]
            row = self.row[shown.name] if shown.rows else number.row
            self._rows[shown.name] = max(self._rows.get(shown.name, 0), row + 1)
            for name, mine, cells in self._of_blocks(m, shown, row, threads):
                self.recorder.put(name, values[mine], cells)
                self._explain(m, shown, name, cells, threads[mine])

    def _of_blocks(
        self, m: Moment, shown: PerThread, row: int, threads: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yields the tensor of each block, which of the threads are in it, and their cells in a row."""
        if shown.turn:
            assert m.visit.threads is not None  # such a tensor needs a view of groups
            own = threads[threads < m.visit.threads.start + self.view.group] - m.visit.threads.start
            yield shown.name, np.arange(len(own)), row * self.view.group + own
            return
        block, own = np.divmod(threads, m.played.recording.block_threads)
        for b in np.unique(block).tolist():
            mine = np.flatnonzero((block == b) & (own < self.columns))
            yield self.name_of(shown, b), mine, row * self.columns + own[mine]

    def name_of(self, shown: PerThread, block: int) -> str:
        return f"{shown.name}_{block}" if self.is_of_blocks(shown) else shown.name

    def is_of_blocks(self, shown: Shown | None) -> bool:
        """Returns whether a tensor is one for each block."""
        return self.blocks > 1 and isinstance(shown, PerThread) and not shown.turn

    def _read(self, m: Moment, shown: PerThread, number: Number) -> None:
        """Record the reads of an element of an array."""
        if number.reads is None:
            return
        part = slice(*np.searchsorted(number.reads.step, (m.visit.first, m.visit.stop)))
        threads = np.unique(number.reads.thread[part]).astype(int)
        threads = threads[m.mine[threads]]
        for name, _, cells in self._of_blocks(m, shown, number.row, threads):
            self.recorder.look(name, cells)

    def _read_by_lanes(self, m: Moment, shown: PerThread) -> None:
        """Record the reads by shuffles: those that got the bits that the variable had in the other lane, and its own."""
        of = m.played.recording.watched.shuffles
        part = slice(*np.searchsorted(of.step, (m.visit.first, m.visit.end)))
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
        if self.blocks == 1:
            both = np.concatenate([thread[same], source[same]])
            self._looked[shown.name] = np.tile(thread[same], 2), row * self.columns + both

    # -- sentences on cells ----------------------------------------------------------------------------
    def _explain(self, m: Moment, shown: Shown, name: str, cells: np.ndarray, threads: np.ndarray) -> None:
        """Note what is said of cells that a step has written, and which cells their threads have read for them."""
        text = m.step.cells.get(shown.name, "")
        most = MAX_EXPLAINED if isinstance(shown, Buffer) else MAX_EXPLAINED // 4
        if not text or self.blocks > 1 or int(cells.max(initial=0)) >= most:
            return
        values = (expression.value(m) for expression in template(text)[1])
        columns = [np.broadcast_to(value.of, m.played.threads)[threads] for value in values]
        self._notes.setdefault(name, []).append(
            Note(text, cells, threads, np.stack(columns, axis=1), dict(self._looked))
        )

    def annotations(self, tensors: Sequence[Tensor]) -> list[Annotation]:
        sizes = {tensor.name: tensor.size for tensor in tensors}
        return [
            _annotation(name, sizes[name], notes) for name, notes in self._notes.items() if sizes[name] <= MAX_EXPLAINED
        ]

    # -- tensors ---------------------------------------------------------------------------------------
    def tensors(self, moments: Sequence[Moment], notes: Mapping[str, str]) -> list[Tensor]:
        """Returns the tensors after the last step. `moments`: the first of each launch. `notes`: beside titles, by tensor."""
        return [tensor for shown in self.view.tensors for tensor in self._tensors(shown, moments, notes)]

    def _tensors(self, shown: Shown, moments: Sequence[Moment], notes: Mapping[str, str]) -> Iterator[Tensor]:
        symbol, title = shown.symbol or shown.name, tr(shown.title)
        note = notes.get(shown.name) or tr(shown.note)
        if isinstance(shown, PerThread):
            rows, columns = self._rows.get(shown.name, 1), self.view.group if shown.turn else self.columns
            variables = moments[-1].played.recording.watched.values.variables
            shape = next((v.type.shape for v in variables if v.name == shown.variables[0]), ())
            rows, columns = shape if columns == 1 and len(shape) == 2 else (rows, columns)
            for block in range(self.blocks if self.is_of_blocks(shown) else 1):
                name = self.name_of(shown, block)
                yield Tensor(name, symbol, title, shown.role, 1, rows, columns, note="" if block else note)
            return
        m = next((m for m in moments if m.played.array(array_of(shown)) >= 0), moments[0])
        planes, rows, columns = shape_of(m, shown)
        if isinstance(shown, Shared) and shown.rows:
            rows = self.row.get(shown.name, 0) + 1
        values = initial(moments[0], shown) if isinstance(shown, Buffer) else None
        yield Tensor(shown.name, symbol, title, shown.role, planes, rows, columns, values, note=note)


def shape_of(m: Moment, shown: Shown) -> tuple[int, int, int]:
    """Returns planes, rows and columns of a buffer or of a shared array."""
    assert isinstance(shown, Buffer | Shared)
    recording, name, step = m.played.recording, array_of(shown), shown.every[1]
    if isinstance(shown, Buffer):
        array = recording.before[recording.arguments.get(name, name)]
        *outer, _ = array.shape or (1,)
        extents = (*outer, elements(array, shown).size // int(np.prod(outer)))
        *planes, rows, columns = (1, 1, *extents)[-max(3, len(extents)) :]
        return int(np.prod(planes)), rows, columns
    type_ = recording.watched.shared[name]
    if len(type_.shape) < 2 or step > 1:
        return 1, recording.blocks, len(type_.leaves) // step
    *planes, rows, columns = (1, *type_.shape)
    return int(np.prod(planes)), rows * recording.blocks, columns


def initial(m: Moment, shown: Buffer) -> np.ndarray | None:
    """Returns the cells of a buffer before the program, float32; None of one that has no values yet."""
    recording, name = m.played.recording, array_of(shown)
    buffer = recording.arguments.get(name, name)
    if buffer not in recording.given:
        return None
    return elements(recording.before[buffer], shown).astype(np.float32)


def elements(array: np.ndarray, shown: Buffer) -> np.ndarray:
    """Returns the cells of a tensor, in their order, of the array that it shows."""
    first, step = shown.every
    return parted(array, shown.dtype)[first::step]


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
        for source, (threads, cells) in note.looked.items():
            of = links.setdefault(source, np.full((size, MAX_LINKS), -1))
            for cell, thread in zip(note.cells, note.threads, strict=True):
                mine = np.unique(cells[threads == thread])[:MAX_LINKS]
                of[cell], of[cell, : len(mine)] = -1, mine
    used = {source: of[:, : int((of >= 0).sum(axis=1).max())] for source, of in links.items()}
    return Annotation(name, Captions((*(template(tr(text))[0] for text in texts), ""), kind, numbers), used)
