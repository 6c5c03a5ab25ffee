"""The memory operand of an instruction: its addresses, checked, counted and reported to the race detector."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.errors import UnwrittenRead
from kernels.engines.emulator.memory import GLOBAL_BASE, WINDOWS, Fault, Space, Unwritten, space_at
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Inner, Machine, needed

SPACES = ("global", "shared", "local", "const", "param")


def space_of(i: Instruction) -> str:
    """Returns the state space that an access names; "generic" if its addresses decide."""
    for part in i.parts[1:]:
        name = part.partition("::")[0]
        if name in SPACES:
            return name
    return "generic"


def operands_of(i: Instruction) -> tuple[Operand, ...]:
    """Returns the operands without a cache hint, which may be the last."""
    return i.operands[:-1] if "L2::cache_hint" in i.parts else i.operands


class Accessor:
    """One memory operand: the offsets of its bytes for every active thread, in the space it addresses."""

    def __init__(self, m: Machine, pc: int, operand: Operand, space: str, width: int):
        self.m, self.pc, self.space, self.width = m, pc, space, width
        parts = m.kernel.code[pc].parts
        self._remote = m.clusters is not None and ("shared::cluster" in parts or space == "generic")
        base = operand.root if operand.kind == "mem" else operand
        self._short = _is_32_bit(m, base)
        self._base = m.reader(base, "u32" if self._short else "u64")
        self._offset = operand.offset
        self._operand, self._ranges = operand, [] if self._remote else m.arrays.ranges(operand)

    def locate(self, inside: np.ndarray | None = None) -> tuple[Space, str, np.ndarray]:
        """Returns (space, its name, byte offsets into it as uint64: scalar or one a slot). `inside`: bytes to add to
        each slot's address."""
        m, address = self.m, self._base().astype(np.uint64) + np.uint64(self._offset % (1 << 64))
        if inside is not None:
            address = address + inside
        name = self.space
        if name == "generic":
            name = space_at(int(address if address.ndim == 0 else m.active(address)[0]))
            if name in WINDOWS:
                address = address - np.uint64(WINDOWS[name])
        if name in ("global", "const"):
            return m.memory, name, address - np.uint64(GLOBAL_BASE)
        space, base = m.space(name)
        if name == "shared" and self._remote:
            address, base = needed(m.clusters).resolve(self.pc, address, base)
        limit = np.uint64(max(space.size - self.width, 0))
        if self._short and address.max() > limit:
            # A register below the address and a positive offset wrap at 32 bits.
            address = address & np.uint64(0xFFFFFFFF)
        if name == "shared" and self._ranges:
            self._check_arrays(address)
        if address.max() > limit:
            self._fail_outside(space, address, limit)
        return space, name, address + base

    def _check_arrays(self, address: np.ndarray) -> None:
        """Raise EmulatorError if an active lane leaves the arrays that its address is made of."""
        if address.min() >= self._ranges[0][0] and address.max() + self.width <= self._ranges[0][1]:
            return
        active = self.m.active(address)
        inside = [(active >= start) & (active + self.width <= stop) for start, stop in self._ranges]
        bad = np.flatnonzero(~np.logical_or.reduce(inside))
        if bad.size:
            where = self.m.beside_arrays(self._operand, int(active[bad[0]]))
            message = f"out-of-bounds access of {self.width} bytes {where}"
            self.m.fail(self.pc, message, self.m.slot_of(int(bad[0])))

    def _fail_outside(self, space: Inner, address: np.ndarray, limit) -> None:
        """Raise EmulatorError if an active lane is beyond the block's memory. Idle lanes may hold any address."""
        active = self.m.active(address)
        bad = np.flatnonzero(active > limit) if space.size >= self.width else np.zeros(1, int)
        if bad.size:
            message = (
                f"out-of-bounds access of {self.width} bytes {space.describe(int(active[bad[0]]) % max(space.size, 1))}"
            )
            if space.size:
                message = f"out-of-bounds access of {self.width} bytes at byte {int(active[bad[0]])} of the block's {space.size} bytes of {space.name} memory"
            self.m.fail(self.pc, message, self.m.slot_of(int(bad[0])))

    def checked(self, write: bool, inside: np.ndarray | None = None) -> tuple[Space, str, np.ndarray, np.ndarray]:
        """Locate and check the offsets of the active threads. Return (space, name, all offsets, active ones)."""
        space, name, offsets = self.locate(inside)
        m = self.m
        if offsets.ndim == 0:
            offsets = np.full(m.slots, offsets) if write or name != "const" else offsets[None]
        chosen = offsets if m.active_mask is None or len(offsets) == 1 else offsets[m.active_mask]
        width = self.width
        if name == "local" and m.kernel.debug:  # a variable is aligned for its own type, and read as a vector
            width //= m.kernel.code[self.pc].elements
        try:
            space.check(chosen, width, write)
        except Unwritten as fault:
            m.fail(self.pc, fault.description, m.slot_of(fault.index), kind=UnwrittenRead)
        except Fault as fault:
            m.fail(self.pc, fault.description, m.slot_of(fault.index))
        if write and name == "shared" and m.proxies is not None:
            m.proxies.wrote(chosen)
        if m.links is not None and name == "global":
            m.links.access(chosen, self.width, write)
        return space, name, offsets, chosen

    def count(self, op: str, name: str, offsets: np.ndarray) -> None:
        """Report an access by the active threads to the tally and the trace, and a read to the race detector."""
        m = self.m
        if op == "ld" and (races := m.races.get(name)) is not None:
            races.read(self.pc, offsets, self.width)
        if m.tally is None or name not in ("global", "shared"):
            return
        active = None if m.active_mask is None else m.active_mask.reshape(-1, 32)
        lines, width = offsets.reshape(-1, 32), self.width
        if name == "global":
            m.tally.global_access(self.pc, op, lines, active, width)
        else:
            width = m.merged.get(self.pc, width) if op == "ld" else width
            if not width:  # it is part of another instruction's access
                return
            lines = lines & np.uint64(~(width - 1) % (1 << 64))
            m.tally.shared_access(self.pc, op, lines, self._inside_own_block(lines, active), width)
        if m.trace is not None:
            m.trace.request(name, op, lines, active, width)

    def _inside_own_block(self, lines: np.ndarray, active: np.ndarray | None) -> np.ndarray | None:
        """Returns which active lanes access their own block's shared memory, as `active` of Tally.shared_access. The
        counters of an H200 leave out those that access another block of the cluster."""
        if not self._remote:
            return active
        own = lines // np.uint64(self.m.shared.size) == self.m.block_of.reshape(-1, 32).astype(np.uint64)
        return own if active is None else own & active


def _is_32_bit(m: Machine, base: Operand) -> bool:
    return base.kind == "reg" and m.type_of(base.name) in ("b32", "u32", "s32")
