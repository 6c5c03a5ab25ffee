"""A launch in machine code: registers in rows, which NumPy's instructions use too, and the records of `plan` with their addresses.

Warps run one after the other until NumPy has to go on: at an instruction without a handler, at a barrier, at an access that is not
allowed. The results and counters are those of NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.native.library import is_available, library
from kernels.engines.emulator.native.record import (
    ALL_NOTED,
    BLOCKS,
    BY_BLOCK,
    CHECK,
    COUNTS,
    EXECUTED,
    FLOOR,
    INFINITY,
    KIND,
    KINDS,
    LANES,
    LATEST,
    LEADER,
    LINE_BITS,
    MARKED,
    NAN,
    NEEDED,
    OPERANDS,
    PENDING,
    RACE,
    RACES,
    SEVERAL,
    SPACE,
    STOP,
    TIME,
    UNTIL,
    WARPS_OF_BLOCK,
    WARPS_OF_ROWS,
    WRAPS,
    WRITABLE,
)
from kernels.engines.emulator.operations.dtypes import DTYPES
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import Groups, bits_of_lanes

if TYPE_CHECKING:
    from kernels.engines.emulator.native.plan import Plan

WARPS = 64  # that run before the time is checked
MAX_LEFT = 16  # times that a handler leaves its instruction to NumPy, which then keeps it
MAX_TURNS = 10_000  # branches back that a warp takes before others have their turn
# Bytes of a row's alignment, and between rows: those of one warp do not share lines of the processor's cache.
LINE = 128
LARGEST = 1 << 31  # bytes of a space whose offsets handlers compute


class Rows:
    """The registers of a launch, a row of one value a slot for each."""

    def __init__(self, m: Machine):
        self.m = m
        sizes = np.array([np.dtype(dtype).itemsize * m.slots for dtype in m.storage], np.int64)
        starts = np.concatenate([[0], np.cumsum(-(-sizes // LINE) * LINE + LINE)]).astype(np.int64)
        arena = np.zeros(int(starts[-1]) + LINE, np.uint8)
        starts += -arena.ctypes.data % LINE
        self.rows = [
            arena[start : start + size].view(dtype)
            for start, size, dtype in zip(starts.tolist(), sizes.tolist(), m.storage, strict=False)
        ]
        self.addresses = arena.ctypes.data + starts
        m.registers[:] = self.rows

    def keep(self, numbers: Sequence[int]) -> None:
        """Copy into the rows what NumPy wrote into registers."""
        for n in numbers:
            row, value = self.rows[n], self.m.registers[n]
            if value is not row:
                row[:] = value if value.dtype == row.dtype else value.view(row.dtype)
                self.m.registers[n] = row


def plan_for(m: Machine) -> Plan | None:
    """Returns the plan for a launch; None if NumPy executes all of it."""
    units = (m.trace, m.products, m.issued, m.frames, m.host)
    if not is_available() or any(unit is not None for unit in units) or m.threads.ranks > 1:
        return None
    if max(m.memory.bytes.size, m.shared.bytes.size, m.local.bytes.size) >= LARGEST:
        return None
    from kernels.engines.emulator.native.plan import Setting, plan_of, polls  # needs LLVM

    if polls(m.kernel):
        return None
    accessed = {"shared"} if m.clusters is not None else set()
    written = {"shared"} if m.proxies is not None else set()
    races = frozenset((name, of.unit) for name, of in m.races.items())
    setting = Setting(m.tally is not None, frozenset(accessed), frozenset(written), m.shared_arrays, races)
    return plan_of(m.kernel, setting)


class Native:
    """Executes what a plan has handlers for. `closures`: NumPy's, by instruction."""

    def __init__(self, m: Machine, plan: Plan, closures: Sequence[Run]):
        self.m, self.plan, self.closures, self.rows = m, plan, closures, Rows(m)
        self._run, self._kept = library().run, []
        n = len(m.kernel.code)
        self._spaces = {name: np.zeros(5, np.int64) for name in {access.space for access in plan.accesses.values()}}
        self._counts = np.zeros((n, 3), np.int64)
        self._raced = [pc for pc, access in plan.accesses.items() if access.unit]
        self._races = {name: np.zeros(RACES, np.int64) for name in m.races}
        self._writable: dict[str, np.ndarray] = {}
        self._records = self._bound()
        self._counters = np.zeros(m.slots, np.int32)
        self._issued, self._diverged = np.zeros((n + 2, 2), np.int64), np.zeros(n, np.int64)
        self._ended, self._left = n + 1, np.zeros(n, np.int64)
        self._marks = np.zeros(n + 2, np.uint8)
        self._stores, self._stored = [pc for pc, access in plan.accesses.items() if access.write], 0
        parts = (self._records, self._counters, self._counters, self._issued, self._diverged, self._marks)
        self._state = np.array([*(part.ctypes.data for part in parts), MAX_TURNS, self._ended], np.int64)
        m.flops_of.update({pc: ("flops_fp", each) for pc, each in plan.flops.items()})

    def _bound(self) -> np.ndarray:
        """Returns the plan's records with the addresses of this launch."""
        records, m = self.plan.records.copy(), self.m
        pcs, places, numbers = self.plan.registers.T
        records[pcs, places] = self.rows.addresses[numbers]
        for c in self.plan.constants:
            dtype = DTYPES[c.type_]
            value = (
                m.reader(c.operand, c.type_)() if c.parameter is None else m.param(c.operand.name, c.parameter, dtype)
            )
            array = np.ascontiguousarray(value, dtype) if value.ndim else np.full(LANES, value, dtype)
            self._kept.append(array)
            stride = LANES * array.itemsize if value.ndim else 0
            records[c.pc, OPERANDS + 2 * c.n : OPERANDS + 2 * c.n + 2] = array.ctypes.data, stride
        counts = self._counts.ctypes.data
        for pc, access in self.plan.accesses.items():
            records[pc, COUNTS] = counts + self._counts.strides[0] * pc
            records[pc, SPACE] = self._spaces[access.space].ctypes.data
            if access.unit:
                records[pc, RACE] = self._races[access.space].ctypes.data
        return records

    def advance(self, pending: Groups, check: Callable[[int, np.ndarray], None]) -> np.ndarray | None:
        """Execute what has handlers. Threads stop where NumPy has to go on. Return those that ended, None for none. `check` raises an
        error after too long a time, for an instruction and threads that are there."""
        at = list(pending)
        kinds = self._records[at, KIND].tolist()
        if all(kind == STOP for kind in kinds):
            return None
        for pc, kind in zip(at, kinds, strict=True):
            if kind == EXECUTED:  # others may join there
                self._records[pc, KIND] = LEADER
        lanes = pending[at[0]] if len(at) == 1 else np.logical_or.reduce(list(pending.values()))
        for pc, threads in pending.items():
            self._counters[threads] = pc
        bits = bits_of_lanes(lanes)
        warps = np.flatnonzero(bits)
        for name in self._spaces:
            self._refresh(name)
        self._set_checks()
        self._set_races()
        self._state[PENDING] = bits.ctypes.data
        self._marks[:] = 0
        for start in range(0, len(warps), WARPS):
            part = warps[start : start + WARPS]
            self._run(self._state.ctypes.data, part.ctypes.data, len(part))
            here = int(self._counters[part[-1] * LANES])
            check(min(here, len(self._records) - 1), lanes)
        self._note_races()
        pending.clear()
        for pc in np.flatnonzero(self._marks).tolist():
            here = self._counters == pc
            here &= lanes
            if here.any():
                pending[pc] = here
        self._note_stores()
        return pending.pop(self._ended, None)

    def _set_checks(self) -> None:
        """Let records check what has not been found yet."""
        nan, overflow = self.m.first_nan, self.m.overflow
        if nan is not None:
            self._records[self.plan.floats, CHECK] = (NAN * ("NaN" not in nan.found)) | (
                INFINITY * ("infinity" not in nan.found)
            )
        if overflow is not None:
            self._records[[pc for pc in overflow.uses if pc in self.plan.handled], CHECK] = WRAPS
            self._records[list(overflow.found), CHECK] = 0

    def _set_races(self) -> None:
        """Tell machine code what `races` knows, and a time for each access."""
        order = self.m.order
        if order is None or not self._raced:
            return
        first = order.now + 1
        order.pcs.extend(self._raced)
        self._records[self._raced, TIME] = np.arange(first, first + len(self._raced))
        for name, state in self._races.items():
            races = self.m.races[name]
            races.fit()
            races.settle()
            for n, kind in enumerate(races.kinds):
                arrays = (kind.who, kind.time, kind.who_before, kind.time_before)
                state[KINDS + 4 * n : KINDS + 4 * n + 4] = [array.ctypes.data for array in arrays]
                state[[LATEST + n, SEVERAL + n, NEEDED + n]] = kind.latest, kind.several, races.may_race(kind)
            lines = self._writable.get(name)
            if lines is None or len(lines) << LINE_BITS <= races.memory.bytes.size:  # memory has grown
                lines = self._writable[name] = races.lines_that_may_be_written(1 << LINE_BITS)
            state[MARKED], state[WRITABLE] = races.was_read.ctypes.data, lines.ctypes.data
            state[FLOOR], state[BY_BLOCK] = order.floor, races.by_block
            state[UNTIL], state[WARPS_OF_BLOCK] = order.until.ctypes.data, order.until.shape[1]
            state[BLOCKS], state[WARPS_OF_ROWS] = order.block.ctypes.data, order.warp.ctypes.data

    def barrier_diverged(self) -> None:
        """Note every read from now on: threads of one block may have left its barrier by different instructions."""
        for state in self._races.values():
            state[ALL_NOTED] = 1

    def _note_races(self) -> None:
        for name, state in self._races.items() if self._raced else ():
            for n, kind in enumerate(self.m.races[name].kinds):
                kind.latest, kind.several = int(state[LATEST + n]), bool(state[SEVERAL + n])

    def _refresh(self, name: str) -> None:
        """Set the addresses of a space, which may have grown."""
        m, fields = self.m, self._spaces[name]
        memory, starts = (m.memory, m.shared_base) if name == "global" else m.space(name)
        part = getattr(memory, "size", memory.bytes.size)
        fields[:] = memory.bytes.ctypes.data, memory.state.ctypes.data, memory.bytes.size, part, starts.ctypes.data

    @property
    def instructions(self) -> int:
        """The number of instructions that all warps have issued here."""
        return int(np.cumsum(self._issued[:, 0]).sum())

    def _note_stores(self) -> None:
        """Tell memory how often it was written: a loop in which nothing is written may repeat for ever."""
        if self._stores:
            stored = int(np.cumsum(self._issued[:, 0])[self._stores].sum())
            self.m.memory.writes += stored - self._stored
            self._stored = stored

    def by_numpy(self, pc: int, stop: int) -> None:
        """Execute instructions pc .. stop - 1 by NumPy for the active threads."""
        if self._records[pc, KIND] in (EXECUTED, LEADER):  # its handler did nothing
            self._left[pc] += 1
            if self._left[pc] > MAX_LEFT:
                self._records[pc, KIND] = STOP
        for run in self.closures[pc:stop]:
            run()
        for at in range(pc, stop):
            self.keep(at)

    def keep(self, pc: int) -> None:
        """Copy into the rows what NumPy wrote at an instruction."""
        self.rows.keep(self.plan.written[pc])

    def flush(self) -> None:
        """Add what was counted to the tally."""
        m = self.m
        if m.tally is None:
            return
        rows, code = m.tally.rows, m.kernel.code
        warps, lanes = np.cumsum(self._issued, axis=0)[: len(code)].T
        rows["warp_instructions"] += warps
        rows["thread_instructions"] += lanes
        rows["divergent_branches"] += self._diverged
        branches = [pc for pc, i in enumerate(code) if i.parts[0] == "bra"]
        rows["branches"][branches] += warps[branches]
        for pc, (kind, each) in m.flops_of.items():
            rows[kind][pc] += each * int(lanes[pc])
        for pc, access in self.plan.accesses.items():
            requests, second, third = self._counts[pc].tolist()
            op = "st" if access.write else "ld"
            if access.space == "global":
                rows[f"requests_{op}"][pc] += requests
                rows[f"sectors_{op}"][pc] += second
                rows[f"bytes_{op}"][pc] += third * access.bytes
            elif access.space == "shared":
                rows[f"shared_requests_{op}"][pc] += requests
                rows[f"wavefronts_{op}"][pc] += second
                rows[f"bank_conflicts_{op}"][pc] += second - third
