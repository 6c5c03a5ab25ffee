"""Clusters: blocks that read and write each other's shared memory, and their barrier.

The address of another block's shared memory is the address in one's own with the block's rank, plus one, above it.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.memory import WINDOWS
from kernels.engines.emulator.order import Order
from kernels.engines.emulator.state import Machine, cluster_key, needed
from kernels.engines.emulator.threads import LANES

RANK = 24  # the lowest bit of a rank, plus one, in an address; no block has 2^24 bytes of shared memory
BEGINNING = 1  # the time of a launch at which its blocks begin
INSIDE = np.uint64((1 << RANK) - 1)
_WINDOW = np.uint64(WINDOWS["shared"])


def mapped(address: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Returns an address of shared memory (uint64, generic or not) in the block with a rank of the cluster."""
    return address & (_WINDOW | INSIDE) | (rank.astype(np.uint64) + np.uint64(1)) << np.uint64(RANK)


class Clusters:
    """The clusters of a launch: the blocks behind addresses, and the cluster barrier's phases."""

    def __init__(self, m: Machine):
        self.m = m
        self.size = m.threads.cluster_size
        self.rank, self.cluster_of = m.threads.cluster_rank, m.threads.cluster_of
        count = len(m.threads.blocks_of_cluster)
        self._phase = np.zeros(count, np.int64)
        self._arrived = np.zeros(m.slots, bool)  # in the current phase
        self._target = np.zeros(m.slots, np.int64)  # the phase that a thread waits for
        # Since all threads have left the barrier: the time of the first arrival, and whether one released nothing.
        self._since, self._relaxed = 0, False
        # By block and thread of another block, by number: when and by which instruction it has accessed the block's shared memory last.
        self._visits: dict[int, dict[int, tuple[int, int]]] = {}

    # -- addresses ---------------------------------------------------------------------------------
    def resolve(self, pc: int, address: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (addresses in a block, byte offsets of those blocks' shared memory) of addresses that may name
        another block of the cluster. EmulatorError if that block has ended. An unknown rank stays in the address."""
        named = np.broadcast_to(address >> np.uint64(RANK), self.m.slots).astype(np.int64)
        remote = (named > 0) & (named <= self.size)
        if not remote.any():
            return address, base
        rank = np.where(remote, named - 1, 0)
        blocks = self.m.threads.blocks_of_cluster[self.cluster_of, rank]
        self.check_alive(pc, blocks, remote)
        if self.m.order is not None:
            self._note_visits(self.m.order, pc, blocks, remote)
        base = np.where(remote, (blocks * self.m.shared.size).astype(np.uint64), base)
        return np.where(remote, address & INSIDE, address), base

    def check_alive(self, pc: int, blocks: np.ndarray, chosen: np.ndarray) -> None:
        """Raise EmulatorError if one of the `chosen` active slots accesses a block (one a slot) that has ended."""
        m = self.m
        alive = np.zeros(m.blocks, bool)
        alive[m.block_of[m.live]] = True
        bad = chosen & ~alive[blocks]
        if m.active_mask is not None:
            bad &= m.active_mask
        if bad.any():
            slot = int(np.flatnonzero(bad)[0])
            rank = int(np.flatnonzero(m.threads.blocks_of_cluster[self.cluster_of[slot]] == blocks[slot])[0])
            m.fail(pc, f"this access is to block {rank} of the cluster, which has ended", slot)

    # -- the life of blocks -------------------------------------------------------------------------
    def _note_visits(self, order: Order, pc: int, blocks: np.ndarray, chosen: np.ndarray) -> None:
        """Note accesses of chosen slots to a block each (one a slot). Report those before which a block may not have begun."""
        m, numbers = self.m, self.m.threads.number
        active = m.live if m.active_mask is None else m.active_mask
        slots = np.flatnonzero(chosen & active & (blocks != m.block_of))
        first = m.threads.blocks_here[blocks[slots]] * m.threads.padded  # the first thread of each block
        early = slots[~order.ordered(first, np.full(slots.size, BEGINNING), slots)]
        for slot in early[:1].tolist():
            self._report(pc, slot, int(blocks[slot]), "may not have begun: nothing orders its beginning before this")
        now = order.tick(pc) if slots.size else 0
        for slot in slots.tolist():
            self._visits.setdefault(int(blocks[slot]), {})[int(numbers[slot])] = now, pc

    def ended(self, threads: np.ndarray) -> None:
        """Threads have ended. Report accesses of others to the shared memory of their blocks that may come after."""
        m, order = self.m, self.m.order
        for block in np.unique(m.block_of[threads]).tolist() if order is not None and self._visits else ():
            visits = self._visits.get(block)
            if not visits or m.live[m.block_of == block].any():
                continue
            who, times = np.array(list(visits)), np.array([time for time, _ in visits.values()])
            known = np.zeros(who.size, bool)
            for slot in np.flatnonzero((m.block_of == block) & m.threads.exists)[::LANES].tolist():
                known |= needed(order).ordered(who, times, np.full(who.size, slot))
            for at in np.flatnonzero(~known)[:1].tolist():
                slot = int(np.flatnonzero(m.threads.number == who[at])[0])
                pc = visits[int(who[at])][1]
                self._report(pc, slot, block, "may have ended: nothing orders its end after this")
            del self._visits[block]

    def _report(self, pc: int, slot: int, block: int, what: str) -> None:
        m = self.m
        thread = m.threads.text(int(m.threads.number[slot]))
        other = m.threads.block_text(int(m.threads.blocks_here[block]))
        message = f"{m.where(pc)}: {thread} accesses the shared memory of block {other}, which {what}"
        m.races["shared"].found.setdefault((pc, pc), f"{message}. A barrier of the cluster does (cluster.sync()).")

    # -- the barrier -------------------------------------------------------------------------------
    def arrive(self, pc: int, releases: bool) -> None:
        """The active threads arrive at the cluster's barrier. `releases`: what they have done comes before what threads do after it."""
        m = self.m
        here = m.live if m.active_mask is None else m.active_mask
        twice = here & self._arrived
        if twice.any():
            m.fail(pc, "a second arrival in one phase of the cluster's barrier", int(np.flatnonzero(twice)[0]))
        self._relaxed |= not releases
        if m.order is not None and releases:
            slots = np.flatnonzero(here)
            m.order.arrive(self._keys(slots), slots)
            self._since = self._since or m.order.now
        self._arrived |= here
        self._target = np.where(here, self._phase[self.cluster_of] + 1, self._target)
        self._complete()

    def passed(self) -> np.ndarray:
        """Returns whether the phase that each thread waits for has ended."""
        self._complete()
        ended = self._phase[self.cluster_of] >= self._target
        if self.m.order is not None:
            self._acquire(self.m.order, self.m.active_slots()[self.m.active(ended)])
        return ended

    def _acquire(self, order: Order, slots: np.ndarray) -> None:
        """Let threads that have waited come after the arrivals."""
        all_ = slots.size == np.count_nonzero(self.m.live)
        if all_ and self._since and not self._relaxed and order.is_quiet_since(self._since):
            order.everything()
        order.waited(self._keys(slots), slots)
        if all_:
            self._since, self._relaxed = 0, False

    def _keys(self, slots: np.ndarray) -> np.ndarray:
        return cluster_key(0) + self.cluster_of[slots]

    def _complete(self) -> None:
        """Begin the next phase of the clusters whose live threads have all arrived."""
        waiting = np.bincount(self.cluster_of[self.m.live & ~self._arrived], minlength=len(self._phase))
        arrived = np.bincount(self.cluster_of[self._arrived], minlength=len(self._phase))
        done = (waiting == 0) & (arrived > 0)
        if done.any():
            self._phase += done
            self._arrived &= ~done[self.cluster_of]
            for cluster in np.flatnonzero(done).tolist():
                self.m.phase_ended(cluster_key(cluster))

    def why(self, slot: int) -> str:
        """Returns what a thread at the cluster's barrier waits for."""
        m = self.m
        missing = m.live & ~self._arrived & (self.cluster_of == self.cluster_of[slot])
        first = int(np.flatnonzero(missing)[0])
        return (
            f"the cluster's barrier waits for {np.count_nonzero(missing)} threads, such as thread "
            f"{m.threads.thread(first)} of block {m.threads.block_at(first)}"
        )
