"""What orders the accesses of two threads to memory: barriers, mbarriers, fences with atomics, barriers of the grid.

A time is the number of the access or barrier in the run. What a thread knows is, for each warp of its block and for each other
block, the time up to which their accesses come before its own (PTX ISA, "Memory Consistency Model", causality order):

- A barrier orders the warps that take part, also those that only arrive. One of the warp orders its lanes, and what one of them has
  acquired they all know. A phase of an mbarrier or of a cluster's barrier orders what the threads that arrive at it have done before
  what those that wait for it do, unless they arrive or wait relaxed.
- What one thread acquires by a flag (`releases`) its block knows after the next barrier.

Between blocks only the words of such accesses, clusters' barriers and mbarriers of clusters order anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from kernels.engines.emulator.flags import Flags, records_of
from kernels.engines.emulator.known import Known
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES, bits_of_lanes

MAX_BLOCKS = 4096  # of a grid for which it is kept which block knows which; in a larger one an acquire orders all


class Order:
    """The order of the accesses of a launch. `pcs`: the instruction at each time, -1 for a barrier. `floor`: the time of the last
    barrier that all threads of each block left together. Who accessed is the number of a thread in the grid; who accesses, a slot."""

    def __init__(self, m: Machine):
        self.m, self.pcs, self.floor = m, [-1, -1], 0
        self.block = m.block_of[::LANES].copy()  # of each row of 32 slots, a warp
        self.warp = m.thread_of[::LANES] // LANES  # its number in the block
        self._all = False  # after an acquire or a cluster's barrier in a grid of more than MAX_BLOCKS
        blocks = m.threads.in_grid
        self._no_blocks = np.zeros(blocks if blocks <= MAX_BLOCKS else 1, np.int32)
        self.flags = Flags(self)
        self._reset()

    def _reset(self) -> None:
        m = self.m
        self.warp_in_grid = m.threads.number[::LANES] // LANES  # of each row
        self.first_warp = self.warp_in_grid - self.warp  # of the row's block
        # By row and warp of the block: the time up to which that warp's accesses come before this one's.
        self.until = np.zeros((len(self.block), m.threads.padded // LANES), np.int32)
        # By row: the time up to which a lane's accesses (columns) come before those of another, by barriers of some lanes.
        self._lanes: dict[int, np.ndarray] = {}
        # By the key of a barrier or an mbarrier: what comes before the arrivals of its phase, and before those of the phases that ended.
        self._arrived: dict[int, Known] = {}
        self._phases: dict[int, Known] = {}
        # What all threads of a block have acquired, by block of the grid; since its last barrier also all lanes of a warp, by row, and
        # single threads, by slot.
        self._known: dict[int, Known] = {}
        self._warp: dict[int, Known] = {}
        self._thread: dict[int, Known] = {}
        self.flags.begin()

    def begin(self) -> None:
        """The threads of a batch begin. Nothing but what they acquire orders them after the threads before."""
        self._reset()
        self.floor = self.tick()

    @property
    def now(self) -> int:
        return len(self.pcs) - 1

    def tick(self, pc: int = -1) -> int:
        self.pcs.append(pc)
        return self.now

    # -- barriers ----------------------------------------------------------------------------------
    def barrier(self, threads: np.ndarray, key: np.ndarray, counted: np.ndarray) -> None:
        """Threads leave a barrier; those with one key waited for each other. `counted`: those at a barrier of a number of threads, for
        which threads that have ended are not counted."""
        now = self.tick()
        rows = np.flatnonzero(threads.reshape(-1, LANES).any(axis=1))
        keys = key[::LANES]
        of_all = ~np.isin(self.block, self.block[counted.reshape(-1, LANES).any(axis=1)])
        expected = np.where(np.repeat(of_all, LANES), self.m.live, self.m.threads.exists)
        live = np.bincount(self.block[expected.reshape(-1, LANES).any(axis=1)], minlength=self.m.blocks)
        whole = (np.bincount(self.block[rows], minlength=self.m.blocks) == live) & self._one_key(rows, keys)
        inside = whole[self.block[rows]]
        self.until[rows[inside]] = now
        if whole.all():
            self.floor = now
        self.flags.barrier(threads, key)
        for group in _groups(rows[~inside], keys):
            known = self.until[group].max(axis=0)
            known[self.warp[group]] = now
            self.until[group] = known
            record = self._taken(group, threads)
            if (arrived := self._arrived.pop(int(keys[group[0]]), None)) is not None:
                record = record.plus(arrived)
            for row in group.tolist():
                self.learn(record, row)
        for block in np.unique(self.block[rows[inside]]).tolist() if self.has_acquired else ():
            number = int(self.m.threads.blocks_here[block])
            record = self._taken(rows[self.block[rows] == block], threads)
            if record:
                self._known[number] = record.plus(self._known.get(number, record))

    @property
    def has_acquired(self) -> bool:
        return bool(self._known or self._warp or self._thread or any(self.flags.pending))

    @property
    def has_lanes(self) -> bool:
        return bool(self._lanes)

    def _taken(self, rows: np.ndarray, threads: np.ndarray) -> Known:
        """Returns what warps and those of their threads have acquired, or acquire at their next fence, and lets go of it."""
        if not self.has_acquired:
            return self.nothing()
        chosen = set(rows.tolist())
        found = [self._warp.pop(row) for row in self._warp.keys() & chosen]
        slots = {slot for row in chosen for slot in range(row * LANES, (row + 1) * LANES) if threads[slot]}
        found += [self._thread.pop(slot) for slot in self._thread.keys() & slots]
        for pending in self.flags.pending:
            found += records_of([pending.pop(slot) for slot in pending.keys() & slots])
        return self.nothing().plus(*found)

    def _one_key(self, rows: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Returns for each block whether its warps in `rows` have one key."""
        least, most = np.full(self.m.blocks, np.iinfo(np.int64).max), np.full(self.m.blocks, -1)
        np.minimum.at(least, self.block[rows], keys[rows])
        np.maximum.at(most, self.block[rows], keys[rows])
        return (least == most) | (most < 0)

    def warp_barrier(self, masks: np.ndarray) -> None:
        """The active threads leave a barrier of the lanes in their masks (uint32, one a slot or one for all)."""
        now, active = self.tick(), self._active()
        missing = bits_of_lanes(self.m.threads.exists) & ~np.broadcast_to(masks, self.m.slots).reshape(-1, LANES).T
        here = active.reshape(-1, LANES)
        whole = ~((missing.T != 0) & here).any(axis=1)
        rows = np.flatnonzero(here.any(axis=1) & whole)
        self.until[rows, self.warp[rows]] = now
        for row in np.flatnonzero(here.any(axis=1) & ~whole).tolist():
            of = np.broadcast_to(masks, self.m.slots)[row * LANES : (row + 1) * LANES]
            together = (
                (of[:, None] >> np.arange(LANES, dtype=np.uint32) & 1).astype(bool) & here[row][:, None] & here[row]
            )
            self._lanes.setdefault(row, np.zeros((LANES, LANES), np.int32))[together] = now
        if self.has_acquired or self.flags.acquires:
            for row, slots in self._groups_of_lanes(masks):
                self._share(row, slots)
                self.flags.barrier_of_lanes(slots)

    def exchange(self, masks: np.ndarray) -> None:
        """The active threads exchange values with the lanes in their masks. What one of them has acquired they all know then, as CUDA's
        cooperative groups assume. It is no barrier: what they have done themselves stays without an order."""
        for row, slots in self._groups_of_lanes(masks) if self.has_acquired else ():
            self._share(row, slots)
            self.flags.share(slots)

    def _groups_of_lanes(self, masks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the active lanes with one mask that it names: the row, the slots."""
        active, masks = self._active(), np.broadcast_to(masks, self.m.slots)
        for row in np.flatnonzero(active.reshape(-1, LANES).any(axis=1)).tolist():
            lanes = np.arange(row * LANES, (row + 1) * LANES)
            lanes = lanes[active[lanes]]
            for mask in np.unique(masks[lanes]).tolist():
                of_mask = lanes[(masks[lanes] == mask) & (mask >> (lanes % LANES) & 1 == 1)]
                if of_mask.size:
                    yield row, of_mask

    def _share(self, row: int, slots: np.ndarray) -> None:
        """Let lanes know what one of them has acquired."""
        found = [self._thread[slot] for slot in slots.tolist() if slot in self._thread]
        if found:
            record = self.nothing().plus(*found)
            if self._is_whole(row, slots.tolist()):
                self.learn(record, row)
            else:
                self.acquire(slots.tolist(), [record])

    def _active(self) -> np.ndarray:
        return self.m.live if self.m.active_mask is None else self.m.active_mask

    # -- arrivals and waits ----------------------------------------------------------------------------
    def arrive(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Threads arrive at barriers or mbarriers, one key each, and do not wait."""
        now = self.tick()
        for key, row, of_row in _by_key_and_row(keys, slots):
            record = self._of_threads(row, of_row, now)
            self._arrived[key] = record.plus(self._arrived.get(key, record))
            self.flags.arrive(key, of_row)

    def phase_ended(self, key: int) -> None:
        """All arrivals at a phase of an mbarrier, or of the barrier of a cluster, have come."""
        if (arrived := self._arrived.pop(key, None)) is not None:
            self._phases[key] = arrived.plus(self._phases.get(key, arrived))
        self.flags.phase_ended(key)

    def waited(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Threads have waited for a phase, one key each."""
        for key, row, of_row in _by_key_and_row(keys, slots):
            self.flags.waited(key, of_row)
            if (record := self._phases.get(key)) is None:
                continue
            if self._is_whole(row, of_row):
                self.learn(record, row)
            else:
                self.acquire(of_row, [record])

    def everything(self) -> None:
        """All that was done so far comes before what is done from now on, in each cluster."""
        now = self.tick()
        self.until[:], self.floor = now, now
        of = self.m.threads.cluster_of_block
        self._all |= of.size > MAX_BLOCKS
        for members in self.m.threads.blocks_of_cluster if not self._all else ():
            times = np.zeros(of.size, np.int32)
            times[members] = now
            for block in members.tolist():
                self._known[block] = Known(times).plus(self._known.get(block, Known(times)))

    def is_quiet_since(self, time: int) -> bool:
        """Returns whether nothing was accessed after a time."""
        return all(pc < 0 for pc in self.pcs[time:])

    def _of_threads(self, row: int, slots: list[int], time: int) -> Known:
        """Returns what threads of one warp have done up to a time and what they know."""
        first = int(self.first_warp[row])
        warps = {first + warp: until for warp, until in enumerate(self.until[row].tolist()) if until}
        threads: dict[int, int] = {}
        if self._is_whole(row, slots):
            warps[int(self.warp_in_grid[row])] = time
        else:
            for slot in slots:
                threads |= self.of_lanes(slot)
            threads |= dict.fromkeys(self.m.threads.number[slots].tolist(), time)
        return self.known(0, 0, warps, threads).plus(*self.holders(slots))

    def _is_whole(self, row: int, slots: list[int]) -> bool:
        """Returns whether these are all live threads of a warp."""
        return np.count_nonzero(self.m.live[row * LANES : (row + 1) * LANES]) == len(slots)

    # -- what threads know -------------------------------------------------------------------------------
    def acquire(self, slots: Sequence[int], records: Iterable[Known]) -> None:
        """Let threads know what records say."""
        if self.m.threads.in_grid > MAX_BLOCKS:
            self._all = True
            return
        record = self.nothing().plus(*records)
        for slot in slots:
            self._thread[slot] = record.plus(self._thread.get(slot, record))

    def learn(self, record: Known, row: int) -> None:
        """Let all lanes of a warp know what a record says."""
        first, rest = int(self.first_warp[row]), bool(record.threads) or bool(record.blocks.any())
        for warp, time in record.warps.items():
            of_block = warp - first
            if 0 <= of_block < self.until.shape[1]:
                self.until[row, of_block] = max(self.until[row, of_block], time)
            else:
                rest = True
        if rest:
            self._warp[row] = record.plus(self._warp.get(row, record))

    def holders(self, slots: Sequence[int]) -> list[Known]:
        """Returns what threads of one warp have acquired."""
        holders = [self._known.get(self.block_at(slots[0])), self._warp.get(slots[0] // LANES)]
        holders += [self._thread.get(slot) for slot in slots] if self._thread else []
        return [known for known in holders if known is not None]

    def of_lanes(self, slot: int) -> dict[int, int]:
        """Returns up to which time the accesses of the lanes of a thread's warp come before its own by barriers of some lanes, by their
        numbers in the grid."""
        if (lanes := self._lanes.get(slot // LANES)) is None:
            return {}
        first = int(self.warp_in_grid[slot // LANES]) * LANES
        return {first + lane: time for lane, time in enumerate(lanes[slot % LANES].tolist()) if time}

    def block_at(self, slot: int) -> int:
        return int(self.m.threads.index_of[slot])

    def nothing(self) -> Known:
        return Known(self._no_blocks)

    def known(self, block: int, time: int, warps: Mapping[int, int], threads: Mapping[int, int]) -> Known:
        """Returns what who comes after a block up to a time, and after warps and threads, knows."""
        blocks = self._no_blocks.copy()
        blocks[block : block + 1] = time
        return Known(blocks, warps, threads)

    # -- what is ordered ----------------------------------------------------------------------------
    def ordered(self, who: np.ndarray, time: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Returns whether accesses of the threads `who` at these times come before what `slots` do now."""
        rows, warps = slots // LANES, who // LANES
        of_block = warps - self.first_warp[rows]
        inside = (of_block >= 0) & (of_block < self.until.shape[1])
        done = who == self.m.threads.number[slots]
        done |= inside & (self.until[rows, np.where(inside, of_block, 0)] >= time)
        in_warp = warps == self.warp_in_grid[rows]
        for row in np.unique(rows[~done & in_warp]).tolist() if self._lanes else ():
            if (lanes := self._lanes.get(row)) is not None:
                mine = np.flatnonzero((rows == row) & in_warp)
                done[mine] |= lanes[slots[mine] % LANES, who[mine] % LANES] >= time[mine]
        rest = np.flatnonzero(~done)
        if rest.size and (self._known or self._warp or self._thread or self._all):
            done[rest] = self._all | self._between(who[rest], time[rest], slots[rest])
        return done

    def _between(self, who: np.ndarray, time: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Returns whether accesses come before those of threads that have acquired something."""
        out = np.zeros(len(who), bool)
        for slot in np.unique(slots).tolist():
            mine = np.flatnonzero(slots == slot)
            for known in self.holders([slot]):
                out[mine] |= known.until(who[mine], self.m.threads.padded) >= time[mine]
        return out


def _groups(rows: np.ndarray, key: np.ndarray) -> list[np.ndarray]:
    """Returns the rows with equal keys."""
    return [rows[key[rows] == value] for value in np.unique(key[rows])]


def _by_key_and_row(keys: np.ndarray, slots: np.ndarray) -> list[tuple[int, int, list[int]]]:
    """Returns the slots with one key in one row, for each such pair."""
    groups: dict[tuple[int, int], list[int]] = {}
    for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
        groups.setdefault((key, slot // LANES), []).append(slot)
    return [(key, row, groups[key, row]) for key, row in sorted(groups)]
