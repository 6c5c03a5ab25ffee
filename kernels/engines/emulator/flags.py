"""Flags: words by whose values threads know that others have come to a point of the program.

- A thread that writes or updates a word after a fence releases what it knew and had done at the fence. A thread that reads this word by a
  strong access (atomic, volatile, relaxed) acquires it at its next fence. The qualifiers release and acquire need no fence. A fence,
  qualifier or atomic of the block (.cta) orders threads of the block only.
- After a barrier of threads that have all executed a fence, each releases what any of them would: their fences have one order. So a barrier
  of some lanes also hands on what one of them acquires at its next fence.
- Here a barrier of a block also counts as the fence that an acquire needs, as many programs assume (NVIDIA's sample
  threadFenceReduction).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.known import Known
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.ptx.registers import read, written
from kernels.engines.emulator.threads import LANES

if TYPE_CHECKING:
    from kernels.engines.emulator.order import Order

STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
Word = tuple[int, int]  # a word, and the block of the grid whose threads it is released to; -1: all


class _Fences:
    """What threads have released by their last fence, by slot. Most fences order nothing that anyone acquires, so what a thread knew is
    kept in parts."""

    def __init__(self, order: Order):
        self.order = order
        self.time = np.zeros(order.m.slots, np.int32)  # of the thread's last fence
        self.until = np.zeros((order.m.slots, order.until.shape[1]), np.int32)  # as Order.until, then
        self._lanes: dict[int, dict[int, int]] = {}
        self._acquired: dict[int, list[Known]] = {}

    def execute(self, slots: np.ndarray) -> None:
        order = self.order
        self.time[slots] = order.tick()
        self.until[slots] = order.until[slots // LANES]
        for slot in slots.tolist() if order.has_lanes else ():
            self._lanes[slot] = order.of_lanes(slot)
        for slot in slots.tolist() if order.has_acquired or self._acquired else ():
            self._acquired[slot] = order.holders([slot])

    def released(self, slot: int) -> Known:
        """Returns what a thread has done and known before its last fence."""
        order, time, until = self.order, int(self.time[slot]), self.until[slot]
        block, first = order.block_at(slot), int(order.first_warp[slot // LANES])
        threads = {**self._lanes.get(slot, {}), int(order.m.threads.number[slot]): time}
        least = int(until.min())
        warps = {first + warp: int(t) for warp, t in enumerate(until) if t > least}
        return order.known(block, least, warps, threads).plus(*self._acquired.get(slot, ()))

    def learn(self, slot: int, record: Known) -> None:
        """Let a thread that has executed a fence release what others have released."""
        if self.time[slot]:
            self._acquired[slot] = [*self._acquired.get(slot, ()), record]

    def join(self, slots: np.ndarray) -> None:
        """Threads that have all executed a fence leave a barrier: each releases what any of them would."""
        if not self.time[slots].all():
            return
        self.until[slots] = self.until[slots].max(axis=0)
        numbers, times = self.order.m.threads.number[slots].tolist(), self.time[slots].tolist()
        own = dict(zip(numbers, times, strict=True))
        acquired = [known for slot in slots.tolist() for known in self._acquired.get(slot, ())]
        for slot in slots.tolist():
            self._lanes[slot] = own
            if acquired:
                self._acquired[slot] = acquired


class Flags:
    """What the threads of a launch have released and will acquire. `acquires`: whether any can acquire something."""

    def __init__(self, order: Order):
        self.order = order
        self.acquires = may_acquire(order.m.kernel.code)
        self._released: dict[Word, Known] = {}

    def begin(self) -> None:
        """The threads of a batch begin."""
        # Fences of the GPU, and those and fences of the block.
        self._fences, self._fences_in_block = _Fences(self.order), _Fences(self.order)
        # By slot: what it acquires at its next fence, and at its next fence of the block, by the word that it has read.
        self.pending: tuple[dict[int, dict[Word, Known]], ...] = ({}, {})
        # By the key of a phase's barrier: what its arrivals have released by their fences, and those of the phases that ended.
        self._arrived: dict[int, tuple[Known, Known]] = {}
        self._phases: dict[int, tuple[Known, Known]] = {}

    def fence(self, slots: np.ndarray) -> None:
        """Threads execute a fence of the whole GPU."""
        if self.acquires:
            self._acquire_pending(self.pending[0], slots)
            self._acquire_pending(self.pending[1], slots)
            self._fences.execute(slots)
            self._fences_in_block.execute(slots)

    def fence_in_block(self, slots: np.ndarray) -> None:
        """Threads execute a fence of their block."""
        if self.acquires:
            self._acquire_pending(self.pending[1], slots)
            self._fences_in_block.execute(slots)

    def _acquire_pending(self, pending: dict[int, dict[Word, Known]], slots: np.ndarray) -> None:
        for slot in pending.keys() & set(slots.tolist()) if pending else ():
            self.order.acquire([slot], pending.pop(slot).values())

    def strong(self, words: np.ndarray, slots: np.ndarray, reads: bool, writes: bool, parts: frozenset[str]) -> None:
        """Threads read, write or update words by strong accesses, one after the other. parts: of the instruction."""
        if not self.acquires:
            return
        if writes and {"release", "acq_rel"} & parts:
            self._fences_in_block.execute(slots)
            if "cta" not in parts:
                self._fences.execute(slots)
        may_release = writes and bool(self._fences_in_block.time[slots].any())
        if not may_release and not self._released:
            return
        acquires = bool({"acquire", "acq_rel"} & parts)
        for word, slot in zip(words.tolist(), slots.tolist(), strict=True):
            if "cta" not in parts:
                self._access((word, -1), slot, reads, writes, acquires, self._fences, self.pending[0])
            key = word, self.order.block_at(slot)
            self._access(key, slot, reads, writes, acquires, self._fences_in_block, self.pending[1])

    def _access(
        self,
        key: Word,
        slot: int,
        reads: bool,
        writes: bool,
        acquires: bool,
        fences: _Fences,
        pending: dict[int, dict[Word, Known]],
    ) -> None:
        record = self._released.get(key)
        if reads and record is not None:
            if acquires:
                self.order.acquire([slot], [record])
            else:
                pending.setdefault(slot, {})[key] = record
        if writes and not reads:
            record = None  # a store ends what was released there before
            self._released.pop(key, None)
        if writes and fences.time[slot]:
            own = fences.released(slot)
            self._released[key] = own if record is None else record.plus(own)

    # -- barriers ---------------------------------------------------------------------------------------
    def barrier(self, threads: np.ndarray, key: np.ndarray) -> None:
        """Threads leave a barrier of their block; those with one key waited for each other."""
        if not self.acquires or not self._fences_in_block.time.any():
            return
        slots = np.flatnonzero(threads)
        for value in np.unique(key[slots]):
            self._join(slots[key[slots] == value])

    def barrier_of_lanes(self, slots: np.ndarray) -> None:
        """Lanes of a warp leave a barrier."""
        self.share(slots)
        if self.acquires and self._fences_in_block.time[slots].any():
            self._join(slots)

    def share(self, slots: np.ndarray) -> None:
        """Let lanes acquire at their next fence what one of them would."""
        for pending in self.pending:
            if found := [pending[slot] for slot in slots.tolist() if slot in pending]:
                everything = {word: record for of in found for word, record in of.items()}
                pending |= {slot: dict(everything) for slot in slots.tolist()}

    def arrive(self, key: int, slots: Sequence[int]) -> None:
        """Threads arrive at a phase."""
        fenced = [slot for slot in slots if self._fences_in_block.time[slot]] if self.acquires else ()
        if fenced:
            of_all, of_block = self._arrived.get(key, (self.order.nothing(), self.order.nothing()))
            of_all = of_all.plus(*(self._fences.released(slot) for slot in fenced if self._fences.time[slot]))
            self._arrived[key] = of_all, of_block.plus(*map(self._fences_in_block.released, fenced))

    def phase_ended(self, key: int) -> None:
        if key in self._arrived:
            self._phases[key] = self._arrived.pop(key)

    def waited(self, key: int, slots: Sequence[int]) -> None:
        """Threads have waited for a phase: after a fence of their own they release what those that arrived would."""
        if key in self._phases:
            for slot in slots:
                for fences, record in zip((self._fences, self._fences_in_block), self._phases[key], strict=True):
                    fences.learn(slot, record)

    def _join(self, slots: np.ndarray) -> None:
        self._fences.join(slots)
        self._fences_in_block.join(slots)


def records_of(pending: Iterable[dict[Word, Known]]) -> list[Known]:
    """Returns what threads would acquire at their next fence."""
    return [record for of in pending for record in of.values()]


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
