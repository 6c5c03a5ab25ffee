"""mbarrier: barriers that are 64-bit words in shared memory, as cuda::barrier, cuda::pipeline and bulk copies use them.

A phase waits for arrivals of threads and for bytes of copies (`phases`). The last of them begins the next phase.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.engines.emulator.instructions.accessor import Accessor, space_of
from kernels.engines.emulator.instructions.async_copy import async_copy
from kernels.engines.emulator.instructions.bulk import bulk
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.instructions.generic_access import by_space
from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.phases import MAX_COUNT, PARITY, WIDTH, Phase, phase_at
from kernels.engines.emulator.ptx.kernel import Instruction, type_bytes
from kernels.engines.emulator.state import Machine, mbarrier_key, needed

_HINTS = {"b64", "shared", "shared::cta", "shared::cluster", "acquire", "release", "relaxed", "cta", "cluster"}


def _check(i: Instruction, *known: str) -> None:
    if set(i.parts[2:]) - _HINTS - set(known):
        raise Unknown(f"unknown opcode {i.opcode}")


def init(m: Machine, pc: int, i: Instruction) -> Run:
    _check(i)
    access, count = Accessor(m, pc, i.operands[0], space_of(i), WIDTH), m.reader(i.operands[1], "u32")

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=True)
        counts = m.active(count()).astype(np.uint64)
        if bad := np.flatnonzero((counts == 0) | (counts > MAX_COUNT)).tolist():
            m.fail(pc, f"an mbarrier expects 1 to {MAX_COUNT:,} arrivals, got {counts[bad[0]]}", m.slot_of(bad[0]))
        words = np.array([Phase(n, n, 0, 0).word for n in counts.tolist()], np.uint64)
        if (races := m.races.get(name)) is not None:
            races.write(pc, offsets, WIDTH, words)
        memory.store(chosen, WIDTH, words)

    return run


def invalidate(m: Machine, pc: int, i: Instruction) -> Run:
    _check(i)
    access = Accessor(m, pc, i.operands[0], space_of(i), WIDTH)
    return lambda: access.checked(write=False) and None


def arrive(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mbarrier.arrive and mbarrier.arrive_drop: each thread's arrivals, in slot order. The result is the word
    before. With expect_tx, each thread arrives once and the phase waits for its bytes too."""
    _check(i, "noComplete", "expect_tx")
    state, address, *count_operand = i.operands
    number = m.reader(count_operand[0], "u32") if count_operand else lambda: np.uint32(1)
    put = m.writer(state, "b64")
    access, drop = Accessor(m, pc, address, space_of(i), WIDTH), i.parts[1] == "arrive_drop"
    if "expect_tx" not in i.parts:
        return lambda: put(m.spread(_arrivals(m, access, m.active(number()), drop)))
    one = np.uint32(1)
    return lambda: put(m.spread(_arrivals(m, access, m.active(one), drop, m.active(number()))))


def expect(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mbarrier.expect_tx and mbarrier.complete_tx: the phase waits for more bytes, or for fewer."""
    _check(i)
    access, count = Accessor(m, pc, i.operands[0], space_of(i), WIDTH), m.reader(i.operands[1], "u32")
    sign = 1 if i.parts[1] == "expect_tx" else -1
    none = np.uint32(0)

    def run() -> None:
        _arrivals(m, access, m.active(none), drop=False, nbytes=sign * m.active(count()).astype(np.int64))

    return run


def arrive_after_copies(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async.mbarrier.arrive: an arrival once the thread's copies are done, which are done when a thread waits for the phase.

    Without .noinc the phase first expects one more arrival, so its counts do not change.
    """
    access = Accessor(m, pc, i.operands[0], space_of(i), WIDTH)
    copies, arrives = m.async_copies, "noinc" in i.parts

    def run() -> None:
        chosen = access.checked(write=False)[3]
        if copies is not None:
            copies.arrive(chosen)
        if arrives:
            _arrivals(m, access, np.ones(len(chosen), np.uint32), drop=False)

    return run


def _keys(offsets: np.ndarray) -> np.ndarray:
    return np.array([mbarrier_key(offset) for offset in offsets.tolist()], np.int64)


def _arrivals(
    m: Machine, access: Accessor, counts: np.ndarray, drop: bool, nbytes: np.ndarray | None = None
) -> np.ndarray:
    """Execute arrivals of the active threads, each after it expects `nbytes` more of copies. Return the word before
    each. `drop`: later phases expect fewer."""
    memory, name, offsets, chosen = access.checked(write=False)
    if (races := m.races.get(name)) is not None:
        races.update(access.pc, offsets, WIDTH)
        if "relaxed" not in m.kernel.code[access.pc].parts:
            arrives = counts > 0 if nbytes is None else (counts > 0) | (nbytes < 0)
            needed(m.order).arrive(_keys(chosen[arrives]), m.active_slots()[arrives])
    words = dict(zip(chosen.tolist(), memory.load(chosen, WIDTH).tolist(), strict=True))
    before, ended = np.empty(len(chosen), np.uint64), []
    more = np.zeros(len(chosen), np.int64) if nbytes is None else nbytes
    for n, (offset, count, of_copies) in enumerate(zip(chosen.tolist(), counts.tolist(), more.tolist(), strict=True)):
        before[n] = words[offset]
        phase = Phase.of(words[offset])
        if phase.pending < count:
            message = f"{count} arrivals at an mbarrier that waits for {phase.pending} of {phase.expected}"
            m.fail(access.pc, message, m.slot_of(n))
        if of_copies < 0 and any(offset == of_ended for of_ended, _ in ended):
            m.fail(access.pc, "the phase of this mbarrier expected fewer bytes than this store writes", m.slot_of(n))
        phase.bytes += of_copies
        if abs(phase.bytes) > MAX_COUNT:
            m.fail(access.pc, f"an mbarrier expects at most {MAX_COUNT:,} bytes, got {phase.bytes:,}", m.slot_of(n))
        phase.pending -= count
        phase.expected -= count if drop else 0
        if phase.ends():
            ended.append((offset, 1 - phase.parity))
        words[offset] = phase.word
    memory.store(np.array([*words], np.uint64), WIDTH, np.array([*words.values()], np.uint64))
    for offset, _ in ended:
        m.phase_ended(mbarrier_key(offset))
    if m.trace is not None and name == "shared":
        m.trace.events.arrivals(access.pc, chosen.tolist(), counts.tolist(), more.tolist(), ended)
    return before


def wait(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mbarrier.test_wait and mbarrier.try_wait: whether the phase of a word or a parity has ended. If it has not,
    a thread waits at try_wait (`waits`). At test_wait it continues, and its loop tests again. The closure returns whether
    the phase has ended."""
    _check(i, "parity")
    put, address, named = m.writer(i.operands[0], "pred"), i.operands[1], i.operands[2]
    parity = "parity" in i.parts
    phase = m.reader(named, "u32" if parity else "u64")
    access = Accessor(m, pc, address, space_of(i), WIDTH)

    def run() -> np.ndarray:
        memory, name, offsets, chosen = access.checked(write=False)
        if (races := m.races.get(name)) is not None:
            races.update(pc, offsets, WIDTH)
        parity_now = memory.load(chosen, WIDTH) >> np.uint64(PARITY)
        named_parity = m.active(phase()).astype(np.uint64)
        named_parity = named_parity & np.uint64(1) if parity else named_parity >> np.uint64(PARITY)
        ended = parity_now != named_parity
        if m.async_copies is not None and name == "shared":
            m.async_copies.phases_ended(chosen[ended])
        if m.order is not None and "relaxed" not in i.parts:
            m.order.waited(_keys(chosen[ended]), m.active_slots()[ended])
        if m.trace is not None and name == "shared":
            m.trace.events.waits(pc, ended, chosen, named_parity)
        ended = m.spread(ended)
        put(ended)
        return ended

    return run


def reason(m: Machine, pc: int, i: Instruction) -> Callable[[int], str]:
    """Returns a function that describes what a slot's thread waits for at mbarrier.try_wait."""
    access = Accessor(m, pc, i.operands[1], space_of(i), WIDTH)

    def why(slot: int) -> str:
        only = np.zeros(m.slots, bool)
        only[slot] = True
        m.enter(only)
        offset = int(np.broadcast_to(access.locate()[2], m.slots)[slot])
        phase = phase_at(m, offset)
        return f"the mbarrier {m.shared.describe(offset)} waits for {phase.missing()}"

    return why


def store_and_report(m: Machine, pc: int, i: Instruction) -> Run:
    """Build st.async: a store to the cluster's shared memory that reports its bytes to an mbarrier beside it. It is done at
    once."""
    _check(i, "weak", "mbarrier::complete_tx::bytes", "v2", "v4", i.parts[-1])
    target, source, barrier = i.operands
    type_, sources = i.parts[-1], source.elements
    width = type_bytes(type_)
    nbytes = width * len(sources)
    access, reads = Accessor(m, pc, target, "shared", nbytes), [m.reader(s, type_) for s in sources]
    to, none = Accessor(m, pc, barrier, "shared", WIDTH), np.uint32(0)

    def run() -> None:
        memory, _, offsets, chosen = access.checked(write=True)
        values = [m.active(read()).view(UNSIGNED[width]) for read in reads]
        if (races := m.races.get("shared")) is not None:
            races.write(pc, offsets, nbytes, np.stack(values, axis=-1))
        for n, value in enumerate(values):
            memory.store(chosen + np.uint64(n * width), width, value)
        _arrivals(m, to, m.active(none), drop=False, nbytes=np.full(len(chosen), -nbytes))

    return run


def pending(m: Machine, pc: int, i: Instruction) -> Run:
    put, state = m.writer(i.operands[0], "u32"), m.reader(i.operands[1], "u64")
    return lambda: put((state() & np.uint64(MAX_COUNT)).astype(np.uint32))


def copy(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async: a copy, a bulk copy, or the arrival after copies."""
    if "bulk" in i.parts:
        return bulk(m, pc, i)
    build = by_space(arrive_after_copies) if "mbarrier" in i.parts else async_copy
    return build(m, pc, i)


_FORMS = {
    "init": init,
    "inval": invalidate,
    "arrive": arrive,
    "arrive_drop": arrive,
    "test_wait": wait,
    "try_wait": wait,
    "expect_tx": expect,
    "complete_tx": expect,
}
BUILDERS = {
    **{f"mbarrier.{name}": by_space(build) for name, build in _FORMS.items() if name != "try_wait"},
    "mbarrier.try_wait": wait,
    "mbarrier.pending_count": pending,
    "st.async": store_and_report,
    "cp.async": copy,
}
