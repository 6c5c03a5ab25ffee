"""What orders the accesses of two threads to global memory: barriers, fences with atomics, barriers of the grid.

A time is the number of the access or barrier in the run. What a thread knows is, for each warp of its block and for each other
block, the time up to which their accesses come before its own (PTX ISA, "Memory Consistency Model", causality order):

- A barrier orders the warps that take part. One of the warp orders its lanes.
- A thread that writes or updates a word after a fence releases what the fence ordered. A thread that reads this word by a strong
  access (atomic, volatile, relaxed) acquires it at its next fence. The qualifiers release and acquire need no fence.
- A barrier after all threads of a block have executed a fence counts as a fence of each.
- What one thread acquires its block knows after the next barrier. Here the barrier also counts as the fence that an acquire needs,
  as many programs assume (NVIDIA's sample threadFenceReduction).

Between blocks only the words of such accesses and clusters' barriers order anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

MAX_BLOCKS = 4096  # of a grid for which it is kept which block knows which; in a larger one an acquire orders all


@dataclass
class _Known:
    """Accesses that come before those of who knows this: of each block up to a time, and of single threads up to a later one."""

    blocks: np.ndarray
    threads: dict[int, int] = field(default_factory=dict)

    def add(self, other: _Known) -> None:
        np.maximum(self.blocks, other.blocks, out=self.blocks)
        for slot, time in other.threads.items():
            self.threads[slot] = max(self.threads.get(slot, 0), time)


class Order:
    """The order of the accesses of a launch."""

    def __init__(self, m: Machine):
        self.m, self.now = m, 1
        self.block = m.block_of[::LANES]  # of each row of 32 slots, a warp
        self.warp = m.thread_of[::LANES] // LANES  # its number in the block
        # By row and warp of the block: the time up to which that warp's accesses come before this one's.
        self._until = np.zeros((len(self.block), int(self.warp.max()) + 1), np.int32)
        # By slot: the time of the thread's last fence, and up to which all accesses of the block come before it.
        self._fenced, self._fenced_block = np.zeros(m.slots, np.int32), np.zeros(m.slots, np.int32)
        self._known: dict[int, _Known] = {}  # by block
        self._thread: dict[int, _Known] = {}  # by slot: what the thread has acquired since its block's last barrier
        self._pending: dict[int, _Known] = {}  # by slot: what it acquires at its next fence
        self._released: dict[int, _Known] = {}  # by word
        self._all = False  # after an acquire in a grid of more than MAX_BLOCKS

    def tick(self) -> int:
        self.now += 1
        return self.now

    # -- what orders -------------------------------------------------------------------------------
    def barrier(self, threads: np.ndarray, key: np.ndarray) -> None:
        """Threads leave a barrier; those with one key waited for each other."""
        now = self.tick()
        rows = np.flatnonzero(threads.reshape(-1, LANES).any(axis=1))
        live = np.bincount(self.block[self.m.live.reshape(-1, LANES).any(axis=1)], minlength=self.m.blocks)
        whole = np.bincount(self.block[rows], minlength=self.m.blocks) == live
        inside = whole[self.block[rows]]
        self._until[rows[inside]] = now
        for group in _groups(rows[~inside], key[::LANES]):
            known = self._until[group].max(axis=0)
            known[self.warp[group]] = now
            self._until[group] = known
        self._fence_at_barrier(threads, key)
        for acquired in (self._thread, self._pending):
            for slot in [slot for slot in acquired if threads[slot]]:
                self._of_block(int(self.m.block_of[slot])).add(acquired.pop(slot))

    def _fence_at_barrier(self, threads: np.ndarray, key: np.ndarray) -> None:
        if not self._fenced.any():
            return
        slots = np.flatnonzero(threads)
        _, group = np.unique(key[slots], return_inverse=True)
        all_fenced = np.full(group.max() + 1, np.iinfo(np.int32).max)
        np.minimum.at(all_fenced, group, self._fenced[slots])
        np.maximum.at(all_fenced, group, self._fenced_block[slots])
        self._fenced_block[slots] = all_fenced[group]

    def warp_barrier(self) -> None:
        """The active threads leave a barrier of their warps."""
        rows = np.flatnonzero(self._active().reshape(-1, LANES).any(axis=1))
        self._until[rows, self.warp[rows]] = self.tick()

    def everything(self) -> None:
        """All that was done so far comes before what is done from now on: a phase of an mbarrier, a barrier of a cluster."""
        now = self.tick()
        self._until[:] = now
        for block in range(self.m.blocks) if self.m.threads.cluster_size > 1 else ():
            of = self.m.threads.cluster_of_block
            self._of_block(block).blocks[of == of[block]] = now

    def fence(self) -> None:
        """The active threads execute a fence of the whole GPU."""
        slots = np.flatnonzero(self._active())
        self._fenced[slots] = self.tick()
        self._fenced_block[slots] = self._until[slots // LANES].min(axis=1)
        for slot in self._pending.keys() & set(slots.tolist()) if self._pending else ():
            self._acquire(slot, self._pending.pop(slot))

    def strong(self, words: np.ndarray, slots: np.ndarray, reads: bool, writes: bool, parts: frozenset[str]) -> None:
        """Threads read, write or update words by strong accesses, one after the other. parts: of the instruction."""
        releases = writes and bool({"release", "acq_rel"} & parts)
        if writes and releases:
            self._fenced[slots] = self.now
            self._fenced_block[slots] = self._until[slots // LANES].min(axis=1)
        may_release = writes and bool(self._fenced[slots].any())
        if not may_release and not self._released:
            return
        acquires = bool({"acquire", "acq_rel"} & parts)
        for word, slot in zip(words.tolist(), slots.tolist(), strict=True):
            record = self._released.get(word)
            if reads and record is not None:
                if acquires:
                    self._acquire(slot, record)
                else:
                    self._pending.setdefault(slot, self._nothing()).add(record)
            if writes and not reads:
                record = None  # a store ends what was released there before
                self._released.pop(word, None)
            if may_release and self._fenced[slot]:
                if record is None:
                    record = self._released[word] = self._nothing()
                self._release(slot, record)

    def _release(self, slot: int, record: _Known) -> None:
        block = int(self.m.block_of[slot])
        for known in (self._known.get(block), self._thread.get(slot)):
            if known is not None:
                record.add(known)
        record.blocks[block] = max(record.blocks[block], self._fenced_block[slot])
        record.threads[slot] = int(self._fenced[slot])

    def _acquire(self, slot: int, record: _Known) -> None:
        if self.m.blocks > MAX_BLOCKS:
            self._all = True
        else:
            self._thread.setdefault(slot, self._nothing()).add(record)

    def _of_block(self, block: int) -> _Known:
        return self._known.setdefault(block, self._nothing())

    def _nothing(self) -> _Known:
        return _Known(np.zeros(self.m.blocks if self.m.blocks <= MAX_BLOCKS else 1, np.int32))

    def _active(self) -> np.ndarray:
        return self.m.live if self.m.active_mask is None else self.m.active_mask

    # -- what is ordered ----------------------------------------------------------------------------
    def ordered(self, who: np.ndarray, time: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Returns whether accesses of the slots `who` at these times come before what `slots` do now."""
        block, rows = self.m.block_of, slots // LANES
        inside = block[who] == block[slots]
        done = (who == slots) | (inside & (self._until[rows, self.warp[who // LANES]] >= time))
        rest = np.flatnonzero(~done)
        if rest.size and (self._known or self._thread or self._all):
            done[rest] = self._all | self._between(who[rest], time[rest], slots[rest])
        return done

    def _between(self, who: np.ndarray, time: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Returns whether accesses come before those of threads that have acquired something."""
        out = np.zeros(len(who), bool)
        for slot in np.unique(slots).tolist():
            mine = np.flatnonzero(slots == slot)
            for known in (self._known.get(int(self.m.block_of[slot])), self._thread.get(slot)):
                if known is not None:
                    single = np.array([known.threads.get(s, 0) for s in who[mine].tolist()])
                    out[mine] |= np.maximum(known.blocks[self.m.block_of[who[mine]]], single) >= time[mine]
        return out


def _groups(rows: np.ndarray, key: np.ndarray) -> list[np.ndarray]:
    """Returns the rows with equal keys."""
    return [rows[key[rows] == value] for value in np.unique(key[rows])]
