"""mbarrier: barriers that are 64-bit words in shared memory, as cuda::barrier and cuda::pipeline use them.

A word holds the number of arrivals its phase still waits for, the number each phase expects, and the phase's parity.
The last arrival begins the next phase. CUDA does not define the layout of the word; this one is the emulator's.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.accessor import Accessor, space_of
from kernels.engines.emulator.instructions.async_copy import async_copy
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.instructions.generic_access import by_space
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine

WIDTH = 8
BITS = 20  # of a count
MAX_COUNT = (1 << BITS) - 1
PARITY = 63  # the bit of the phase's parity
_HINTS = {"b64", "shared", "shared::cta", "acquire", "release", "relaxed", "cta", "cluster"}


def _check(i: Instruction, *known: str) -> None:
    if set(i.parts[2:]) - _HINTS - set(known):
        raise Unknown(f"unknown opcode {i.opcode}")


def _word(pending: int, expected: int, parity: int) -> int:
    return pending | expected << BITS | parity << PARITY


def init(m: Machine, pc: int, i: Instruction) -> Run:
    _check(i)
    access, count = Accessor(m, pc, i.operands[0], space_of(i), WIDTH), m.reader(i.operands[1], "u32")

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=True)
        counts = m.active(count()).astype(np.uint64)
        if bad := np.flatnonzero((counts == 0) | (counts > MAX_COUNT)).tolist():
            m.fail(
                pc,
                f"an mbarrier expects 1 to {MAX_COUNT:,} arrivals, got {counts[bad[0]]}",
                m.slot_of(bad[0]),
            )
        words = counts | counts << np.uint64(BITS)
        if name == "shared" and m.races is not None:
            m.races.write(pc, offsets, WIDTH, words)
        memory.store(chosen, WIDTH, words)

    return run


def invalidate(m: Machine, pc: int, i: Instruction) -> Run:
    _check(i)
    access = Accessor(m, pc, i.operands[0], space_of(i), WIDTH)
    return lambda: access.checked(write=False) and None


def arrive(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mbarrier.arrive and mbarrier.arrive_drop: each thread's arrivals, in slot order. The result is the word
    before."""
    _check(i, "noComplete")
    state, address, *count_operand = i.operands
    count = m.reader(count_operand[0], "u32") if count_operand else lambda: np.uint32(1)
    put = m.writer(state, "b64")
    access, drop = Accessor(m, pc, address, space_of(i), WIDTH), i.parts[1] == "arrive_drop"
    return lambda: put(m.spread(_arrivals(m, access, m.active(count()), drop)))


def arrive_after_copies(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async.mbarrier.arrive: copies are done at once, and so is the arrival.

    Without .noinc the phase first expects one more arrival, so nothing changes.
    """
    access = Accessor(m, pc, i.operands[0], space_of(i), WIDTH)
    if "noinc" not in i.parts:
        return lambda: access.checked(write=False) and None

    def run() -> None:
        ones = np.ones(m.slots if m.active_mask is None else np.count_nonzero(m.active_mask), np.uint32)
        _arrivals(m, access, ones, False)

    return run


def _arrivals(m: Machine, access: Accessor, counts: np.ndarray, drop: bool) -> np.ndarray:
    """Execute arrivals of the active threads. Return the word before each. `drop`: later phases expect fewer."""
    memory, name, offsets, chosen = access.checked(write=False)
    if name == "shared" and m.races is not None:
        m.races.atomic(access.pc, offsets, WIDTH)
    words = dict(zip(chosen.tolist(), memory.load(chosen, WIDTH).tolist(), strict=True))
    before, completed = np.empty(len(chosen), np.uint64), False
    for n, (offset, count) in enumerate(zip(chosen.tolist(), counts.tolist(), strict=True)):
        word = before[n] = words[offset]
        pending, expected, parity = (word & MAX_COUNT) - count, word >> BITS & MAX_COUNT, word >> PARITY
        if pending < 0:
            message = f"{count} arrivals at an mbarrier that waits for {word & MAX_COUNT} of {expected}"
            m.fail(access.pc, message, m.slot_of(n))
        expected -= count if drop else 0
        if pending == 0:
            pending, parity, completed = expected, 1 - parity, True
        words[offset] = _word(pending, expected, parity)
    memory.store(np.array([*words], np.uint64), WIDTH, np.array([*words.values()], np.uint64))
    if completed and m.races is not None:
        m.races.barrier()
    return before


def wait(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mbarrier.test_wait and mbarrier.try_wait: whether the phase of a word or a parity has ended. If it has not,
    the thread does not wait here: its loop tries again."""
    _check(i, "parity")
    put, address, named = m.writer(i.operands[0], "pred"), i.operands[1], i.operands[2]
    parity = "parity" in i.parts
    phase = m.reader(named, "u32" if parity else "u64")
    access = Accessor(m, pc, address, space_of(i), WIDTH)

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=False)
        if name == "shared" and m.races is not None:
            m.races.atomic(pc, offsets, WIDTH)
        parity_now = memory.load(chosen, WIDTH) >> np.uint64(PARITY)
        named_parity = m.active(phase()).astype(np.uint64)
        named_parity = named_parity & np.uint64(1) if parity else named_parity >> np.uint64(PARITY)
        put(m.spread(parity_now != named_parity))

    return run


def pending(m: Machine, pc: int, i: Instruction) -> Run:
    put, state = m.writer(i.operands[0], "u32"), m.reader(i.operands[1], "u64")
    return lambda: put((state() & np.uint64(MAX_COUNT)).astype(np.uint32))


def copy(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async: a copy, or the arrival after copies."""
    build = by_space(arrive_after_copies) if "mbarrier" in i.parts else async_copy
    return build(m, pc, i)


_FORMS = {
    "init": init, "inval": invalidate, "arrive": arrive, "arrive_drop": arrive, "test_wait": wait, "try_wait": wait,
}  # fmt: skip
BUILDERS = {
    **{f"mbarrier.{name}": by_space(build) for name, build in _FORMS.items()},
    "mbarrier.pending_count": pending,
    "cp.async": copy,
}
