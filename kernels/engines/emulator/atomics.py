"""Atomics: threads that meet at an address take turns. In shared memory some are a loop, whose loads are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator import table
from kernels.engines.emulator.access import Accessor, space_of
from kernels.engines.emulator.parse import Instruction, type_bytes
from kernels.engines.emulator.table import DTYPES, UNSIGNED

if TYPE_CHECKING:
    from kernels.engines.emulator.decode import Run
    from kernels.engines.emulator.machine import Machine


def atomic(m: Machine, pc: int, i: Instruction) -> Run:
    """atom and red. Threads that meet at an address take turns in slot order."""
    parts, type_ = i.parts, i.parts[-1]
    space = space_of(i)
    reduction = parts[0] == "red"
    op = next(p for p in parts[1:] if p in (*table.ATOMIC, "cas"))
    operands = i.operands if reduction else i.operands[1:]
    width, dtype = type_bytes(type_), DTYPES[type_]
    compute = type_ if type_[0] != "b" or op in ("exch", "cas", "and", "or", "xor") else f"u{type_[1:]}"
    values = [m.reader(o, compute) for o in operands[1:]]
    put = None if reduction or i.operands[0].kind == "sink" else m.writer(i.operands[0], compute)
    at = Accessor(m, pc, operands[0], space, width)
    f = table.ATOMIC.get(op)
    pair = type_ in ("f16x2", "bf16x2")

    def step(old, new):
        if op == "cas":
            return np.where(old == new[0], new[1], old)
        if pair:
            return table.packed(
                *(
                    f(a, b)
                    for a, b in zip(table.halves(old, type_), table.halves(new[0], type_), strict=True)
                ),
                type_,
            )
        return f(old, new[0])

    def run() -> None:
        memory, name, offsets, chosen = at.checked(write=False)
        given = [m.active(v()) for v in values]
        if m.tally is not None:
            m.tally.add(pc, "atomics", len(chosen))
        if name == "shared" and m.races is not None:
            m.races.atomic(pc, offsets, width)
        if name == "shared" and m.tally is not None and _is_loop(op, type_):
            _count_loop(m, at, offsets)
        old_all = np.empty(len(chosen), DTYPES[compute])
        for now in _rounds(chosen):
            old = memory.load(chosen[now], width).view(DTYPES[compute])
            old_all[now] = old
            new = step(old, [g[now] for g in given]).astype(old.dtype)
            before, after = old.view(UNSIGNED[width]), new.view(UNSIGNED[width])
            if (before != after).any():  # what leaves all as it was is no write that others wait for
                memory.store(chosen[now], width, after)
        if m.trace is not None:
            m.trace.access(pc, name, offsets, old_all.view(UNSIGNED[width]), dtype, True)
        if put is not None:
            put(m.spread(old_all))

    return run


def _is_loop(op: str, type_: str) -> bool:
    """Whether the hardware has no such instruction for shared memory, so that ptxas writes a loop: load the word,
    compute, compare and swap. It has those of 32-bit integers, and exchanges and comparisons from 32 bits up."""
    return type_ not in ("u32", "s32", "b32") and (op not in ("exch", "cas") or type_ == "b16")


def _count_loop(m: Machine, at: Accessor, offsets: np.ndarray) -> None:
    """Count the loads of such a loop, each by the lanes whose swap has not succeeded yet. In a turn, one lane of those
    with words in one bank succeeds (of one word if it has 16 bits), the first; 64-bit words go by halves of the warp.
    Warps do not disturb each other here; those that update one word at a time need more turns on the hardware."""
    width = max(at.width, 4)
    waiting = np.ones(m.slots, bool) if m.am is None else m.am.copy()
    words = (offsets // np.uint64(width)).astype(np.int64)
    lines = (words * width).astype(np.uint64).reshape(-1, 32)
    lane = np.arange(m.slots)
    warp, group = lane // 32, lane // (128 // width)
    bank = words if at.width < 4 else words % (128 // width)
    while waiting.any():
        m.tally.shared_access(at.pc, "ld", lines, waiting.reshape(-1, 32), width)
        if m.trace is not None:
            m.trace.request("shared", "ld", lines, waiting.reshape(-1, 32), width)
        tries = np.flatnonzero(waiting)
        tries = tries[_turns(group[tries] << 40 | bank[tries]) == 0]
        waiting[tries[_turns(warp[tries] << 40 | words[tries]) == 0]] = False


def _turns(keys: np.ndarray) -> np.ndarray:
    """How many before each entry are equal to it."""
    order = np.argsort(keys, kind="stable")
    held, at = keys[order], np.arange(len(keys))
    new = np.ones(len(held), bool)
    new[1:] = held[1:] != held[:-1]
    turns = np.empty(len(keys), np.int64)
    turns[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return turns


def _rounds(addresses: np.ndarray) -> list[np.ndarray]:
    """Who goes in each round: the first that waits at each address, then the second, and so on."""
    turns = _turns(addresses)
    return np.split(np.argsort(turns, kind="stable"), np.cumsum(np.bincount(turns))[:-1])


BUILDERS = {"atom": atomic, "red": atomic}
