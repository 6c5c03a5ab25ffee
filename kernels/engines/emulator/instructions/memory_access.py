"""Loads, stores, atomics and asynchronous copies. Each access is checked and counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernels.engines.emulator import operations
from kernels.engines.emulator.instructions import compare_and_swap
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.memory import GLOBAL_BASE, WINDOWS, Fault, Space, space_at
from kernels.engines.emulator.operations import DTYPES, UNSIGNED
from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.state import Machine

# Accesses that may overlap another thread's, as atomics may: PTX ISA, "Morally strong operations".
STRONG = {"relaxed", "acquire", "release", "mmio"}
ACQUIRES = {"acquire", "acq_rel"}
SPACES = ("global", "shared", "local", "const", "param")


def space_of(i: Instruction) -> str:
    """Return the state space that an access names; "generic" if its addresses decide."""
    for part in i.parts[1:]:
        name = part.partition("::")[0]
        if name in SPACES:
            return name
    return "generic"


def _vector(i: Instruction) -> int:
    return next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)


def _operands(i: Instruction) -> tuple[Operand, ...]:
    """Return the operands without a cache hint, which may be the last."""
    return i.operands[:-1] if "L2::cache_hint" in i.parts else i.operands


class Accessor:
    """One memory operand: the offsets of its bytes for every active thread, in the space it addresses."""

    def __init__(self, m: Machine, pc: int, operand: Operand, space: str, width: int):
        self.m, self.pc, self.space, self.width = m, pc, space, width
        parts = m.kernel.code[pc].parts
        self._strong, self._acquires = (not qualifiers.isdisjoint(parts) for qualifiers in (STRONG, ACQUIRES))
        base = operand.base if operand.kind == "mem" else operand
        self._short = _is_32_bit(m, base)
        self._base = m.reader(base, "u32" if self._short else "u64")
        self._offset = operand.offset

    def locate(self, inside: np.ndarray | None = None) -> tuple[Space, str, np.ndarray]:
        """Return (space, its name, byte offsets into it as uint64: scalar or one a slot). `inside`: bytes to add to
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
        limit = np.uint64(max(space.size - self.width, 0))
        if self._short and address.max() > limit:
            # A register below the address and a positive offset wrap at 32 bits.
            address = address & np.uint64(0xFFFFFFFF)
        if address.max() > limit:
            self._fail_outside(space, address, limit)
        return space, name, address + base

    def _fail_outside(self, space: Space, address: np.ndarray, limit) -> None:
        """Raise EmulatorError if an active lane is beyond the block's memory. Idle lanes may hold any address."""
        active = self.m.active(address)
        bad = np.flatnonzero(active > limit) if space.size >= self.width else np.zeros(1, int)
        if bad.size:
            message = f"out-of-bounds access of {self.width} bytes {space.describe(int(active[bad[0]]) % max(space.size, 1))}"
            if space.size:
                message = f"out-of-bounds access of {self.width} bytes at byte {int(active[bad[0]])} of the block's {space.size} bytes of {space.name} memory"
            self.m.fail(self.pc, message, self.m.slot_of(int(bad[0])))

    def checked(
        self, write: bool, inside: np.ndarray | None = None
    ) -> tuple[Space, str, np.ndarray, np.ndarray]:
        """Locate and check the offsets of the active threads. Return (space, name, all offsets, active ones)."""
        space, name, offsets = self.locate(inside)
        m = self.m
        if offsets.ndim == 0:
            offsets = np.full(m.slots, offsets) if write or name != "const" else offsets[None]
        chosen = offsets if m.am is None or len(offsets) == 1 else offsets[m.am]
        try:
            space.check(chosen, self.width, write)
        except Fault as fault:
            m.fail(self.pc, fault.description, m.slot_of(fault.index))
        return space, name, offsets, chosen

    def acquired(self) -> None:
        """Report to the race detector that earlier releases of other threads are ordered, if this access acquires."""
        if self._acquires and self.m.races is not None:
            self.m.races.barrier()

    def report_write(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """Report a write to shared memory to the race detector. `values`: of the active threads, [active, elements]."""
        if self._strong:
            self.m.races.atomic(self.pc, offsets, self.width)
        else:
            self.m.races.write(self.pc, offsets, self.width, values)

    def count(self, op: str, name: str, offsets: np.ndarray) -> None:
        """Report an access by the active threads to the tally and the trace, and a read to the race detector."""
        m = self.m
        if op == "ld" and name == "shared" and m.races is not None:
            (m.races.atomic if self._strong else m.races.read)(self.pc, offsets, self.width)
        if m.tally is None or name not in ("global", "shared"):
            return
        active = None if m.am is None else m.am.reshape(-1, 32)
        lines, width = offsets.reshape(-1, 32), self.width
        if name == "global":
            m.tally.global_access(self.pc, op, lines, active, width)
        else:
            width = m.merged.get(self.pc, width) if op == "ld" else width
            if not width:  # it is part of another instruction's access
                return
            lines = lines & np.uint64(~(width - 1) % (1 << 64))
            m.tally.shared_access(self.pc, op, lines, active, width)
        if m.trace is not None:
            m.trace.request(name, op, lines, active, width)


def _is_32_bit(m: Machine, base: Operand) -> bool:
    return base.kind == "reg" and m.type_of(base.value) in ("b32", "u32", "s32")


def load(m: Machine, pc: int, i: Instruction) -> Run:
    """Build ld and ldu: from any space, also vectors; narrow types are extended."""
    space, type_, count = space_of(i), i.parts[-1], _vector(i)
    target, source = _operands(i)
    targets = target.value if target.kind == "vector" else (target,)
    puts = [m.writer(t, type_) for t in targets]
    if space == "param":
        return _load_param(m, source, type_, puts)
    width, dtype = type_bytes(type_), DTYPES[type_]
    access = Accessor(m, pc, source, space, width * count)

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=False)
        if name != "const":
            access.count("ld", name, offsets)
        for n, put in enumerate(puts):
            loaded = memory.load(chosen + np.uint64(n * width) if n else chosen, width)
            if m.trace is not None:
                m.trace.access(pc, name, offsets + np.uint64(n * width), loaded, dtype, False)
            put(m.spread(loaded).view(dtype))
        access.acquired()

    return run


def _load_param(m: Machine, source: Operand, type_: str, puts) -> Run:
    name, offset = source.base.value, source.offset + source.base.offset
    width = type_bytes(type_)
    values = [m.param(name, offset + n * width, DTYPES[type_]) for n in range(len(puts))]

    def run() -> None:
        for put, value in zip(puts, values, strict=True):
            put(value)

    return run


def store(m: Machine, pc: int, i: Instruction) -> Run:
    space, type_, count = space_of(i), i.parts[-1], _vector(i)
    target, source = _operands(i)
    sources = source.value if source.kind == "vector" else (source,)
    width, dtype = type_bytes(type_), DTYPES[type_]
    reads = [m.reader(s, type_) for s in sources]
    access = Accessor(m, pc, target, space, width * count)
    bits = UNSIGNED[width]

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=True)
        access.count("st", name, offsets)
        elements = [m.active(read()).view(bits) for read in reads]
        if name == "shared" and m.races is not None:
            access.report_write(offsets, np.stack(elements, axis=-1))
        for n, values in enumerate(elements):
            memory.store(chosen + np.uint64(n * width) if n else chosen, width, values)
            if m.trace is not None:
                m.trace.access(pc, name, offsets + np.uint64(n * width), values, dtype, True)

    return run


def atomic(m: Machine, pc: int, i: Instruction) -> Run:
    """Build atom and red. A vector's elements are updated one after the other."""
    if _vector(i) == 1:
        return _atomic(m, pc, i)
    runs = [_atomic(m, pc, element) for element in _elements(i)]

    def run() -> None:
        for each in runs:
            each()

    return run


def _elements(i: Instruction) -> Iterator[Instruction]:
    """Yield the scalar atomics of an atomic on a vector."""
    opcode = ".".join(p for p in i.parts if p not in ("v2", "v4", "v8"))
    width = type_bytes(i.parts[-1])
    for n in range(_vector(i)):
        operands = tuple(
            replace(o, offset=o.offset + n * width)
            if o.kind == "mem"
            else o.value[n]
            if o.kind == "vector"
            else o
            for o in i.operands
        )
        yield replace(i, opcode=opcode, operands=operands)


def _atomic(m: Machine, pc: int, i: Instruction) -> Run:
    """Build an atomic. Threads with the same address update it in slot order."""
    parts, type_ = i.parts, i.parts[-1]
    space = space_of(i)
    reduction = parts[0] == "red"
    op = next(p for p in parts[1:] if p in (*operations.ATOMIC, "cas"))
    operands = _operands(i) if reduction else _operands(i)[1:]
    width, dtype = type_bytes(type_), DTYPES[type_]
    compute = type_ if type_[0] != "b" or op in ("exch", "cas", "and", "or", "xor") else f"u{type_[1:]}"
    values = [m.reader(o, compute) for o in operands[1:]]
    put = None if reduction or i.operands[0].kind == "sink" else m.writer(i.operands[0], compute)
    access = Accessor(m, pc, operands[0], space, width)
    f = operations.ATOMIC.get(op)
    pair = type_ in ("f16x2", "bf16x2")

    def step(old, new):
        if op == "cas":
            return np.where(old == new[0], new[1], old)
        if pair:
            return operations.packed(
                *(
                    f(a, b)
                    for a, b in zip(
                        operations.halves(old, type_), operations.halves(new[0], type_), strict=True
                    )
                ),
                type_,
            )
        return f(old, new[0])

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=False)
        given = [m.active(v()) for v in values]
        if m.tally is not None:
            m.tally.add(pc, "atomics", len(chosen))
        if name == "shared" and m.races is not None:
            m.races.atomic(pc, offsets, width)
        if name == "shared" and m.tally is not None and compare_and_swap.is_loop(op, type_):
            compare_and_swap.count(m, pc, width, offsets)
        old_all = np.empty(len(chosen), DTYPES[compute])
        rounds, uniform = _rounds(chosen), all((g == g[0]).all() for g in given)
        for n, index in enumerate(rounds):
            old = memory.load(chosen[index], width).view(DTYPES[compute])
            old_all[index] = old
            new = step(old, [g[index] for g in given]).astype(old.dtype)
            before, after = old.view(UNSIGNED[width]), new.view(UNSIGNED[width])
            if (before != after).any():  # other threads do not wait for an update that changes nothing
                memory.store(chosen[index], width, after)
            elif uniform:  # then the rest change nothing either: threads that wait for one lock
                rest = np.concatenate(rounds[n:])
                old_all[rest] = memory.load(chosen[rest], width).view(DTYPES[compute])
                break
        if m.trace is not None:
            m.trace.access(pc, name, offsets, old_all.view(UNSIGNED[width]), dtype, True)
        if put is not None:
            put(m.spread(old_all))
        access.acquired()

    return run


def _rounds(addresses: np.ndarray) -> list[np.ndarray]:
    """Return the entries of each round: the first at each address, then the second, and so on."""
    ranks = compare_and_swap.rank_among_equal(addresses)
    return np.split(np.argsort(ranks, kind="stable"), np.cumsum(np.bincount(ranks))[:-1])


def async_copy(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async, from global to shared memory. The copy is done at once, so waiting for it is never too late."""
    if i.parts[1] != "async" or {"bulk", "mbarrier", "reduce"} & set(i.parts):
        raise Unknown(f"unknown opcode {i.opcode}")
    if {"commit_group", "wait_group", "wait_all"} & set(i.parts):
        return lambda: None
    target, origin, count, *size_operand = _operands(i)
    size = int(count.value)
    to = Accessor(m, pc, target, "shared", size)
    source = Accessor(m, pc, origin, "global", size)
    given = m.reader(size_operand[0], "u32") if size_operand else None
    unit = min(size, 8)

    def run() -> None:
        shared, _, offsets, target = to.checked(write=True)
        if given is None:
            memory, _, from_, chosen = source.checked(write=False)
            source.count("ld", "global", from_)
            steps = (memory.load(chosen + np.uint64(n), unit) for n in range(0, size, unit))
            data = np.stack(list(steps), axis=-1)
        else:
            data = _read_some(m, m.active(given()), source, size).view(UNSIGNED[unit])
        to.count("st", "shared", offsets)
        if m.races is not None:
            m.races.write(pc, offsets, size, data)
        for n in range(data.shape[-1]):
            shared.store(target + np.uint64(n * unit), unit, data[:, n])

    return run


def _read_some(m: Machine, count: np.ndarray, source: Accessor, size: int) -> np.ndarray:
    """Return uint8 [active, size]: the first `count` bytes of each active thread's source, then zeros. No byte beyond
    `count` is read."""
    data = np.zeros((len(count), size), np.uint8)
    memory, name, offsets = source.locate()
    offsets = np.broadcast_to(offsets, m.slots)
    chosen = m.active(offsets)
    skew = np.flatnonzero((chosen % np.uint64(size) != 0) & (count > 0))
    if skew.size:
        message = f"misaligned read of {size} bytes at {memory.describe(int(chosen[skew[0]]))}"
        m.fail(source.pc, message, m.slot_of(int(skew[0])))
    pieces = [(n, 4, count >= n + 4) for n in range(0, size, 4)]
    pieces += [(n, 1, (count > n) & (count - count % 4 <= n)) for n in range(size)]
    for n, width, readable in pieces:
        if readable.any():
            at = chosen[readable] + np.uint64(n)
            try:
                memory.check(at, width, False)
            except Fault as fault:
                m.fail(source.pc, fault.description, m.slot_of(int(np.flatnonzero(readable)[fault.index])))
            data[readable, n : n + width] = memory.load(at, width)[:, None].view(np.uint8)
    am = m.am
    m.am = m.spread(count > 0).astype(bool)
    if m.am.any():
        source.count("ld", name, offsets)
    m.am = am
    return data


def cache_policy(m: Machine, pc: int, i: Instruction) -> Run:
    """Build createpolicy: a cache hint without effect here."""
    put = m.writer(i.operands[0], "b64")
    return lambda: put(np.uint64(0))


BUILDERS = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
    "cp": async_copy,
    "createpolicy": cache_policy,
}
