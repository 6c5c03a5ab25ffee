"""Loads and stores of a watched launch whose active threads access one array, or one place in the memory of each thread.

Others, and all that are not allowed, are left to instructions.memory_access. Nothing is counted here, and no races are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernels.engines.emulator.instructions.accessor import operands_of, space_of
from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.memory import WINDOWS, indices
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED
from kernels.engines.emulator.ptx.kernel import type_bytes
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.watch.arrays import Array
from kernels.engines.emulator.watch.trace import WatchTrace


def access(m: Machine, trace: WatchTrace, pc: int, closures: Sequence[Run]) -> Run | None:
    """Returns the closure of a load or store; None of another instruction, and if something other than the trace looks at accesses."""
    i = m.kernel.code[pc]
    looking = (m.tally, m.races, m.links, m.proxies, m.clusters, m.first_nan, m.overflow, m.products)
    if i.parts[0] not in ("ld", "st") or i.guard is not None or any(looking):
        return None
    memory = operands_of(i)[i.parts[0] == "ld"]
    space = space_of(i)
    if memory.kind != "mem" or space not in ("generic", "global", "local"):
        return None
    if memory.root.kind == "reg" and type_bytes(m.type_of(memory.root.name)) != 8:
        return None
    return _Access(m, trace, pc, closures).run


class _Access:
    def __init__(self, m: Machine, trace: WatchTrace, pc: int, closures: Sequence[Run]):
        i = m.kernel.code[pc]
        self.m, self.trace, self.pc, self.plain = m, trace, pc, closures[pc]
        self.write, type_ = i.parts[0] == "st", i.parts[-1]
        first, second = operands_of(i)
        memory, values = (first, second) if self.write else (second, first)
        self.width, self.dtype = type_bytes(type_), DTYPES[type_]
        self.bits, self.shift = UNSIGNED[self.width], np.uint64(self.width.bit_length() - 1)
        self.base, self.offset = m.reader(memory.root, "u64"), memory.offset
        self.values: Sequence[Callable] = [(m.reader if self.write else m.writer)(o, type_) for o in values.elements]
        self.window = WINDOWS["local"] if space_of(i) != "local" else 0
        self.first, self.stop = (m.arrays.ranges(memory) or [(0, 1 << 64)])[0]
        self.bytes = self.width * len(self.values)
        self.array: Array | None = None  # the last one

    def run(self) -> None:
        m, group, address = self.m, self.trace.group, self.base()
        if m.active_mask is not None and m.active_mask is not self.trace.here:
            self.plain()
        elif address.ndim == 0:
            low = int(address) + self.offset
            if not self._in_local(low):
                self._in_array(np.full(group.count, address), low, low)
        else:
            active = address if group.index is None else address.take(group.index)
            low, high = int(np.minimum.reduce(active)) + self.offset, int(np.maximum.reduce(active)) + self.offset
            if low != high or not self._in_local(low):
                self._in_array(active, low, high)

    def _in_local(self, address: int) -> bool:
        """Access one place in the memory of each thread. Returns whether the address is one."""
        m, trace, at = self.m, self.trace, address - self.window
        if at % self.width or not 0 <= at <= m.local.size - self.bytes or not m.kernel.debug:
            return False
        for value in self.values:
            column = m.local.column(at, self.width)
            if not self.write:
                value(column.copy().view(self.dtype))
            else:
                m.local.writes += 1
                if m.active_mask is None:
                    column[:] = value().view(self.bits)
                else:
                    np.copyto(column, value().view(self.bits), where=m.active_mask)
            if trace.group.slots.size and trace.recorder.numbers_in(self.pc, at, self.width):
                trace.local(self.pc, at, self.width, self.write)
            at += self.width
        return True

    def _in_array(self, active: np.ndarray, low: int, high: int) -> None:
        """Access addresses from `low` to `high`, those of the active threads after an offset."""
        m, group, array = self.m, self.trace.group, self.array
        if array is None or not array.start <= low <= high <= array.stop - self.bytes:
            array = self.array = next(
                (a for a in self.trace.arrays if a.start <= low <= high <= a.stop - self.bytes), None
            )
        if array is None or (
            array.shared and not self.first <= low - array.base <= high - array.base <= self.stop - self.bytes
        ):
            self.plain()
            return
        inside = at = active + np.uint64((self.offset - array.base) % (1 << 64))
        if array.shared and m.blocks > 1:
            at = inside + (m.shared_base if group.index is None else m.shared_base.take(group.index))
        if np.bitwise_or.reduce(at) & np.uint64(self.bytes - 1) or not array.allows(at, self.bytes, self.write):
            self.plain()
            return
        places, space = indices(at >> self.shift), array.space
        for n, value in enumerate(self.values):
            element = places + n if n else places
            if self.write:
                bits = (
                    m.active(value()).view(self.bits)
                    if group.index is None
                    else _chosen(value(), group.index).view(self.bits)
                )
                array.store(element, self.width, bits)
            else:
                bits = space.of_width(self.width).take(element)
            if group.slots.size:
                seen, among = indices(inside), group.among
                if among.size != bits.size:
                    seen, bits_seen = seen.take(among), bits.take(among)
                else:
                    bits_seen = bits
                self.trace.note(
                    array.region, array.space.name, seen + n * self.width if n else seen, group.ranks if array.shared else 0, group.threads,
                    bits_seen, self.dtype, self.write,
                )  # fmt: skip
            if not self.write:
                value(_in_slots(bits, group.index, m.slots).view(self.dtype))


def _in_slots(values: np.ndarray, index: np.ndarray | None, slots: int) -> np.ndarray:
    if index is None:
        return values
    out = np.zeros(slots, values.dtype)
    out[index] = values
    return out


def _chosen(value: np.ndarray, index: np.ndarray) -> np.ndarray:
    return value.take(index) if value.ndim else np.full(index.size, value)
