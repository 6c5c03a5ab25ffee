"""The trace of some blocks of a build for watching: steps, accesses as bits, and the values of variables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.engines.emulator.memory import Region
from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.ptx.kernel import Kernel, Line
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES, bits_of_lanes
from kernels.engines.emulator.trace import BARRIER, Trace
from kernels.engines.emulator.watch.arrays import arrays
from kernels.engines.emulator.watch.types import Type
from kernels.engines.emulator.watch.values import Recorder, Values
from kernels.engines.emulator.watch.variables import variables_of
from kernels.engines.emulator.watch.watch import Watch
from kernels.model.values import NOT_OF_NUMPY

_SPACES = ("global", "shared", "const")
MOST_GROUPS = 1024  # of threads that are kept


@dataclass(frozen=True)
class Accesses:
    """Reads and writes, one row an element: the step, the index of the buffer, the flat index in it, whether it is written, the thread,
    the bits, unsigned, and whether it is an atomic update: a read and a write. Elements of a shared array of several blocks follow each
    other, block after block."""

    step: np.ndarray
    buffer: np.ndarray
    element: np.ndarray
    write: np.ndarray
    thread: np.ndarray
    bits: np.ndarray
    atomic: np.ndarray


@dataclass(frozen=True)
class Shuffles:
    """What lanes got from each other, one row a value: the step, the thread that got it, the one that had it, the bits, uint32."""

    step: np.ndarray
    thread: np.ndarray
    source: np.ndarray
    bits: np.ndarray


@dataclass(frozen=True)
class Watched:
    """What some blocks of a launch have done. A step is a run of instructions of one statement, in the kernel and in the function that is
    inlined there, by one set of lanes, up to a jump back.

    Of each step: `pc`, its first instruction; `line` and `inner`, the lines in the kernel and in the function, indices of `lines`, -1 for
    none; `statement` and `inner_statement`, which of their lines; `masks` [steps, warps] uint32, bit i is set if lane i is active.
    `dtypes`: of each of `buffers`. `parameters`: the names of the kernel's parameters, in their order. `barriers`: the steps with a
    barrier of the block. `races`: the step at which a data race was found, and what is said of it, if races were looked for. `shared`: the
    types of the block's shared arrays."""

    lines: tuple[Line, ...]
    pc: np.ndarray
    line: np.ndarray
    inner: np.ndarray
    statement: np.ndarray
    inner_statement: np.ndarray
    masks: np.ndarray
    buffers: tuple[str, ...]
    dtypes: tuple[str, ...]
    accesses: Accesses
    shuffles: Shuffles
    barriers: np.ndarray
    races: tuple[tuple[int, str], ...]
    values: Values
    shared: dict[str, Type]
    parameters: tuple[str, ...]

    @property
    def steps(self) -> int:
        return len(self.pc)


@dataclass(frozen=True)
class Group:
    """Threads that execute an instruction together. `masks`: uint32, one a watched warp. `index`: of its slots, None for all; `count` of them.
    `slots`: those that are watched, `lanes` their places among all that are, `threads` their numbers, `ranks` their blocks among those that
    are watched, and `among` their places in `index`."""

    here: np.ndarray
    masks: np.ndarray
    key: bytes
    index: np.ndarray | None
    count: int
    slots: np.ndarray
    lanes: np.ndarray
    threads: np.ndarray
    ranks: np.ndarray
    among: np.ndarray


class WatchTrace(Trace):
    """Collects a Watched while the machine runs."""

    def __init__(self, m: Machine, watch: Watch, ptx: str):
        super().__init__(m, watch.blocks[0])
        self._rank = np.full(m.blocks, -1)  # of each block among those that are watched
        self._rank[list(watch.blocks)] = np.arange(len(watch.blocks))
        of_slot = self._rank[m.block_of]
        slots = np.argsort(of_slot, kind="stable")
        self._slots = slots[(of_slot[slots] >= 0) & m.threads.exists[slots]]
        rows = np.argsort(of_slot[::LANES], kind="stable")
        self._rows = rows[of_slot[::LANES][rows] >= 0]
        self._thread = of_slot * int(np.prod(m.block)) + m.thread_of  # of each slot
        self._lane = np.full(m.slots, -1)  # the place of each slot in `_slots`
        self._lane[self._slots] = np.arange(self._slots.size)
        self.variables = variables_of(m.kernel, ptx, m.offsets_of_local_variables(), watch.is_watched)
        self.recorder = Recorder(m, self._slots, self._thread[self._slots], self.variables)
        self.places = places_of(m.kernel)
        self._barriers = {pc for pc, sync in self._sync_of.items() if sync[0] == BARRIER}
        self._groups: dict[bytes, Group] = {}
        self.here, self.group = m.live, self.group_of(m.live)  # of the last instruction
        self.arrays = list(arrays(m))
        self._pcs: list[int] = []
        self._masks_of: list[np.ndarray] = []  # of each step
        self._steps_at_barriers: list[int] = []
        self._turn, self._last_pc = 0, -1
        self._last_place: tuple[int, int, bytes] | None = None
        self._dtypes: dict[int, np.dtype] = {}  # of buffers
        self._seen: list[tuple[int, int, np.ndarray, bool, np.ndarray, np.ndarray, bool]] = []  # columns of Accesses
        self._shuffles: list[tuple[np.ndarray, ...]] = []  # as the columns of Shuffles
        self._races: list[tuple[int, str]] = []

    @property
    def _step(self) -> int:
        return len(self._pcs) - 1

    def group_of(self, here: np.ndarray) -> Group:
        """Returns a group of threads. It is made once of equal ones."""
        bits = here.tobytes()
        group = self._groups.get(bits)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self._groups.clear()
            index = np.flatnonzero(here)
            slots = self._slots[here[self._slots]]
            masks = bits_of_lanes(here)[self._rows]
            group = self._groups[bits] = Group(
                here, masks, masks.tobytes(), None if index.size == here.size else index, index.size, slots,
                self._lane[slots], self._thread[slots], self._rank[self.m.block_of[slots]], np.searchsorted(index, slots),
            )  # fmt: skip
        return group

    def at(self, pc: int, here: np.ndarray) -> None:
        """Note the threads that are about to execute an instruction."""
        if here is not self.here:
            self.here, self.group = here, self.group_of(here)
        if not self.group.slots.size:
            return
        self._turn += pc <= self._last_pc
        self._last_pc = pc
        place = self.places[pc], self._turn, self.group.key
        if place != self._last_place:
            self._last_place = place
            self.begin(pc)
        if pc in self._barriers:
            self._steps_at_barriers.append(self._step)
        if pc in self.variables.entered:
            self.enter(pc)

    def begin(self, pc: int) -> None:
        """Begin a step."""
        self._pcs.append(pc)
        self._masks_of.append(self.group.masks)

    def enter(self, pc: int) -> None:
        """Note the variables that are in another register from an instruction on."""
        self.recorder.before(self._step, pc, self.group)

    def passed(self, pc: int) -> None:
        """Note that the instructions up to `pc` are executed, each step of which has begun."""
        self._last_pc, self._last_place = pc, (self.places[pc], self._turn, self.group.key)

    def changed(self, pc: int) -> None:
        """Note the variables whose register an instruction has written."""
        self.recorder.after(self._step, pc, self.group)

    def local(self, pc: int, offset: int, width: int, write: bool) -> None:
        """Note an access to bytes of the own memory of each thread."""
        self.recorder.local(self._step, pc, offset, width, write, self.group)

    def after(self, pc: int, here: np.ndarray) -> None:
        if pc in self.variables.changed:
            self.recorder.after(self._step, pc, self.group if here is self.here else self.group_of(here))

    def access(
        self, pc: int, name: str, offsets: np.ndarray, values: np.ndarray, dtype, write: bool, atomic: bool = False
    ) -> None:
        m = self.m
        slots = self._slots if m.active_mask is None else self._slots[m.active_mask[self._slots]]
        if not slots.size or name not in (*_SPACES, "local"):
            return
        at = np.broadcast_to(offsets, m.slots)[slots].astype(np.int64)
        if name == "local":
            note = self.recorder.stored if write else self.recorder.loaded
            note(self._step, pc, at - m.local_base[slots].astype(np.int64), values.itemsize, self._lane[slots])
            return
        by_slot = np.zeros(m.slots, values.dtype)
        by_slot[slice(None) if m.active_mask is None else m.active_mask] = values
        self._note(name, at, self._thread[slots], by_slot[slots], dtype, write, atomic)

    def _note(
        self, name: str, at: np.ndarray, threads: np.ndarray, values: np.ndarray, dtype, write: bool, atomic: bool
    ) -> None:
        """Note the accesses of threads to bytes of a memory, of shared memory those to blocks that are watched."""
        m, rank = self.m, np.zeros(at.size, np.int64)
        if name == "shared":
            block, at = np.divmod(at, m.shared.size)
            rank = self._rank[block]
        for region in (m.shared if name == "shared" else m.memory).regions:
            here = (at >= region.start) & (at < region.stop) & (rank >= 0)
            if here.any():
                self.note(region, name, at[here], rank[here], threads[here], values[here], dtype, write, atomic)

    def note(
        self, region: Region, name: str, at: np.ndarray, rank: np.ndarray | int, threads: np.ndarray, values: np.ndarray, dtype,
        write: bool, atomic: bool = False,
    ) -> None:  # fmt: skip
        """Note accesses to a region: bytes from the start of the space, of the block whose memory it is."""
        buffer = self._buffers.setdefault(region.name, len(self._buffers))
        type_ = self._dtypes.get(buffer)
        if type_ is None:
            type_ = self._dtypes[buffer] = np.dtype(dtype if name == "shared" else region.dtype)
        size = type_.itemsize
        element = _elements(region, size, at, rank)
        if values.itemsize > size:  # an access can be as wide as several elements
            parts = values.itemsize // size
            element, threads = (element[:, None] + np.arange(parts)).ravel(), np.repeat(threads, parts)
            values = values.view(f"u{size}")
        self._seen.append((self._step, buffer, element, write, threads, values.view(UNSIGNED[values.itemsize]), atomic))

    def updated(self, pc: int, name: str, offsets: np.ndarray, before: np.ndarray, after: np.ndarray, dtype) -> None:
        self.access(pc, name, offsets, before, dtype, write=False, atomic=True)
        self.access(pc, name, offsets, after, dtype, write=True, atomic=True)

    def raced(self, message: str) -> None:
        if self._pcs:
            self._races.append((self._step, message))

    def copied(
        self, pc: int, name: str, from_: np.ndarray, to: np.ndarray, words: np.ndarray, count: np.ndarray | None
    ) -> None:
        """Note the reads and writes of a cp.async where it begins."""
        for n in range(words.shape[1]):
            at = np.uint64(4 * n)
            read = np.ones(len(words), bool) if count is None else count > 4 * n
            with self.m.only(self.m.spread(read).astype(bool)):
                self.access(pc, name, from_ + at, words[read, n], "<u4", write=False)
            self.access(pc, "shared", to + at, words[:, n], "<u4", write=True)

    def bulk(self, slot: int, name: str, offsets: np.ndarray, data: np.ndarray, dtype: str, write: bool) -> None:
        """Note the reads or writes of a bulk copy where it begins, as those of the thread that begins it."""
        if self._thread[slot] >= 0 and self._pcs and offsets.size:
            threads = np.full(offsets.size, self._thread[slot])
            number = UNSIGNED[data.itemsize] if dtype in NOT_OF_NUMPY else dtype
            self._note(name, offsets.astype(np.int64), threads, data, number, write, atomic=False)

    def shuffled(self, lanes: np.ndarray, values: np.ndarray) -> None:
        here = self._slots if self.m.active_mask is None else self._slots[self.m.active_mask[self._slots]]
        source = here // LANES * LANES + lanes.reshape(-1)[here]
        steps = np.full(here.size, self._step)
        self._shuffles.append((steps, self._thread[here], self._thread[source], values.reshape(-1)[here]))

    def request(self, name: str, op: str, lines: np.ndarray, active: np.ndarray | None, width: int) -> None:
        """Requests are those of the measured build."""

    def watched(self) -> Watched:
        """Returns what was recorded."""
        code = self.m.kernel.code
        lines: dict[Line, int] = {}

        def indices(of_step: list[Line | None]) -> np.ndarray:
            return np.array([-1 if line is None else lines.setdefault(line, len(lines)) for line in of_step], np.int32)

        line, inner = (indices([getattr(code[pc], name) for pc in self._pcs]) for name in ("line", "inlined"))
        return Watched(
            lines=tuple(lines),
            pc=np.array(self._pcs, np.int64),
            line=line,
            inner=inner,
            statement=np.array([code[pc].statement for pc in self._pcs], np.uint8),
            inner_statement=np.array([code[pc].inlined_statement for pc in self._pcs], np.uint8),
            masks=np.array(self._masks_of, np.uint32).reshape(-1, len(self._rows)),
            buffers=tuple(self._buffers),
            dtypes=tuple(self._dtypes[n].name for n in range(len(self._buffers))),
            accesses=self._accesses_seen(),
            shuffles=self._shuffles_seen(),
            barriers=np.unique(self._steps_at_barriers).astype(np.int64),
            races=tuple(self._races),
            values=self.recorder.result(),
            shared=dict(self.variables.shared),
            parameters=self.variables.parameters,
        )

    def _shuffles_seen(self) -> Shuffles:
        none = tuple(np.zeros(0, np.int64) for _ in range(4))
        step, thread, source, bits = (np.concatenate(column) for column in zip(none, *self._shuffles, strict=True))
        return Shuffles(
            step.astype(np.uint32), thread.astype(np.uint16), source.astype(np.uint16), bits.astype(np.uint32)
        )

    def _accesses_seen(self) -> Accesses:
        sizes = [len(row[2]) for row in self._seen]

        def of_row(n: int, dtype: type) -> np.ndarray:
            return np.repeat(np.array([row[n] for row in self._seen], dtype), sizes)

        element, thread, bits = (
            np.concatenate([row[n] for row in self._seen]) if self._seen else np.zeros(0, int) for n in (2, 4, 5)
        )
        columns = of_row(0, np.uint32), of_row(1, np.uint8), element.astype(np.uint32), of_row(3, np.bool_)
        return Accesses(*columns, thread.astype(np.uint16), bits.astype(np.uint64), of_row(6, np.bool_))


@lru_cache(maxsize=64)
def places_of(kernel: Kernel) -> list[int]:
    """Returns a number of each instruction's place, the same in equal places: its line and statement, and those in the function."""
    found: dict[object, int] = {}
    places = ((i.line, i.inlined, i.statement, i.inlined_statement) for i in kernel.code)
    return [found.setdefault(place, len(found)) for place in places]


def _elements(region: Region, size: int, at: np.ndarray, rank: np.ndarray | int) -> np.ndarray:
    """Returns the flat indices of elements of `size` bytes. `rank`: of the block whose array it is."""
    return (at - region.start) // size + rank * ((region.stop - region.start) // size)
