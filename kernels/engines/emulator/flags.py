"""Flags: words by whose values threads know that others have come to a point of the program.

- A thread that writes or updates a word after a fence releases what the fence ordered. A thread that reads this word by a strong
  access (atomic, volatile, relaxed) acquires it at its next fence. The qualifiers release and acquire need no fence. A fence,
  qualifier or atomic of the block (.cta) orders threads of the block only.
- A barrier after all threads of a block have executed a fence counts as a fence of each.
- Here a barrier also counts as the fence that an acquire needs, as many programs assume (NVIDIA's sample threadFenceReduction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.known import Known
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.ptx.registers import read, written
from kernels.engines.emulator.threads import LANES

if TYPE_CHECKING:
    from kernels.engines.emulator.order import Order

STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})


@dataclass
class _Fences:
    """By slot: the time of the thread's last fence, and up to which all accesses of its block came before that; by slot and warp of
    the block the same of each warp."""

    thread: np.ndarray
    block: np.ndarray
    warps: dict[int, np.ndarray] = field(default_factory=dict)


class Flags:
    """What the threads of a launch have released and will acquire. `acquires`: whether any can acquire something."""

    def __init__(self, order: Order):
        self.order = order
        self.acquires = may_acquire(order.m.kernel.code)
        self._released: dict[tuple[int, int], Known] = {}  # by word and block of the grid; block -1: to all blocks

    def begin(self) -> None:
        """The threads of a batch begin."""
        slots = self.order.m.slots
        # By slot: fences of the GPU, and those and fences of the block.
        self._fences, self._fences_in_block = (
            _Fences(np.zeros(slots, np.int32), np.zeros(slots, np.int32)) for _ in range(2)
        )
        # By slot: what it acquires at its next fence, and at its next fence of the block.
        self._pending: dict[int, Known] = {}
        self._pending_in_block: dict[int, Known] = {}

    @property
    def pending(self) -> tuple[dict[int, Known], ...]:
        return self._pending, self._pending_in_block

    def fence(self, slots: np.ndarray) -> None:
        """Threads execute a fence of the whole GPU."""
        self._fence(self._fences, slots)
        self._acquire_pending(self._pending, slots)
        self.fence_in_block(slots)

    def fence_in_block(self, slots: np.ndarray) -> None:
        """Threads execute a fence of their block."""
        self._fence(self._fences_in_block, slots)
        self._acquire_pending(self._pending_in_block, slots)

    def _fence(self, fences: _Fences, slots: np.ndarray) -> None:
        fences.thread[slots] = self.order.tick()
        until = self.order.until[slots // LANES]
        fences.block[slots] = until.min(axis=1)
        if self.acquires:
            for at in np.flatnonzero(until.max(axis=1) > fences.block[slots]).tolist():
                fences.warps[int(slots[at])] = until[at]

    def _acquire_pending(self, pending: dict[int, Known], slots: np.ndarray) -> None:
        for slot in pending.keys() & set(slots.tolist()) if pending else ():
            self.order.acquire(slot, pending.pop(slot))

    def strong(self, words: np.ndarray, slots: np.ndarray, reads: bool, writes: bool, parts: frozenset[str]) -> None:
        """Threads read, write or update words by strong accesses, one after the other. parts: of the instruction."""
        if not self.acquires:
            return
        if writes and {"release", "acq_rel"} & parts:
            self._fence(self._fences_in_block, slots)
            if "cta" not in parts:
                self._fence(self._fences, slots)
        to_all, to_block = self._fences, self._fences_in_block
        may_release = writes and bool(to_block.thread[slots].any())
        if not may_release and not self._released:
            return
        acquires = bool({"acquire", "acq_rel"} & parts)
        for word, slot in zip(words.tolist(), slots.tolist(), strict=True):
            for key, fences in ((-1, to_all), (self.order.block_at(slot), to_block)):
                if key == -1 and "cta" in parts:
                    continue
                record = self._released.get((word, key))
                if reads and record is not None:
                    if acquires:
                        self.order.acquire(slot, record)
                    else:
                        pending = self._pending if key == -1 else self._pending_in_block
                        pending.setdefault(slot, self.order.nothing()).add(record)
                if writes and not reads:
                    record = None  # a store ends what was released there before
                    self._released.pop((word, key), None)
                if may_release and fences.thread[slot]:
                    if record is None:
                        record = self._released[word, key] = self.order.nothing()
                    self._release(slot, record, fences)

    def _release(self, slot: int, record: Known, fences: _Fences) -> None:
        block, time = self.order.block_at(slot), int(fences.thread[slot])
        for known in self.order.holders([slot]):
            record.add(known)
        record.add_block(block, int(fences.block[slot]))
        first = int(self.order.first_warp[slot // LANES])
        record.add_warps({first + warp: int(t) for warp, t in enumerate(fences.warps.get(slot, ()))})
        record.add_threads({int(self.order.m.threads.number[slot]): time, **self.order.of_lanes(slot, time)})

    def barrier(self, threads: np.ndarray, key: np.ndarray) -> None:
        """Threads leave a barrier; those with one key waited for each other."""
        fences = self._fences
        if not fences.thread.any():
            return
        slots = np.flatnonzero(threads)
        _, group = np.unique(key[slots], return_inverse=True)
        all_fenced = np.full(group.max() + 1, np.iinfo(np.int32).max)
        np.minimum.at(all_fenced, group, fences.thread[slots])
        np.maximum.at(all_fenced, group, fences.block[slots])
        fences.block[slots] = all_fenced[group]


def may_acquire(code: Sequence[Instruction]) -> bool:
    """Returns whether a thread can acquire anything: it reads a word by a strong access, and an instruction uses the value."""
    strong = [i for i in code if i.parts[0] == "atom" or (i.parts[0] == "ld" and STRONG & set(i.parts))]
    used = {name for i in code for name in read(i)}
    return any(written(i) & used for i in strong)


def orders_some_threads(code: Sequence[Instruction]) -> bool:
    """Returns whether a kernel has barriers or flags that order some threads of a block or of the grid and not all."""
    barriers = (i for i in code if i.parts[0] in ("bar", "barrier") and "warp" not in i.parts)
    some = any("cluster" in i.parts or len(i.operands) > 1 for i in barriers)
    return some or any(i.parts[0] == "mbarrier" for i in code) or may_acquire(code)
