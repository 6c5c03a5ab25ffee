"""What variables hold: each value that a variable of a thread is given, at a step of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.watch.types import Leaf
from kernels.engines.emulator.watch.variables import Variables
from kernels.engines.emulator.watch.watch import Variable

if TYPE_CHECKING:
    from kernels.engines.emulator.watch.trace import Group

MAX_VALUES = 20_000_000  # of a recording: 200 MB


class TooMany(Exception):
    """The variables of a block are given more values than can be kept."""


@dataclass(frozen=True)
class History:
    """The values of one number of a variable, in the order of execution: at which step, in which thread, the bits (unsigned)."""

    leaf: Leaf
    step: np.ndarray
    thread: np.ndarray
    bits: np.ndarray

    @property
    def values(self) -> np.ndarray:
        return self.bits.view(self.leaf.dtype)

    def after(self, step: int, threads: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns what each of a number of threads holds after a step, and whether it holds anything."""
        until = np.searchsorted(self.step, step, "right")
        bits, known = np.zeros(threads, self.bits.dtype), np.zeros(threads, bool)
        bits[self.thread[:until]], known[self.thread[:until]] = self.bits[:until], True
        return bits.view(self.leaf.dtype), known


@dataclass(frozen=True)
class Reads:
    """Where a number of an array was read: the steps and the threads."""

    step: np.ndarray
    thread: np.ndarray


@dataclass(frozen=True)
class Values:
    """`histories`: of each variable one for each of its numbers that was given a value, by path ("", ".m", "[0][3]"). `reads`: the same of
    arrays in local memory."""

    variables: tuple[Variable, ...]
    histories: tuple[dict[str, History], ...]
    reads: tuple[dict[str, Reads], ...]

    def named(self, name: str, pc: int | None = None) -> dict[str, History]:
        """Returns the histories of the variable with a name in C++ that an instruction sees, else of the first one that was given a value.
        KeyError if there is none."""
        found = [n for n, v in enumerate(self.variables) if v.name == name and (pc is None or v.is_visible(pc))]
        if pc is not None:  # of several scopes around an instruction, the innermost
            found.sort(key=lambda n: self.variables[n].stop - self.variables[n].start)
        found = [n for n in found if self.histories[n]] or found
        if not found:
            raise KeyError(f"no variable {name} has a value")
        return self.histories[found[0]]

    def __call__(self, path: str, pc: int | None = None) -> History:
        """Returns the history of a number: "col", "running.m", "acc[0][3]". KeyError if it has none."""
        name = path.partition(".")[0].partition("[")[0]
        return self.named(name, pc)[path.removeprefix(name)]


@dataclass
class _Column:
    """A history that is being recorded: steps, threads and bits, a part an instruction. `last`: of each thread, and whether it has any, if
    values of the variable are moved."""

    dtype: np.dtype  # unsigned
    last: np.ndarray | None
    known: np.ndarray
    steps: list[int] = field(default_factory=list)
    threads: list[np.ndarray] = field(default_factory=list)
    bits: list[np.ndarray] = field(default_factory=list)


class Recorder:
    """Records the values of some threads of a machine while it runs: `slots`, and their numbers in the recording."""

    def __init__(self, m: Machine, slots: np.ndarray, threads: np.ndarray, variables: Variables):
        self.m, self.slots, self.variables = m, slots, variables
        self.threads = threads
        self._columns: dict[tuple[int, int], _Column] = {}  # by variable and number
        self._moved = {held.variable for of in variables.entered.values() for held in of}
        self._moved |= {held.variable for of in variables.changed.values() for held, moves in of if moves}
        self._count = 0
        self._reads: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = {}  # by variable and number
        self._in_bytes: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}

    def before(self, step: int, pc: int, group: Group) -> None:
        """Note the variables that are in another register from an instruction on."""
        for held in self.variables.entered.get(pc, ()):
            self._note_register(step, held.variable, held.register, group, is_new=False)

    def after(self, step: int, pc: int, group: Group) -> None:
        """Note the variables whose register an instruction has written."""
        for held, moves in self.variables.changed.get(pc, ()):
            self._note_register(step, held.variable, held.register, group, is_new=not moves)

    def _note_register(self, step: int, n: int, register: str, group: Group, is_new: bool) -> None:
        index = self.m.index.get(register)
        if index is None or len(self.variables.all[n].type.leaves) != 1:
            return
        value = self.m.registers[index]
        bits = value.take(group.slots) if value.ndim else value.repeat(group.slots.size)
        self._note(step, n, 0, bits.view(UNSIGNED[bits.itemsize]), group.lanes, group.threads, is_new)

    def local(self, step: int, pc: int, offset: int, width: int, write: bool, group: Group) -> None:
        """Note an access of `width` bytes at one place in the local memory of each thread."""
        for n, leaf, start in self.numbers_in(pc, offset, width):
            if write:
                bits = self.m.local.column(start, self._column(n, leaf).dtype.itemsize).take(group.slots)
                self._note(step, n, leaf, bits, group.lanes, group.threads, is_new=True)
            elif self.variables.all[n].type.shape:
                self._reads.setdefault((n, leaf), []).append((step, group.threads))

    # `lanes` are those of the recorded threads that execute an instruction.
    def stored(self, step: int, pc: int, offsets: np.ndarray, width: int, lanes: np.ndarray) -> None:
        """Note the variables that a store of `width` bytes to local memory has changed. offsets: bytes from the start of the thread's."""
        for offset in np.unique(offsets).tolist():
            chosen = lanes[offsets == offset]
            for n, leaf, start in self.numbers_in(pc, offset, width):
                size = np.dtype(self.variables.all[n].type.leaves[leaf].dtype).itemsize
                at = (self.m.local_base[self.slots[chosen]] + np.uint64(start)).astype(np.int64)
                data = self.m.local.bytes[at[:, None] + np.arange(size)]
                bits = data.view(UNSIGNED[size]).reshape(-1)
                self._note(step, n, leaf, bits, chosen, self.threads[chosen], is_new=True)

    def loaded(self, step: int, pc: int, offsets: np.ndarray, width: int, lanes: np.ndarray) -> None:
        """Note the numbers of arrays that a load of `width` bytes from local memory has read."""
        for offset in np.unique(offsets).tolist():
            for n, leaf, _ in self.numbers_in(pc, offset, width):
                if self.variables.all[n].type.shape:
                    self._reads.setdefault((n, leaf), []).append((step, self.threads[lanes[offsets == offset]]))

    def numbers_in(self, pc: int, offset: int, width: int) -> list[tuple[int, int, int]]:
        """Returns (variable, number, first byte) of the numbers in bytes of local memory that an instruction sees."""
        key = pc, offset, width
        found = self._in_bytes.get(key)
        if found is None:
            found = self._in_bytes[key] = [
                (place.variable, k, place.offset + leaf.offset)
                for place in self.variables.stored
                if self.variables.all[place.variable].start <= pc + 1 and pc < self.variables.all[place.variable].stop
                for k, leaf in enumerate(self.variables.all[place.variable].type.leaves)
                if _overlap(place.offset + leaf.offset, np.dtype(leaf.dtype).itemsize, offset, width)
            ]
        return found

    def _column(self, n: int, leaf: int) -> _Column:
        column = self._columns.get((n, leaf))
        if column is None:
            dtype = np.dtype(UNSIGNED[np.dtype(self.variables.all[n].type.leaves[leaf].dtype).itemsize])
            last = np.zeros(len(self.slots), dtype) if n in self._moved else None
            column = self._columns[n, leaf] = _Column(dtype, last, np.zeros(len(self.slots), bool))
        return column

    def _note(
        self, step: int, n: int, leaf: int, bits: np.ndarray, lanes: np.ndarray, threads: np.ndarray, is_new: bool
    ) -> None:
        """Note what threads hold. Not `is_new`: a value that is moved, which is kept where it differs from the last one."""
        column = self._column(n, leaf)
        if bits.dtype is not column.dtype:
            bits = bits.astype(column.dtype)
        if column.last is not None:
            if not is_new:
                differ = ~column.known[lanes] | (column.last[lanes] != bits)
                lanes, threads, bits = lanes[differ], threads[differ], bits[differ]
            column.last[lanes], column.known[lanes] = bits, True
        if not lanes.size:
            return
        column.steps.append(step)
        column.threads.append(threads)
        column.bits.append(bits)
        self._count += lanes.size
        if self._count > MAX_VALUES:
            raise TooMany(f"the variables of this block are given more than {MAX_VALUES:,} values")

    def result(self) -> Values:
        histories: list[dict[str, History]] = [{} for _ in self.variables.all]
        for (n, k), column in sorted(self._columns.items()):
            if column.steps:
                leaf = self.variables.all[n].type.leaves[k]
                histories[n][leaf.path] = _history(leaf, column.steps, column.threads, column.bits)
        return Values(self.variables.all, tuple(histories), self._reads_seen())

    def _reads_seen(self) -> tuple[dict[str, Reads], ...]:
        reads: list[dict[str, Reads]] = [{} for _ in self.variables.all]
        for (n, k), seen in sorted(self._reads.items()):
            step = np.repeat(np.array([step for step, _ in seen], np.uint32), [threads.size for _, threads in seen])
            thread = np.concatenate([of for _, of in seen]).astype(np.uint16)
            reads[n][self.variables.all[n].type.leaves[k].path] = Reads(step, thread)
        return tuple(reads)


def _history(leaf: Leaf, steps: list[int], threads: Sequence[np.ndarray], bits: Sequence[np.ndarray]) -> History:
    step = np.repeat(np.array(steps, np.uint32), [part.size for part in threads])
    return History(leaf, step, np.concatenate(threads).astype(np.uint16), np.concatenate(bits))


def _overlap(a: int, size: int, b: int, width: int) -> bool:
    return a < b + width and b < a + size
