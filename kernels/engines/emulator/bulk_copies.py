"""Bulk copies that are under way: those of the copy engine (TMA), and plain ones (cp.async.bulk).

Loads are done as late as possible: when no thread can run, those of one barrier at a time. Until then their bytes count
as unwritten, so that a thread that does not wait for them reads an error. A store is done when its thread waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernels.engines.emulator.events import NONE
from kernels.engines.emulator.memory import COMING, LEAVING, WRITTEN, Fault
from kernels.engines.emulator.phases import complete_bytes, phase_at
from kernels.engines.emulator.state import Machine, needed

PIECE = 16  # bytes; a copy consists of pieces


@dataclass
class Load:
    """A copy to shared memory, into one block or several. `read` returns its bytes as uint8 [pieces, 16]; `pieces`: where
    they begin, one array a block; `barriers`: the byte offset of each block's mbarrier."""

    pc: int
    slot: int
    read: Callable[[], np.ndarray]
    pieces: Sequence[np.ndarray]
    barriers: Sequence[int]
    nbytes: int
    phases: Sequence[int] = ()  # the parity of each barrier when the copy began
    number: int = NONE  # in the trace


@dataclass
class Store:
    """A copy from shared memory, from these `pieces`. `read` returns their bytes as uint8 [pieces, 16], and `write` stores them."""

    pc: int
    slot: int
    pieces: np.ndarray
    read: Callable[[], np.ndarray]
    write: Callable[[np.ndarray], None]
    number: int = NONE  # in the trace


class BulkCopies:
    """The copies of a launch. Loads of one barrier are done in the order of their instructions."""

    def __init__(self, m: Machine):
        self.m = m
        self._loads: list[Load] = []
        self._open: dict[int, list[Store]] = {}  # by slot: stores in no group yet
        self._groups: dict[int, list[list[Store]]] = {}  # by slot: groups, the oldest first
        self._have_read: dict[
            int, list[Callable[[], None]]
        ] = {}  # by slot: what writes the stores that have read their bytes
        m.shared.copies.append(self._describe)

    # -- loads -------------------------------------------------------------------------------------
    def begin(self, load: Load) -> None:
        """Begin a load. EmulatorError if its bytes are in use."""
        m = self.m
        for pieces in load.pieces:
            self._check(load, pieces)
            m.shared.state.reshape(-1, PIECE)[pieces // PIECE] = COMING
        load.phases = [phase_at(m, barrier).parity for barrier in load.barriers]
        self._loads.append(load)

    def _check(self, load: Load, pieces: np.ndarray) -> None:
        m = self.m
        if (m.shared.state[pieces] == COMING).any():
            self.fail(load, "this copy overwrites shared memory that an earlier copy still writes")
        try:
            m.shared.check(pieces, 8, write=True)
        except Fault as fault:
            m.fail(load.pc, fault.description, load.slot)
        if m.products is not None:
            m.products.check_overwritten(load.pc, pieces, load.slot)
        needed(m.proxies).check(load.pc, pieces, load.slot, "overwrites")
        if (races := m.races.get("shared")) is not None:
            races.overwritten_by_copy(load.pc, load.slot, pieces, PIECE)

    def complete(self) -> bool:
        """Do the oldest load and all others that report to the same barrier, each in its block. Return whether there were
        any."""
        if not self._loads:
            return False
        first = self._barrier(self._loads[0])
        now = [load for load in self._loads if self._barrier(load) == first]
        self._loads = [load for load in self._loads if self._barrier(load) != first]
        for load in now:
            self._complete(load)
        return True

    def _barrier(self, load: Load) -> int:
        return load.barriers[0] % self.m.shared.size

    def _complete(self, load: Load) -> None:
        m = self.m
        data = np.ascontiguousarray(load.read()).view(np.uint64)  # [pieces, 2]
        for pieces, barrier, parity in zip(load.pieces, load.barriers, load.phases, strict=True):
            self._check_alive(load, int(pieces[0]) // m.shared.size, "writes")
            if phase_at(m, barrier).parity != parity:
                self.fail(
                    load,
                    f"wrong number of bytes: the phase of {m.shared.describe(barrier)[3:]} ended before this copy of "
                    f"{load.nbytes:,} bytes, because it expected fewer bytes than its copies write",
                )
            for half in (0, 1):
                m.shared.store(pieces + np.uint64(8 * half), 8, data[:, half])
            ended = complete_bytes(m, barrier, load.nbytes)
            if m.trace is not None:
                m.trace.events.copied(load.pc, load.number, barrier // m.shared.size)
                if ended:
                    m.trace.events.phase(load.pc, barrier, parity)

    # -- stores ------------------------------------------------------------------------------------
    def store(self, store: Store) -> None:
        """Begin a store. Until it was waited for, its bytes are not written by anyone else."""
        if (races := self.m.races.get("shared")) is not None:
            races.begun_by_copy(store.pc, store.slot, store.pieces, PIECE)
        self._open.setdefault(store.slot, []).append(store)
        self._mark(store.pieces, LEAVING)
        self.m.shared.leaving += 1

    def _mark(self, pieces: np.ndarray, state: int) -> None:
        self.m.shared.state.reshape(-1, PIECE)[pieces // PIECE] = state

    def _stores(self) -> list[Store]:
        """Returns the stores that are under way."""
        groups = (*self._open.values(), *(group for groups in self._groups.values() for group in groups))
        return [store for group in groups for store in group]

    def _describe(self, offset: int) -> str:
        """Returns the line of the copy that writes or reads a byte of shared memory, as a part of a message."""
        piece = offset // PIECE * PIECE
        loads = ((load.pc, pieces) for load in self._loads for pieces in load.pieces)
        for pc, pieces in (*loads, *((store.pc, store.pieces) for store in self._stores())):
            if (pieces == piece).any():
                return f", begun at {self.m.kernel.code[pc].line}"
        return ""

    def commit(self, slots: np.ndarray) -> None:
        for slot in slots.tolist():
            self._groups.setdefault(slot, []).append(self._open.pop(slot, []))

    def wait(self, slots: np.ndarray, pending: int, only_read: bool) -> None:
        """Do the groups of these threads but the last `pending` ones, or only let them read their bytes."""
        for slot in slots.tolist():
            groups = self._groups.get(slot, [])
            while len(groups) > pending:
                for store in groups.pop(0):
                    self._have_read.setdefault(slot, []).append(partial(store.write, store.read()))
                    self._moved(store)
                    if self.m.trace is not None:
                        self.m.trace.events.copied(store.pc, store.number, int(self.m.block_of[store.slot]))
            if not only_read:
                self._write(slot)

    def _write(self, slot: int) -> None:
        for write in self._have_read.pop(slot, ()):
            write()

    def _moved(self, moved: Store) -> None:
        """Let the bytes of a store be written again, but not those that another one still reads."""
        if (races := self.m.races.get("shared")) is not None:
            races.read_by_copy(moved.pc, moved.slot, moved.pieces, PIECE)
        self._mark(moved.pieces, WRITTEN)
        self.m.shared.leaving -= 1
        for store in self._stores() if self.m.shared.leaving else ():
            self._mark(store.pieces, LEAVING)

    def check_ended(self) -> None:
        """Raise EmulatorError if a block has ended while a store may still read its shared memory. Its other stores are done then."""
        for slot in [slot for slot in self._have_read if not self.m.live[slot]]:
            self._write(slot)
        for store in self._stores():
            self._check_alive(store, int(self.m.block_of[store.slot]), "reads")

    def _check_alive(self, copy: Load | Store, block: int, verb: str) -> None:
        if not self.m.live[self.m.block_of == block].any():
            self.fail(copy, f"the block ends while this copy still {verb} its shared memory: no wait for it")

    def fail(self, copy: Load | Store, message: str) -> None:
        warp = int(self.m.thread_of[copy.slot]) // 32
        self.m.fail(copy.pc, f"{message} (warp {warp})", copy.slot)
