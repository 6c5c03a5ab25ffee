"""Data races on shared and on global memory: two threads access one word, at least one of them writes it, and nothing orders them.

`order` says what does. Atomics, relaxed and volatile accesses do not race with each other. Writes of the value that a word already
holds, or that all writers write, have the same result in any order.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.flags import STRONG, orders_some_threads
from kernels.engines.emulator.last import All, Last, longer
from kernels.engines.emulator.memory import Space
from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.order import Order
from kernels.engines.emulator.patterns import guesses, unit_of, updates_by_hand, written_ranges
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

MAX_RACES = 20  # reported in a run
DEFERRED = 1 << 26  # bytes of reads that are noted later, if a write follows


class Races:
    """The race detector for a space. `found`: messages, by the pairs of instructions. `kinds`: the last reads, writes and updates.
    `was_read`: of each word."""

    def __init__(self, m: Machine, name: str, memory: Space, order: Order):
        self.m, self.name, self.memory, self.order, self.unit = m, name, memory, order, unit_of(m, name)
        self.reads = All("reads") if orders_some_threads(m.kernel.code) else Last("reads")
        self.writes, self.updates, self.strong_reads = Last("writes"), Last("updates"), Last("reads")
        self.kinds = (self.reads, self.writes, self.updates)
        self._guesses, self._updates_by_hand = guesses(m.kernel.code), updates_by_hand(m.kernel.code)
        self._times_of_loads: dict[
            int, np.ndarray
        ] = {}  # of those of updates by hand: by slot, when it was executed last
        # A volatile access orders nothing on its own. Lanes of one warp share words by volatile accesses without any fence.
        fences = any(i.parts[0] in ("membar", "fence") for i in m.kernel.code)
        self._strong = STRONG if fences or name == "global" else STRONG - {"volatile"}
        # Whether a barrier that all threads leave together orders all accesses before it.
        self._has_mbarriers = any(i.parts[0] == "mbarrier" for i in m.kernel.code)
        self.by_block = m.threads.in_grid == 1 or (name == "shared" and m.threads.cluster_size == 1)
        # Reads: the offsets and numbers of the threads, the width, the time.
        self._deferred: list[tuple[np.ndarray, np.ndarray, int, int]] = []
        self._deferred_bytes = 0
        self.was_read = np.zeros(0, bool)
        self.written_ranges = written_ranges(m) if name == "global" else None
        self._shift = np.uint64(self.unit.bit_length() - 1)
        self.fit()
        self.found: dict[tuple[int, int], str] = {}

    # -- accesses by the active threads, at byte offsets of the space, one a slot -----------------------
    def read(self, pc: int, offsets: np.ndarray, width: int) -> None:
        chosen, slots = self._chosen(offsets)
        self._mark_read(chosen, width)
        if self._is_strong(pc):
            self._read_strongly(pc, *self._expanded(chosen, slots, width))
            return
        if not self._can_be_written(chosen):
            return
        if "nc" in self.m.kernel.code[pc].parts:
            self._check_constant(pc, *self._expanded(chosen, slots, width))
        time = self.order.tick(pc)
        if any(self.may_race(last) for last in (self.writes, self.updates)):
            words, of_words = self._expanded(chosen, slots, width)
            self._check(pc, words, of_words, "reads", self.writes)
            if pc not in self._guesses:
                self._check(pc, words, of_words, "reads", self.updates)
        if pc not in self._guesses:
            self._defer(chosen, self.m.threads.number[slots], width, time)

    def _read_strongly(self, pc: int, words: np.ndarray, slots: np.ndarray) -> None:
        self._order(pc, words, slots, reads=True)
        time = self.order.tick(pc)
        self._check(pc, words, slots, "reads", self.writes)
        parts = self.m.kernel.code[pc].parts
        if "cta" in parts and self.name == "global":
            self._check_scope(pc, words, slots, "reads")
        if "volatile" in parts and self.name == "shared" and pc not in self.m.flow.polled:
            self._check_lanes(pc, words, slots)
        self.strong_reads.note(words, self.m.threads.number[slots], time, self.floor)
        if self._updates_by_hand:
            self._times_of_loads.setdefault(pc, np.zeros(self.m.slots, np.int64))[slots] = time

    def _mark_read(self, chosen: np.ndarray, width: int) -> None:
        count = max(1, width // self.unit)
        if count > 8:  # bytes of a vector
            for part in range(0, width, 8 * self.unit):
                self._mark_read(chosen + np.uint64(part), 8 * self.unit)
            return
        marks = self.was_read.view(UNSIGNED[count])
        marks[chosen >> np.uint64(max(width, self.unit).bit_length() - 1)] = 0x0101010101010101 & (1 << 8 * count) - 1

    def _can_be_written(self, chosen: np.ndarray) -> bool:
        """Returns whether a thread may write to what is read at some time."""
        if self.written_ranges is None or not chosen.size:
            return True
        first, last = int(chosen.min()), int(chosen.max())
        return any(first < stop and start <= last for start, stop in self.written_ranges)

    def lines_that_may_be_written(self, size: int) -> np.ndarray:
        """Returns for each line of `size` bytes whether a thread may write to it at some time (uint8)."""
        lines = np.zeros(self.memory.bytes.size // size + 2, np.uint8)
        for start, stop in [(0, self.memory.bytes.size)] if self.written_ranges is None else self.written_ranges:
            lines[start // size : (stop - 1) // size + 1] = 1
        return lines

    @property
    def floor(self) -> int:
        """The time up to which all accesses come before what is done now, 0 for none."""
        return self.order.floor if self.by_block else 0

    def _defer(self, chosen: np.ndarray, numbers: np.ndarray, width: int, time: int) -> None:
        """Keep a read until a write follows. Most reads are ordered by a barrier before that."""
        self._deferred.append((chosen, numbers, width, time))
        self._deferred_bytes += chosen.nbytes
        if self._deferred_bytes > DEFERRED:
            self.settle()

    def settle(self) -> None:
        """Note the reads that a write may race with."""
        for chosen, numbers, width, time in self._deferred:
            if time > self.floor:
                self.reads.note(*self._expanded(chosen, numbers, width), time, self.floor)
        self._deferred, self._deferred_bytes = [], 0

    def forget(self) -> None:
        """Forget all accesses to memory that the threads of the next batch have for their own."""
        self._deferred, self._deferred_bytes = [], 0
        self.was_read[:] = False
        for kind in (*self.kinds, self.strong_reads):
            kind.forget()

    def update(self, pc: int, offsets: np.ndarray, width: int) -> None:
        """Check an atomic update."""
        self.settle()
        words, slots = self._words(offsets, width)
        self._order(pc, words, slots, reads=True, writes=True)
        time = self.order.tick(pc)
        self._check(pc, words, slots, "updates", self.writes)
        self._check(pc, words, slots, "updates", self.reads)
        if "cta" in self.m.kernel.code[pc].parts and self.name == "global":
            self._check_scope(pc, words, slots, "updates")
        self.updates.note(words, self.m.threads.number[slots], time, self.floor)

    def write(self, pc: int, offsets: np.ndarray, width: int, values: np.ndarray) -> None:
        """Check a write before it is done. `values`: the bytes of each active thread, [active, width] or as wide in a larger
        type."""
        self.settle()
        words, slots = self._words(offsets, width)
        if self._is_strong(pc):
            self._order(pc, words, slots, writes=True)
            time = self.order.tick(pc)
            self._check(pc, words, slots, "writes", self.writes)
            self._check(pc, words, slots, "writes", self.reads)
            if "cta" in self.m.kernel.code[pc].parts and self.name == "global":
                self._check_scope(pc, words, slots, "writes")
            if pc in self._updates_by_hand:
                other = self._differ(words, values)
                self._check_lost(pc, words[other], slots[other])
            self.updates.note(words, self.m.threads.number[slots], time, self.floor)
            return
        bits = self._bits(values)
        time = self.order.tick(pc)
        self._check_same_instruction(pc, words, slots, bits)
        other = self._differ(words, values)
        self._check(pc, words[other], slots[other], "writes", self.writes)
        self._check(pc, words, slots, "writes", self.updates)
        self._check(pc, words, slots, "writes", self.reads)
        self._check(pc, words, slots, "writes", self.strong_reads)
        self.writes.note(words, self.m.threads.number[slots], time, self.floor)

    def _bits(self, values: np.ndarray) -> np.ndarray:
        """Returns the bytes of each word that threads write."""
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).view(UNSIGNED[self.unit])

    def _differ(self, words: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Returns whether words are written that hold something else."""
        return self.memory.bytes.view(UNSIGNED[self.unit])[words] != self._bits(values)

    def _check_constant(self, pc: int, words: np.ndarray, slots: np.ndarray) -> None:
        """Report a read through the cache of constants of what a thread has written."""
        for last in (self.writes, self.updates):
            for at in np.flatnonzero(last.time[words] > 0)[:1].tolist():
                cure = "No thread may write to what __ldg or a pointer to const __restrict__ reads in the same launch."
                who, other_pc = int(last.who[words[at]]), self.order.pcs[last.time[words[at]]]
                self._report(pc, int(words[at]), int(slots[at]), "reads", who, last.verb, other_pc, cure)

    def _check_lost(self, pc: int, words: np.ndarray, slots: np.ndarray) -> None:
        """Report a thread that writes what it made of a word's value if another one has written the word since it read it."""
        loads = [self._times_of_loads[at][slots] for at in self._updates_by_hand[pc] if at in self._times_of_loads]
        read_at, number, last = np.max(loads, axis=0, initial=0), self.m.threads.number[slots], self.updates
        cure = "It is made of what was there before: one of both updates is lost. An atomic makes one access of a read and a write."
        lost = np.flatnonzero((last.time[words] > read_at) & (last.who[words] != number) & (read_at > 0))
        for at in lost[:1].tolist():
            who, other_pc = int(last.who[words[at]]), self.order.pcs[last.time[words[at]]]
            self._report(pc, int(words[at]), int(slots[at]), "writes", who, "writes", other_pc, cure)
        order = np.argsort(words, kind="stable")
        word, slot = words[order], slots[order]
        for at in np.flatnonzero((word[1:] == word[:-1]) & (slot[1:] != slot[:-1]))[:1].tolist():
            self._report(pc, int(word[at]), int(slot[at + 1]), "writes", int(number[order[at]]), "writes", pc, cure)

    def _check_scope(self, pc: int, words: np.ndarray, slots: np.ndarray, verb: str) -> None:
        """Report an access of the scope of a block to a word that a thread of another block has updated."""
        number, padded = self.m.threads.number, self.m.threads.padded
        elsewhere = self.updates.who[words] // padded != number[slots] // padded
        self._check(pc, words[elsewhere], slots[elsewhere], verb, self.updates)
        order = np.argsort(words, kind="stable")
        word, slot = words[order], slots[order]
        block = number[slot] // padded
        for at in np.flatnonzero((word[1:] == word[:-1]) & (block[1:] != block[:-1]))[:1].tolist():
            if verb != "reads":
                self._report(pc, int(word[at + 1]), int(slot[at + 1]), verb, int(number[slot[at]]), verb, pc)

    def _check_lanes(self, pc: int, words: np.ndarray, slots: np.ndarray) -> None:
        """Report a volatile load of what another lane of the warp has stored, unless the lane waits for it: nothing orders lanes."""
        same = self.updates.who[words] // LANES == self.m.threads.number[slots] // LANES
        self._check(pc, words[same], slots[same], "reads", self.updates)

    # -- bulk copies by a thread, of elements of these offsets and this width -------------------------------
    def begun_by_copy(self, pc: int, slot: int, offsets: np.ndarray, width: int) -> None:
        """Check a copy that may read from now on."""
        words, slots = self._words_of(slot, offsets, width)
        for last in (self.writes, self.updates):
            self._check(pc, words, slots, "reads", last)

    def read_by_copy(self, pc: int, slot: int, offsets: np.ndarray, width: int) -> None:
        """Note a read that a thread has waited for."""
        self.fit()
        self._mark_read(offsets, width)
        self._defer(offsets, np.full(offsets.size, self.m.threads.number[slot]), width, self.order.tick(pc))

    def overwritten_by_copy(self, pc: int, slot: int, offsets: np.ndarray, width: int) -> None:
        """Check a copy that may write from now on."""
        self.settle()
        words, slots = self._words_of(slot, offsets, width)
        for last in (*self.kinds, self.strong_reads):
            self._check(pc, words, slots, "writes", last)

    def written_by_copy(self, pc: int, slot: int, offsets: np.ndarray, width: int) -> None:
        """Note a write that a thread has waited for."""
        self.overwritten_by_copy(pc, slot, offsets, width)
        words, _ = self._words_of(slot, offsets, width)
        self.writes.note(words, np.full(words.size, self.m.threads.number[slot]), self.order.tick(pc), self.floor)

    def _words_of(self, slot: int, offsets: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        self.fit()
        return self._expanded(offsets, np.full(offsets.size, slot), width)

    # -- what was accessed ---------------------------------------------------------------------------
    def accessed(self, start: int, stop: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns for each element of `width` bytes from byte start to stop whether it was read, and whether it was written."""
        was_written, updated = (self._of_elements(last.time, start, stop, width) for last in self.kinds[1:])
        return self._of_elements(self.was_read, start, stop, width) | updated, was_written | updated

    def written_by_two(self, start: int, stop: int, width: int) -> np.ndarray:
        """Returns for each element whether two threads wrote it, one after the other and not by atomics."""
        return self._of_elements(self.writes.time_before, start, stop, width)

    def _of_elements(self, marks: np.ndarray, start: int, stop: int, width: int) -> np.ndarray:
        """Returns for each element whether one of its words has a mark."""
        self.fit()
        count = (stop - start) // width
        of_words = np.repeat(marks[start // self.unit : -(-stop // self.unit)] != 0, max(1, self.unit // width))
        return of_words[: count * max(1, width // self.unit)].reshape(count, -1).max(axis=1)

    def writer(self, start: int) -> tuple[int, int]:
        """Returns the number of the thread that wrote or updated the byte `start` last, and its instruction; -1 if none did."""
        word = start // self.unit
        last = max((self.writes, self.updates), key=lambda kind: kind.time[word])
        return (int(last.who[word]), self.order.pcs[last.time[word]]) if last.time[word] else (-1, -1)

    # -- checks --------------------------------------------------------------------------------------
    def _is_strong(self, pc: int) -> bool:
        return not self._strong.isdisjoint(self.m.kernel.code[pc].parts)

    def _order(self, pc: int, words: np.ndarray, slots: np.ndarray, reads: bool = False, writes: bool = False) -> None:
        keys = words if self.name == "global" else ~words
        self.order.flags.strong(keys, slots, reads, writes, frozenset(self.m.kernel.code[pc].parts))

    def _words(self, offsets: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words that the active threads access and, for each, the thread's slot."""
        return self._expanded(*self._chosen(offsets), width)

    def _chosen(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the offsets of the active threads and their slots."""
        self.fit()
        slots = self.m.active_slots()
        return offsets if self.m.active_mask is None else offsets[slots], slots

    def _expanded(self, chosen: np.ndarray, threads: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words of accesses at these offsets and, for each, its thread."""
        words = (chosen >> self._shift).astype(np.int64)
        if width > self.unit:
            n = width // self.unit
            words, threads = (words[:, None] + np.arange(n)).reshape(-1), np.repeat(threads, n)
        return words, threads

    def fit(self) -> None:
        """Makes place for memory that has grown by malloc, or by a variable of the module."""
        if (size := self.memory.bytes.size // self.unit) > self.reads.who.size:
            for kind in (*self.kinds, self.strong_reads):
                kind.fit(size)
            self.was_read = longer(self.was_read, size)

    def may_race(self, last: Last) -> bool:
        """Returns whether an access of a kind may come without an order before what is done now."""
        return last.latest > self.floor

    def _check(self, pc: int, words: np.ndarray, slots: np.ndarray, verb: str, last: Last) -> None:
        """Report an access if one of the last ones of another kind, by another thread, is not ordered before it."""
        if not words.size or not self.may_race(last):
            return
        self._check_one(pc, words, slots, verb, last, last.who[words], last.time[words])
        if isinstance(last, All) and last.has_others:
            at, who, times = last.others(words, np.maximum(self.writes.time[words], self.floor))
            self._check_one(pc, words[at], slots[at], verb, last, who, times)
        if last.several:
            if last is self.updates:
                # All updates of a word have one order: those before the thread's own come before what it does.
                other = last.who[words] != self.m.threads.number[slots]
                words, slots = words[other], slots[other]
            self._check_one(pc, words, slots, verb, last, last.who_before[words], last.time_before[words])

    def _check_one(self, pc: int, words, slots, verb: str, last: Last, who: np.ndarray, times: np.ndarray) -> None:
        other = np.flatnonzero((times > self.floor) & (who != self.m.threads.number[slots]))
        if not other.size:
            return
        words, slots, who, times = words[other], slots[other], who[other], times[other]
        bad = np.flatnonzero(~self.order.ordered(who, times, slots))
        if bad.size:
            at = bad[0]
            other_pc = self.order.pcs[times[at]]
            self._report(pc, int(words[at]), int(slots[at]), verb, int(who[at]), last.verb, other_pc)

    def _check_same_instruction(self, pc: int, words: np.ndarray, slots: np.ndarray, bits: np.ndarray) -> None:
        """Report threads that write different values to one word by one instruction."""
        if words.size < 2 or (words[1:] > words[:-1]).all():
            return
        order = np.argsort(words, kind="stable")
        w, s, b = words[order], slots[order], bits[order]
        bad = np.flatnonzero((w[1:] == w[:-1]) & (s[1:] != s[:-1]) & (b[1:] != b[:-1]))
        if bad.size:
            at = bad[0]
            who = int(self.m.threads.number[s[at]])
            self._report(pc, int(w[at + 1]), int(s[at + 1]), "writes", who, "writes", pc)

    # -- reports -------------------------------------------------------------------------------------
    def _report(
        self, pc: int, word: int, slot: int, verb: str, who: int, other_verb: str, other_pc: int, cure: str = ""
    ) -> None:
        """Report an access of a slot that races with one of a thread, by number. `cure`: what to write instead."""
        m, key, number = self.m, (pc, other_pc), int(self.m.threads.number[slot])
        lines = {*map(m.line, key)}
        if len(self.found) >= MAX_RACES or any({*map(m.line, pair)} == lines for pair in self.found):
            return
        a, b = (m.threads.text(n) for n in (number, who))
        self.found[key] = (
            f"{m.name}, {m.line(pc)}: data race on {self.name} memory: {a} {verb} {self._place(word)}, which {b} {other_verb} at "
            f"{m.line(other_pc)}. {cure or self._cure(number, who, (verb, other_verb), key)}"
        )
        if m.trace is not None:
            m.trace.raced(self.found[key])

    def _place(self, word: int) -> str:
        where = self.memory.describe(word * self.unit)
        return where.removeprefix("at ").removesuffix(" in shared memory")

    def _cure(self, number: int, who: int, verbs: tuple[str, str], pcs: tuple[int, int]) -> str:
        """Returns what would order the accesses of two threads by two instructions."""
        padded, code = self.m.threads.padded, self.m.kernel.code
        inside = number // padded == who // padded
        if not inside and any("cta" in code[pc].parts for pc in pcs):
            return "What is of the scope of a block (_block, .cta) is atomic and ordered for that block only."
        if "updates" in verbs and set(verbs) != {"updates"}:
            return (
                "An atomic does not order what is not atomic beside it. Make both atomic (atomicExch, a volatile load), or put a "
                f"barrier of the {'block' if inside else 'grid'} between them."
            )
        if number // LANES == who // LANES:
            return "Nothing orders lanes of one warp but __syncwarp() or __syncthreads() between them."
        if inside:
            also = ", or an arrival at an mbarrier and a wait for it" if self._has_mbarriers else ""
            lanes = ". An arrival or a wait of one lane is not one of its warp without __syncwarp()" if also else ""
            return f"Nothing orders warps of one block but __syncthreads() between them{also}{lanes}."
        if self.name == "shared":
            return "Nothing orders blocks of a cluster but its barrier, or an mbarrier, between them."
        if "updates" in verbs:
            return "Nothing orders blocks but a barrier of the grid, or another launch."
        return (
            "Nothing orders blocks but a barrier of the grid, another launch, or a flag that is written after "
            "__threadfence() and read before one; an atomic makes one access of a read and a write."
        )
