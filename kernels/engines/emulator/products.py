"""wgmma products that are under way: their accumulators, the shared memory that they read, and their groups.

A product is computed when it is issued. Until a wait for its group, a thread must not touch its accumulators, and
nothing may overwrite the matrices that it reads. Both are errors here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.ptx.registers import names, read, written
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

_NONE = -1


@dataclass
class _Reading:
    """Shared memory that a product reads: units of 16 bytes, the row of one of its warps, its group, its line."""

    units: np.ndarray
    row: int
    group: int
    line: str


class Products:
    """The products of a launch. A warp's row is its index among the slots' rows of 32."""

    def __init__(self, m: Machine):
        self.m = m
        rows = m.slots // LANES
        self.group = np.zeros(rows, np.int64)  # the group that a warp's next product belongs to
        self.done = np.zeros(rows, np.int64)  # groups before this one have ended
        self._fenced = np.zeros(rows, bool)
        products = [i for i in m.kernel.code if is_product(i)]
        self._accumulators = {name for i in products for name in names(i.operands[0])}
        self._sources = {n for i in products if i.operands[1].kind == "vector" for n in names(i.operands[1])}
        tracked = self._accumulators | self._sources
        self._row_of = {name: n for n, name in enumerate(sorted(tracked))}  # of the next two arrays
        self._of_group = np.full((len(tracked), rows), _NONE)  # the last product that uses a register
        self._changed = np.zeros((len(tracked), rows), bool)  # since the warp's last wgmma.fence
        self._reading: list[_Reading] = []

    # -- groups ------------------------------------------------------------------------------------
    def fence(self) -> None:
        rows = self._rows()
        self._fenced[rows] = True
        self._changed[:, rows] = False

    def commit(self) -> None:
        self.group[self._rows()] += 1

    def wait(self, pending: int) -> None:
        """The active warps wait until at most `pending` of their groups are under way."""
        rows = self._rows()
        self.done[rows] = np.maximum(self.done[rows], self.group[rows] - pending)
        self._reading = [r for r in self._reading if r.group >= self.done[r.row]]

    def registers_of(self, i: Instruction) -> np.ndarray:
        """Returns the numbers of a product's registers, as `issue` needs them."""
        found = names(i.operands[0]) | (names(i.operands[1]) if i.operands[1].kind == "vector" else set())
        return np.array([self._row_of[name] for name in sorted(found)])

    def issue(self, pc: int, registers: np.ndarray, rows: np.ndarray) -> None:
        """Note a product of the warps in these rows. EmulatorError if a wgmma.fence is missing before it."""
        at = np.ix_(registers, rows)
        bad = ~self._fenced[rows] | self._changed[at].any(axis=0)
        if bad.any() and not self.m.kernel.debug:
            slot = int(rows[np.flatnonzero(bad)[0]]) * LANES
            message = "no wgmma.fence is between this product and the threads' last access to its registers"
            self._fail(pc, message, slot)
        self._of_group[at] = self.group[rows]

    def reads(self, pc: int, units: np.ndarray, row: int) -> None:
        """Note that a warp's product reads units of 16 bytes of shared memory."""
        self._reading.append(_Reading(units, row, int(self.group[row]), str(self.m.kernel.code[pc].line)))

    def check_overwritten(self, pc: int, offsets: np.ndarray, slot: int) -> None:
        """Raise EmulatorError if a copy is to overwrite bytes that a product under way reads."""
        units = offsets.reshape(-1) >> np.uint64(4)
        for r in self._reading:
            if np.isin(units, r.units).any():
                message = f"this copy overwrites shared memory that the product at {r.line} still reads: no wait for its group"
                self._fail(pc, message, slot)

    # -- registers ---------------------------------------------------------------------------------
    def checked(self, pc: int, i: Instruction, run: Callable) -> Callable:
        """Returns the closure of an instruction, which first checks that it touches no register of a product under
        way. A product itself may use the accumulators of the one before. In a build for watching, variables are copied at any time."""
        if i.parts[0] == "wgmma" or self.m.kernel.debug:
            return run
        changes = sorted(written(i) & self._row_of.keys())
        touches = sorted((read(i) & self._accumulators) | set(changes))
        if not touches:
            return run
        touches, changes = ([self._row_of[name] for name in found] for found in (touches, changes))

        def checked() -> object:
            rows = self._rows()
            self._check(pc, touches, rows)
            for register in changes:
                self._changed[register, rows] = True
            return run()

        return checked

    def _check(self, pc: int, touched: Iterable[int], rows) -> None:
        done = self.done[rows]
        for register in touched:
            of_group = self._of_group[register, rows]
            bad = (of_group >= done) & (of_group >= 0)
            if bad.any():
                bad, all_rows = np.flatnonzero(bad), np.arange(len(self.group))[rows]
                message = (
                    "this touches a register of a wgmma product that may still run: no wgmma.wait_group for its group"
                )
                self._fail(pc, message, int(all_rows[bad[0]]) * LANES)

    def _rows(self):
        return slice(None) if self.m.active_mask is None else self.m.active_rows()

    def _fail(self, pc: int, message: str, slot: int) -> None:
        self.m.fail(pc, f"{message} (warp {int(self.m.thread_of[slot]) // LANES})", slot)


def is_product(i: Instruction) -> bool:
    return i.parts[:2] == ["wgmma", "mma_async"]
