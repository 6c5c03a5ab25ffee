"""The barriers of a block: which threads wait, and when they may continue.

A warp has arrived when all its live threads wait at one barrier, at the same line or at several. A barrier without a
count waits for every warp of the block that has not ended (PTX ISA, "barrier" and "exit").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine, needed
from kernels.engines.emulator.threads import LANES, Groups, join

NAMED = 16  # barriers of a block: 0 to 15
Read = Callable[[], np.ndarray]


class Barriers:
    """The threads that wait at a barrier, by its instruction (`parked`). `warnings`: messages about barriers that some
    threads returned before, by instruction."""

    def __init__(self, m: Machine):
        self.m, self.code = m, m.kernel.code
        self.parked: Groups = {}
        self.warnings: dict[int, str] = {}
        self._operands = {pc: self._readers(self.code[pc]) for pc, kind in m.flow.endings.items() if kind == "barrier"}
        self._keys = m.blocks * NAMED  # a barrier's key: block * NAMED + its id
        # bar.arrive: warps that arrived without waiting, and warps expected, by key.
        self._arrived_warps, self._expected = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._diverged: Groups = {}  # threads at a bar.arrive that wait for the rest of their warp

    def _readers(self, i: Instruction) -> tuple[Read, Read | None, Read | None]:
        """Returns readers of a barrier's id, its count of threads (None: all of the block), its predicate (bar.red)."""
        red = "red" in i.parts
        id_, *count = i.operands[1:-1] if red else i.operands
        return (
            self.m.reader(id_, "u32"),
            self.m.reader(count[0], "u32") if count else None,
            self.m.reader(i.operands[-1], "pred") if red else None,
        )

    def forget(self) -> None:
        """Forget arrivals at barriers of blocks that have ended."""
        self._arrived_warps = self._expected = np.zeros(0, np.int64)

    # -- arriving ----------------------------------------------------------------------------------
    def arrive(self, pc: int, here: np.ndarray) -> Groups:
        """Add threads that reach a barrier. Return the threads that may continue, by the barrier's instruction.

        At a barrier without a count, threads wait for release(), so that blocks continue together.
        """
        if "arrive" in self.code[pc].parts:
            here = self._whole_warps(pc, here)
            if not here.any():
                return {}
            self._count_arrivals(pc, here)
            released = self._complete(pc, here)
            join(released, pc, here)
            return released
        join(self.parked, pc, here)
        return {} if self._operands[pc][1] is None else self._complete(pc, here)

    def release(self) -> Groups:
        """Returns the threads that may continue when no other thread runs, by the barrier's instruction."""
        for pc in list(self._diverged):  # the rest of the warp has ended
            if groups := self.arrive(pc, self._diverged[pc]):
                return groups
        if not self.parked:
            return {}
        pc, threads = next(iter(self.parked.items()))
        id_, count, _ = self._operands[pc]
        if count is None and not id_().ndim and np.array_equal(threads, self.m.live):
            return self._leave(threads, self.m.block_of * NAMED, np.zeros(self.m.slots, bool))
        return self._complete(pc, threads)

    def _whole_warps(self, pc: int, here: np.ndarray) -> np.ndarray:
        """Returns the threads whose whole warp has reached the arrival at pc. bar.arrive is one instruction of a warp; the
        lanes of a warp that diverged before it come one after the other."""
        here = here | self._diverged.pop(pc, False)
        whole = np.repeat(~(self.m.live & ~here).reshape(-1, LANES).any(axis=1), LANES)
        if (rest := here & ~whole).any():
            self._diverged[pc] = rest
        return here & whole

    def _count_arrivals(self, pc: int, here: np.ndarray) -> None:
        """Count the whole warps of a bar.arrive, which do not wait."""
        key, count = self._numbers(pc, here)
        if self.m.order is not None:
            self.m.order.arrive(key[here], np.flatnonzero(here))
        if not self._arrived_warps.size:
            self._arrived_warps, self._expected = (np.zeros(self._keys, np.int64), np.zeros(self._keys, np.int64))
        warps = here.reshape(-1, LANES).any(axis=1)
        key, count = (_of_warps(np.where(here, value, 0))[warps] for value in (key, count))
        np.add.at(self._arrived_warps, key, 1)
        np.maximum.at(self._expected, key, count // LANES)

    def _numbers(self, pc: int, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (key, count of threads or 0), one a slot, checked for these threads."""
        read_id, read_count, _ = self._operands[pc]
        id_ = np.broadcast_to(read_id(), self.m.slots).astype(np.int64)
        count = np.broadcast_to(read_count() if read_count else 0, self.m.slots).astype(np.int64)
        bad = threads & (id_ >= NAMED)
        if bad.any():
            self._fail(pc, f"barrier {id_[bad][0]} does not exist: a block has 0 to {NAMED - 1}", bad)
        bad = threads & ((count % LANES != 0) | (count == 0))
        if read_count and bad.any():
            message = f"a barrier counts whole warps: {count[bad][0]} threads are no multiple of {LANES}"
            self._fail(pc, message, bad)
        return self.m.block_of * NAMED + id_, count

    # -- completing ----------------------------------------------------------------------------------
    def _complete(self, pc: int, here: np.ndarray) -> Groups:
        """Release the threads whose barrier is complete, after these have arrived at the one at pc."""
        key, expected = self._waiting()
        first = _of_warps(np.where(self.m.live, key, -1))
        arrived = (first >= 0) & ~self._incomplete(first, key)
        if len(self.parked) > 1:
            self._check_lines(np.repeat(arrived, LANES))
        required, arrivals = (
            self._required(first, arrived, expected),
            np.bincount(first[arrived], minlength=self._keys),
        )
        if self._arrived_warps.size:
            arrivals += self._arrived_warps
        done = (required > 0) & (arrivals >= required)
        for at in np.flatnonzero(done & (arrivals > required))[:1]:
            message = f"barrier {at % NAMED} is for {required[at] * LANES} threads, {arrivals[at] * LANES} have come"
            self._fail(pc, message, here)
        if self._arrived_warps.size:
            self._arrived_warps[done] = self._expected[done] = 0
        going = np.repeat(arrived & done[first], LANES) & (key >= 0)
        return self._leave(going, key, going & (expected > 0)) if going.any() else {}

    def _waiting(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (key of the barrier at which each thread waits, -1 if it does not; its count, 0 for all)."""
        key, expected = np.full(self.m.slots, -1), np.zeros(self.m.slots, np.int64)
        for pc, threads in self.parked.items():
            keys, counts = self._numbers(pc, threads)
            key[threads], expected[threads] = keys[threads], counts[threads]
        return key, expected

    def _incomplete(self, first: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Returns the warps with a live thread that does not wait at the warp's barrier."""
        return (self.m.live & (key != np.repeat(first, LANES))).reshape(-1, LANES).any(axis=1)

    def _required(self, first: np.ndarray, arrived: np.ndarray, expected: np.ndarray) -> np.ndarray:
        """Returns the number of warps that each barrier waits for, by key."""
        live = self.m.live.reshape(-1, LANES).any(axis=1)
        block = self.m.block_of[::LANES]
        all_ = np.bincount(block[live], minlength=self._keys // NAMED)[block]
        expected = _of_warps(expected) // LANES
        required = self._expected.copy() if self._expected.size else np.zeros(self._keys, np.int64)
        np.maximum.at(required, first[arrived], np.where(expected > 0, expected, all_)[arrived])
        return required

    def _check_lines(self, arrived: np.ndarray) -> None:
        """Raise EmulatorError if a warp waits at an aligned barrier and at another one of the source: an aligned barrier
        (bar.sync, __syncthreads) is one for all threads of a warp. The hardware counts arrivals at any copy of it."""
        at = np.full(self.m.slots, -1)
        for pc, threads in self.parked.items():
            at[threads] = pc
        last = np.repeat(_of_warps(at), LANES)
        differing = arrived & (at >= 0) & (at != last)
        for pc in np.unique(at[differing]):
            here = differing & (at == pc)
            here = here & ~np.isin(last, self.m.flow.copies(int(pc)))
            if not here.any():
                continue
            other = self.code[last[here][0]]
            if any(i.parts[0] == "bar" or "aligned" in i.parts for i in (self.code[pc], other)):
                message = f"not all threads of the warp reach this barrier: others wait at {other.line}"
                self._fail(int(pc), message, here)

    # -- releasing -------------------------------------------------------------------------------------
    def _leave(self, going: np.ndarray, key: np.ndarray, counted: np.ndarray) -> Groups:
        """Release threads that wait. `key` is equal for threads that waited for each other. `counted`: those at a barrier of a number of
        threads."""
        if self.m.order is not None:
            self.m.order.barrier(going, key, counted)
        released = {pc: threads & going for pc, threads in self.parked.items()}
        released = {pc: threads for pc, threads in released.items() if threads.any()}
        rest = {pc: threads & ~going for pc, threads in self.parked.items()}
        self.parked = {pc: threads for pc, threads in rest.items() if threads.any()}
        self._reduce(released, key)
        for pc, threads in released.items():
            if self._operands[pc][1] is None and pc not in self.warnings:
                self._warn_of_ended(pc, threads)
        return released

    def _reduce(self, released: Groups, key: np.ndarray) -> None:
        """Write the results of bar.red: the threads' predicates at their barrier, counted or combined."""
        red = {pc: threads for pc, threads in released.items() if "red" in self.code[pc].parts}
        if not red:
            return
        arrived, true_count = np.zeros(self._keys, np.int64), np.zeros(self._keys, np.int64)
        for pc, threads in red.items():
            predicates = np.broadcast_to(needed(self._operands[pc][2])(), self.m.slots)
            arrived += np.bincount(key[threads], minlength=self._keys)
            true_count += np.bincount(key[threads & predicates], minlength=self._keys)
        for pc, threads in red.items():
            i = self.code[pc]
            self.m.enter(threads)
            if "popc" in i.parts:
                self.m.writer(i.operands[0], "u32")(true_count[key].astype(np.uint32))
            else:
                self.m.writer(i.operands[0], "pred")(
                    (true_count == arrived if "and" in i.parts else true_count > 0)[key]
                )

    def _warn_of_ended(self, pc: int, threads: np.ndarray) -> None:
        """Add a warning if threads returned before a barrier: the hardware does not wait for them; CUDA leaves it
        undefined."""
        m = self.m
        ended = m.threads.exists & ~m.live & self._of_blocks(threads)
        if ended.any():
            slot = int(np.flatnonzero(ended)[0])
            count = np.count_nonzero(ended & (m.block_of == m.block_of[slot]))
            self.warnings[pc] = (
                f"{m.where(pc)}: {count} threads of block {m.threads.block_at(slot)}, first thread "
                f"{m.threads.thread(slot)}, return before this barrier. It does not wait for them on the hardware "
                "either, but CUDA defines it only where all threads of the block reach it."
            )

    # -- errors ----------------------------------------------------------------------------------------
    def check_skipped(self, pc: int, here: np.ndarray) -> None:
        """Raise EmulatorError if threads run the block at pc while others of their block wait at an earlier barrier."""
        for at, threads in self.parked.items():
            if self._operands[at][1] is None and pc in self.m.flow.past(at):
                skip = here & self._of_blocks(threads)
                if skip.any():
                    self._skipped(at, skip)

    def _skipped(self, pc: int, skip: np.ndarray) -> None:
        count = np.count_nonzero(skip & (self.m.block_of == self.m.block_of[skip][0]))
        message = f"not all threads of the block reach this barrier: {count} run past it while others wait"
        self._fail(pc, message, skip, "first")

    def check_deadlock(self) -> None:
        """Raise EmulatorError if threads wait: no thread runs, so no other can arrive."""
        for pc, threads in self._diverged.items():
            self._fail(pc, "deadlock: not all threads of the warp reach this arrival at a barrier", threads)
        key, expected = self._waiting() if self.parked else (np.zeros(0), np.zeros(0))
        for pc, threads in self.parked.items():
            slot = int(np.flatnonzero(threads)[0])
            missing = self.m.live & (self.m.block_of == self.m.block_of[slot]) & (key != key[slot])
            arrived = np.count_nonzero(key == key[slot])
            awaited = f"{expected[slot]} threads" if expected[slot] else "all threads of the block"
            message = f"deadlock: barrier {key[slot] % NAMED} waits for {awaited}, {arrived} have come"
            if missing.any():
                first = int(np.flatnonzero(missing)[0])
                message += f" and no other can, such as thread {self.m.threads.thread(first)}"
            self._fail(pc, message, threads)

    def _of_blocks(self, threads: np.ndarray) -> np.ndarray:
        """Returns all slots of the blocks of these threads."""
        blocks = np.zeros(self._keys // NAMED, bool)
        blocks[self.m.block_of[threads]] = True
        return blocks[self.m.block_of]

    def _fail(self, pc: int, message: str, threads: np.ndarray, role: str = "by") -> None:
        self.m.fail(pc, message, int(np.flatnonzero(threads)[0]), role)


def _of_warps(values: np.ndarray) -> np.ndarray:
    """Returns the largest value of each warp."""
    return values.reshape(-1, LANES).max(axis=1)
