"""cp.async: copies from global to shared memory, their groups, and waits for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.engines.emulator.instructions.accessor import Accessor, operands_of
from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.memory import Fault
from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine, needed


def async_copy(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async. Its optional last operand is the number of bytes to read, or a predicate that none is; the rest of a copy is
    zeros."""
    copies = needed(m.async_copies)
    if "commit_group" in i.parts:
        return copies.commit
    if {"wait_group", "wait_all"} & set(i.parts):
        pending = i.operands[0].number if i.operands else None
        return lambda: copies.wait(pending)
    target, origin, count, *size_operand = operands_of(i)
    size = count.number
    to = Accessor(m, pc, target, "shared", size)
    source = Accessor(m, pc, origin, "global", size)
    read_bytes = _bytes_to_read(m, size_operand[0], size) if size_operand else None
    unit = min(size, 8)

    def run() -> None:
        _, _, offsets, target = to.checked(write=True)
        count = None
        if read_bytes is None:
            memory, _, from_, chosen = source.checked(write=False)
            source.count("ld", "global", from_)
            steps = (memory.load(chosen + np.uint64(n), unit) for n in range(0, size, unit))
            data = np.stack(list(steps), axis=-1)
        else:
            count = m.active(read_bytes())
            data = _read_some(m, count, source, size).view(UNSIGNED[unit])
        to.count("st", "shared", offsets)
        if (races := m.races.get("shared")) is not None:
            races.write(pc, offsets, size, data)
        if m.trace is not None:
            _, name, from_ = source.locate()
            m.trace.copied(pc, name, np.broadcast_to(from_, m.slots), offsets, data.view(np.uint32), count)
        copies.begin(pc, target, data)

    return run


def _bytes_to_read(m: Machine, o: Operand, size: int) -> Callable[[], np.ndarray]:
    if o.kind != "not" and m.kernel.registers.get(str(o.value)) != "pred":
        return m.reader(o, "u32")
    ignored = m.reader(o, "pred")
    return lambda: np.where(ignored(), np.uint32(0), np.uint32(size))


def _read_some(m: Machine, count: np.ndarray, source: Accessor, size: int) -> np.ndarray:
    """Returns uint8 [active, size]: the first `count` bytes of each active thread's source, then zeros. No byte beyond
    `count` is read."""
    data = np.zeros((len(count), size), np.uint8)
    memory, name, offsets = source.locate()
    offsets = np.broadcast_to(offsets, m.slots)
    chosen = m.active(offsets)
    skew = np.flatnonzero((chosen % np.uint64(size) != 0) & (count > 0))
    if skew.size:
        message = f"misaligned read of {size} bytes {memory.describe(int(chosen[skew[0]]))}"
        m.fail(source.pc, message, m.slot_of(int(skew[0])))
    pieces = [(n, 4, count >= n + 4) for n in range(0, size, 4)]
    pieces += [(n, 1, (count > n) & (count - count % 4 <= n)) for n in range(size)]
    for n, width, readable in pieces:
        if readable.any():
            at = chosen[readable] + np.uint64(n)
            try:
                memory.check(at, width, write=False)
            except Fault as fault:
                m.fail(source.pc, fault.description, m.slot_of(int(np.flatnonzero(readable)[fault.index])))
            data[readable, n : n + width] = memory.load(at, width)[:, None].view(np.uint8)
    if (count > 0).any():
        with m.only(m.spread(count > 0).astype(bool)):
            source.count("ld", name, offsets)
    return data
