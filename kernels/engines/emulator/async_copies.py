"""Copies from global to shared memory by cp.async that are under way.

Each is done as late as the hardware may do it: when its thread waits for it, or when a thread has waited for the phase of the mbarrier
that its end arrives at. Until then its bytes are neither read nor written by anyone, which is an error (memory.COMING).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.engines.emulator.memory import COMING
from kernels.engines.emulator.state import Machine, mbarrier_key, needed

_NEVER = np.iinfo(np.int64).max
_NONE = -1


@dataclass
class _Copies:
    """Copies by one instruction: of each thread its slot, its group (the number of groups that the thread had committed), the
    first byte in shared memory, the data [threads, pieces], and the offset of the mbarrier that their end arrives at."""

    pc: int
    slots: np.ndarray
    groups: np.ndarray
    offsets: np.ndarray
    data: np.ndarray
    mbarriers: np.ndarray

    @property
    def width(self) -> int:
        return self.data.shape[1] * self.data.itemsize

    def of(self, chosen: np.ndarray) -> _Copies:
        columns = (self.slots, self.groups, self.offsets, self.data, self.mbarriers)
        return _Copies(self.pc, *(column[chosen] for column in columns))


class AsyncCopies:
    """The copies of a launch, the oldest first."""

    def __init__(self, m: Machine):
        self.m = m
        self._under_way: list[_Copies] = []
        self._committed = np.zeros(m.slots, np.int64)  # groups of each thread
        m.shared.copies.append(self._describe)

    def begin(self, pc: int, offsets: np.ndarray, data: np.ndarray) -> None:
        """Begin the copies of the active threads: the first byte of each in shared memory, checked, and its data."""
        slots = self.m.active_slots()
        copies = _Copies(pc, slots, self._committed[slots], offsets, data, np.full(len(slots), _NONE))
        self.m.shared.state[offsets[:, None] + np.arange(copies.width, dtype=np.uint64)] = COMING
        self._under_way.append(copies)

    def commit(self) -> None:
        """Make a group of the copies that each active thread has begun since its last group."""
        self._committed[self.m.active_slots()] += 1

    def wait(self, pending: int | None = None) -> None:
        """Do the copies of the active threads that are in a group, but not those of the last `pending` groups. None: all copies."""
        before = np.full(self.m.slots, -1)
        active = self.m.active_slots()
        before[active] = _NEVER if pending is None else self._committed[active] - pending
        self._do_those(lambda copies: copies.groups < before[copies.slots])

    def arrive(self, mbarriers: np.ndarray) -> None:
        """Let the end of all copies of the active threads arrive at mbarriers, at an offset of shared memory each."""
        to = np.full(self.m.slots, _NONE)
        to[self.m.active_slots()] = mbarriers.astype(np.int64)
        for copies in self._under_way:
            copies.mbarriers = np.where(copies.mbarriers == _NONE, to[copies.slots], copies.mbarriers)

    def phases_ended(self, mbarriers: np.ndarray) -> None:
        """Do the copies that arrive at mbarriers, of whose phases threads know that they have ended."""
        if self._under_way and mbarriers.size:
            self._do_those(lambda copies: np.isin(copies.mbarriers, mbarriers.astype(np.int64)))

    def _do_those(self, chosen: Callable[[_Copies], np.ndarray]) -> None:
        rest = []
        for copies in self._under_way:
            now = chosen(copies)
            if now.any():
                self._do(copies.of(now))
                self._order(copies.of(now & (copies.mbarriers != _NONE)))
                copies = copies.of(~now)
            if copies.slots.size:
                rest.append(copies)
        self._under_way = rest

    def _order(self, done: _Copies) -> None:
        """Let who waits for the mbarriers of copies come after them."""
        for mbarrier in np.unique(done.mbarriers).tolist() if self.m.order is not None else ():
            key, slots = mbarrier_key(mbarrier), done.slots[done.mbarriers == mbarrier]
            needed(self.m.order).arrive(np.full(slots.size, key), slots)
            needed(self.m.order).phase_ended(key)

    def _do(self, copies: _Copies) -> None:
        m, data = self.m, copies.data
        threads, offsets = np.zeros(m.slots, bool), np.zeros(m.slots, np.uint64)
        threads[copies.slots], offsets[copies.slots] = True, copies.offsets
        for n in range(data.shape[1]):
            m.shared.store(copies.offsets + np.uint64(n * data.itemsize), data.itemsize, data[:, n])
        with m.only(threads):
            if (
                races := m.races.get("shared")
            ) is not None:  # it compared the values of several writers when the copies began
                races.write(copies.pc, offsets, copies.width, data)
            if m.proxies is not None:
                m.proxies.wrote(copies.offsets)

    def _describe(self, offset: int) -> str:
        """Returns the line of the copy that will write a byte of shared memory, as a part of a message."""
        for copies in self._under_way:
            if ((copies.offsets <= offset) & (offset < copies.offsets + np.uint64(copies.width))).any():
                return f", begun at {self.m.kernel.code[copies.pc].line}"
        return ""
