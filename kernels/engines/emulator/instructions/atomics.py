"""Atomics: atom and red."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kernels.engines.emulator.instructions import compare_and_swap
from kernels.engines.emulator.instructions.accessor import Accessor, operands_of, space_of
from kernels.engines.emulator.instructions.closure import Run
from kernels.engines.emulator.instructions.generic_access import by_space
from kernels.engines.emulator.memory import Space
from kernels.engines.emulator.operations import table
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED, halves, packed
from kernels.engines.emulator.ptx.kernel import Instruction, Operand, type_bytes
from kernels.engines.emulator.state import Machine

Update = Callable[[np.ndarray, Sequence[np.ndarray]], np.ndarray]


def atomic(m: Machine, pc: int, i: Instruction) -> Run:
    """Build atom and red. A vector's elements are updated one after the other."""
    if i.elements == 1:
        return _atomic(m, pc, i)
    runs = [_atomic(m, pc, element) for element in _elements(i)]

    def run() -> None:
        for each in runs:
            each()

    return run


def _elements(i: Instruction) -> Iterator[Instruction]:
    """Yields the scalar atomics of an atomic on a vector."""
    opcode = ".".join(p for p in i.parts if p not in ("v2", "v4", "v8"))
    width = type_bytes(i.parts[-1])
    for n in range(i.elements):
        operands = tuple(_element(o, n, n * width) for o in i.operands)
        yield replace(i, opcode=opcode, operands=operands)


def _element(o: Operand, n: int, offset: int) -> Operand:
    if o.kind == "mem":
        return replace(o, offset=o.offset + offset)
    return o.inner[n] if o.kind == "vector" else o


def _atomic(m: Machine, pc: int, i: Instruction) -> Run:
    """Build an atomic on one element."""
    parts, type_ = i.parts, i.parts[-1]
    reduction = parts[0] == "red"
    op = next(p for p in parts[1:] if p in (*table.ATOMIC, "cas"))
    address, *sources = operands_of(i) if reduction else operands_of(i)[1:]
    width = type_bytes(type_)
    compute = type_ if type_[0] != "b" or op in ("exch", "cas", "and", "or", "xor") else f"u{type_[1:]}"
    reads = [m.reader(o, compute) for o in sources]
    put = None if reduction or i.operands[0].kind == "sink" else m.writer(i.operands[0], compute)
    access = Accessor(m, pc, address, space_of(i), width)
    update = _update(op, type_)

    def run() -> None:
        memory, name, offsets, chosen = access.checked(write=False)
        values = [m.active(read()) for read in reads]
        if m.tally is not None:
            m.tally.add(pc, "atomics", len(chosen))
        if (races := m.races.get(name)) is not None:
            races.update(pc, offsets, width)
        if name == "shared" and m.tally is not None and compare_and_swap.is_loop(op, type_):
            compare_and_swap.count(m, pc, width, offsets)
        before = _apply(update, memory, chosen, values, DTYPES[compute])
        if m.float_bits is not None and op in ("min", "max") and type_ in ("s32", "u32"):
            offset = int(chosen[0]) if name == "global" else -1
            m.float_bits.check(pc, i, sources[0], before, values[0], offset)
        if m.trace is not None:
            after = np.asarray(update(before, values)).astype(before.dtype)
            m.trace.updated(pc, name, offsets, before.view(UNSIGNED[width]), after.view(UNSIGNED[width]), DTYPES[type_])
        if put is not None:
            put(m.spread(before))

    return run


def _update(op: str, type_: str) -> Update:
    """Returns a function of an element's old value and the instruction's operands that returns the new value."""
    if op == "cas":
        return lambda old, values: np.where(old == values[0], values[1], old)
    f = table.ATOMIC[op]
    if type_ not in ("f16x2", "bf16x2"):
        return lambda old, values: f(old, values[0])

    def update_pair(old: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
        (low, high), (other_low, other_high) = halves(old, type_), halves(values[0], type_)
        return packed(f(low, other_low), f(high, other_high), type_)

    return update_pair


def _apply(update: Update, memory: Space, at: np.ndarray, values: Sequence[np.ndarray], dtype) -> np.ndarray:
    """Update memory for each active thread, at the same address in slot order. Return the values before."""
    before = np.empty(len(at), dtype)
    width = before.itemsize
    rounds, uniform = _rounds(at), all((v == v[0]).all() for v in values)
    for n, index in enumerate(rounds):
        old = before[index] = memory.load(at[index], width).view(dtype)
        new = update(old, [v[index] for v in values]).astype(dtype)
        bits = new.view(UNSIGNED[width])
        if (old.view(UNSIGNED[width]) != bits).any():  # no thread waits for an update that changes nothing
            memory.store(at[index], width, bits)
        elif uniform:  # then the rest change nothing either: threads that wait for one lock
            rest = np.concatenate(rounds[n:])
            before[rest] = memory.load(at[rest], width).view(dtype)
            break
    return before


def _rounds(addresses: np.ndarray) -> list[np.ndarray]:
    """Returns the entries of each round: the first at each address, then the second, and so on."""
    ranks = compare_and_swap.rank_among_equal(addresses)
    return np.split(np.argsort(ranks, kind="stable"), np.cumsum(np.bincount(ranks))[:-1])


BUILDERS = {"atom": by_space(atomic), "red": by_space(atomic)}
