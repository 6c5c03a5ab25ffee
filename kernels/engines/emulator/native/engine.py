"""A launch in machine code: registers in rows, which NumPy's instructions use too, and the records of `plan` with their addresses.

Warps run one after the other until NumPy has to go on: at an instruction without a handler, at a barrier, at an access that is not
allowed. The results and counters are those of NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.native.library import is_available, library
from kernels.engines.emulator.native.record import (
    ALL_NOTED,
    BY_BLOCK,
    CHECK,
    COUNTS,
    ENDED,
    EPOCH,
    EXECUTED,
    EXIST,
    FIRST_TIME,
    FIRST_WARPS,
    FLOOR,
    FLOOR_AFTER,
    FLOOR_BEFORE,
    FROM,
    INFINITY,
    KIND,
    KINDS,
    LANES,
    LATEST,
    LEADER,
    LINE_BITS,
    LIVE,
    MARKED,
    MORE_READS,
    NAN,
    NEEDED,
    NEEDED_BEFORE,
    OPERANDS,
    PASSED,
    PENDING,
    QUIET,
    RACE,
    RACES,
    RACES_OF,
    ROOM,
    ROWS,
    SEVERAL,
    SPACE,
    STATE,
    STOP,
    TIME,
    TIMES,
    TURNS,
    UNTIL,
    WARPS,
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

AT_ONCE = 64  # warps that run before the time is checked
MAX_LEFT = 16  # times that a handler leaves its instruction to NumPy, which then keeps it
MAX_TURNS = 10_000  # branches back that a warp takes before others have their turn
# Bytes of a row's alignment, and between rows: those of one warp do not share lines of the processor's cache.
LINE = 128
LARGEST = 1 << 31  # bytes of a space whose offsets handlers compute
Check = Callable[[int, np.ndarray], None]  # raises an error after too long a time: of an instruction, of threads


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
    if (
        not is_available()
        or any(unit is not None for unit in units)
        or m.threads.ranks > 1
        or m.flow.may_wait_for_others
    ):
        return None
    if max(m.memory.bytes.size, m.shared.bytes.size, m.local.bytes.size) >= LARGEST:
        return None
    from kernels.engines.emulator.native.plan import Setting, plan_of  # needs LLVM

    accessed = {"shared"} if m.clusters is not None else set()
    written = {"shared"} if m.proxies is not None else set()
    races = frozenset((name, of.unit) for name, of in m.races.items())
    asynchronous = (m.async_copies, m.copies, m.proxies, m.clusters, m.register_pool)
    numpy_barriers = any(unit is not None for unit in asynchronous)
    setting = Setting(
        m.tally is not None, frozenset(accessed), frozenset(written), m.shared_arrays, races, numpy_barriers
    )
    return plan_of(m.kernel, setting)


class Native:
    """Executes what a plan has handlers for. `closures`: NumPy's, by instruction."""

    def __init__(self, m: Machine, plan: Plan, closures: Sequence[Run]):
        self.m, self.plan, self.closures, self.rows = m, plan, closures, Rows(m)
        self._kept: list[np.ndarray] = []
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
        self._rows = m.threads.warp_rows()
        parts = (self._records, self._counters, self._counters, self._issued, self._diverged, self._marks)
        self._state = np.zeros(STATE, np.int64)
        self._state[: len(parts)] = [part.ctypes.data for part in parts]
        self._state[[TURNS, ENDED, ROWS, WARPS]] = MAX_TURNS, self._ended, self._rows.ctypes.data, self._rows.shape[1]
        for n, state in enumerate(self._races.values()):
            self._state[RACES_OF + n] = state.ctypes.data
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
            if access.space == "shared":
                records[pc, ROOM] = min(records[pc, ROOM], m.shared.size - records[pc, FROM] - access.bytes)
            if access.unit:
                records[pc, RACE] = self._races[access.space].ctypes.data
        return records

    def advance(self, pending: Groups, check: Check, warned: Container[int]) -> np.ndarray | None:
        """Execute what has handlers. Threads stop where NumPy has to go on. Return those that ended, None for none. `warned`: the barriers
        of which it is known that threads ended before."""
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
        for name in self._spaces:
            self._refresh(name)
        self._set_checks(warned)
        self._set_races()
        self._state[PENDING] = bits.ctypes.data
        self._marks[:] = 0
        (self._run_blocks if self.plan.barriers else self._run_warps)(bits, lanes, check)
        self._note_races()
        pending.clear()
        for pc in np.flatnonzero(self._marks).tolist():
            here = self._counters == pc
            here &= lanes
            if here.any():
                pending[pc] = here
        self._note_stores()
        return pending.pop(self._ended, None)

    def _run_warps(self, bits: np.ndarray, lanes: np.ndarray, check: Check) -> None:
        warps = np.flatnonzero(bits)
        for start in range(0, len(warps), AT_ONCE):
            part = warps[start : start + AT_ONCE]
            library().run(self._state.ctypes.data, part.ctypes.data, len(part))
            self._check_time(part[-1], lanes, check)

    def _run_blocks(self, bits: np.ndarray, lanes: np.ndarray, check: Check) -> None:
        threads, scheduled = self.m.threads, np.zeros(self.m.blocks, bool)
        scheduled[threads.block_of[::LANES][bits != 0]] = True
        exist, live = (bits_of_lanes(of) for of in (threads.exists, self.m.live))
        self._state[[EXIST, LIVE]] = exist.ctypes.data, live.ctypes.data
        blocks, at_once = np.flatnonzero(scheduled), max(1, AT_ONCE // self._rows.shape[1])
        for start in range(0, len(blocks), at_once):
            part = blocks[start : start + at_once]
            library().run_blocks(self._state.ctypes.data, part.ctypes.data, len(part))
            self._check_time(self._rows[part[-1], 0], lanes, check)

    def _check_time(self, row: int, lanes: np.ndarray, check: Check) -> None:
        check(min(int(self._counters[row * LANES]), len(self._records) - 1), lanes)

    def _set_checks(self, warned: Container[int]) -> None:
        """Let records check what has not been found yet. `warned`: the barriers of which it is known that threads ended before."""
        nan, overflow = self.m.first_nan, self.m.overflow
        self._records[[pc for pc in self.plan.barriers if pc in warned], QUIET] = 1
        if nan is not None:
            self._records[self.plan.floats, CHECK] = NAN * nan.looks_for("NaN") | INFINITY * nan.looks_for("infinity")
        if overflow is not None:
            self._records[[pc for pc in overflow.uses if pc in self.plan.handled], CHECK] = WRAPS
            self._records[list(overflow.found), CHECK] = 0

    def _set_races(self) -> None:
        """Tell machine code what `races` knows, and a time for each access."""
        order = self.m.order
        if order is None:
            return
        first = order.now + 1
        self._records[self._raced, TIME] = np.arange(first, first + len(self._raced))
        fields = [FIRST_TIME, TIMES, FLOOR_BEFORE, FLOOR_AFTER, PASSED]
        self._state[fields] = first, len(self._raced) + 1, order.floor, np.iinfo(np.int64).max, 0
        for name, state in self._races.items():
            races = self.m.races[name]
            races.fit()
            races.settle()
            for n, kind in enumerate(races.kinds):
                arrays = (kind.who, kind.time, kind.who_before, kind.time_before)
                state[KINDS + 4 * n : KINDS + 4 * n + 4] = [array.ctypes.data for array in arrays]
                state[[LATEST + n, SEVERAL + n, NEEDED + n]] = kind.latest, kind.several, races.may_race(kind)
                state[NEEDED_BEFORE + n] = state[NEEDED + n]
            lines = self._writable.get(name)
            if lines is None or len(lines) << LINE_BITS <= races.memory.bytes.size:  # memory has grown
                lines = self._writable[name] = races.lines_that_may_be_written(1 << LINE_BITS)
            state[MARKED], state[WRITABLE] = races.was_read.ctypes.data, lines.ctypes.data
            state[[FLOOR, BY_BLOCK, EPOCH, MORE_READS]] = races.floor, races.by_block, 0, races.reads.has_others
            state[UNTIL], state[WARPS_OF_BLOCK] = order.until.ctypes.data, order.until.shape[1]
            state[WARPS_OF_ROWS], state[FIRST_WARPS] = order.warp_in_grid.ctypes.data, order.first_warp.ctypes.data

    def barrier_diverged(self) -> None:
        """Note every read from now on: threads of one block may have left its barrier by different instructions."""
        for state in self._races.values():
            state[ALL_NOTED] = 1

    def _note_races(self) -> None:
        """Keep what machine code has noted."""
        order = self.m.order
        if order is None:
            return
        passed, floor = (int(n) for n in self._state[[PASSED, FLOOR_AFTER]])
        order.pcs.extend([*self._raced, *[-1, *self._raced] * passed])
        if passed and floor <= order.now:  # else no block goes on
            order.floor = max(order.floor, floor)
        for name, state in self._races.items():
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
        rows["barriers"][self.plan.barriers] += warps[self.plan.barriers]
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
