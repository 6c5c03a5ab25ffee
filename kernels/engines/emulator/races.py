"""Data races on shared and on global memory: two threads access one word, at least one of them writes it, and nothing orders them.

`order` says what does. Atomics, relaxed and volatile accesses do not race with each other. Writes of the value that a word already
holds, or that all writers write, have the same result in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.engines.emulator.memory import GLOBAL_BASE, Space
from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.order import STRONG, Order
from kernels.engines.emulator.ptx.kernel import Instruction, type_bytes
from kernels.engines.emulator.ptx.registers import names, written
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

MAX_RACES = 20  # reported in a run
DEFERRED = 1 << 26  # bytes of reads that are noted later, if a write follows
_SPACES = {"global", "shared", "local", "param", "const"}
_NOT_GLOBAL = {"shared", "local", "param", "shared::cta", "shared::cluster"}


def _unit(m: Machine, space: str) -> int:
    """Returns the bytes of a word: at most 4, and the width of the narrowest access to a space."""
    elsewhere, widths = _SPACES - {space}, [4]
    for i in m.kernel.code:
        if i.parts[0] in ("ld", "st", "atom", "red") and not elsewhere & {part.partition("::")[0] for part in i.parts}:
            widths.append(type_bytes(i.parts[-1]))
        elif i.parts[0] == "wmma" and i.parts[1] != "mma":
            widths.append(4 if i.parts[-1] == "tf32" else type_bytes(i.parts[-1]))
    return min(widths)


def guesses(code: Sequence[Instruction]) -> set[int]:
    """Returns the loads whose value is only a guess that an atomic compare-and-swap of the same address checks, as in the atomics that
    CUDA's guide builds from it."""
    moves = [
        (next(iter(written(i))), names(i.operands[1])) for i in code if i.parts[0] == "mov" and len(written(i)) == 1
    ]

    def sources(registers: set[str]) -> frozenset[str]:
        """Returns the registers and those from which their values were moved."""
        found = set(registers)
        while new := {name for target, of in moves if target in found for name in of} - found:
            found |= new
        return frozenset(found)

    swaps = [
        (sources(names(i.operands[1])), sources(names(i.operands[2])))
        for i in code
        if i.parts[0] == "atom" and "cas" in i.parts
    ]
    return {
        pc
        for pc, i in enumerate(code)
        if i.parts[0] == "ld"
        and any(written(i) & compared and sources(names(i.operands[1])) & address for address, compared in swaps)
    }


def _written_ranges(m: Machine) -> list[tuple[int, int]] | None:
    """Returns the bytes start .. stop of the buffers of global memory that stores and atomics can write to, by the parameters and
    variables that their addresses come from; None if an address comes from elsewhere."""
    writers: dict[str, list[Instruction]] = {}
    for i in m.kernel.code:
        for name in written(i):
            writers.setdefault(name, []).append(i)
    stores = (i for i in m.kernel.code if i.parts[0] in ("st", "atom", "red") and not _NOT_GLOBAL & set(i.parts))
    todo = [name for i in stores for name in names(next(o for o in i.operands if o.kind == "mem"))]
    seen, addresses = set(todo), []
    while todo:
        name = todo.pop()
        if name not in writers:
            addresses += m.addresses_of(name)
        for i in writers.get(name, ()):
            if i.parts[0] == "ld" and "param" in i.parts:
                source = i.operands[1]
                addresses += m.pointers_in(source.root.name, source.offset + source.root.offset)
            elif i.parts[0] in ("ld", "atom", "extern", "call") and i.parts[-1] in ("u64", "b64", "s64"):
                return None
            elif i.parts[0] not in ("ld", "atom"):
                new = {source for o in i.operands[1:] for source in names(o)} - seen
                seen |= new
                todo += new
    regions = (m.memory.region(address - GLOBAL_BASE) for address in addresses if address >= GLOBAL_BASE)
    return [(region.start, region.stop) for region in regions if region is not None]


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """Returns an array with zeros after its values. What is never written takes no memory."""
    out = np.zeros(size, array.dtype)
    out[: array.size] = array
    return out


class Last:
    """The last access of one kind to each word and the last one before by another thread: who, by number in the grid, and when, 0 for
    never."""

    def __init__(self, verb: str):
        self.verb, self.latest, self.several = verb, 0, False
        self.who, self.time, self.who_before, self.time_before = np.zeros((4, 0), np.int32)

    def fit(self, words: int) -> None:
        """Makes place for as many words."""
        self.who, self.time, self.who_before, self.time_before = (
            _longer(old, words) for old in (self.who, self.time, self.who_before, self.time_before)
        )

    def forget(self) -> None:
        """Forget all accesses."""
        if self.latest:
            self.time[:] = self.time_before[:] = 0
            self.latest, self.several = 0, False

    def note(self, words: np.ndarray, numbers: np.ndarray, time: int, floor: int) -> None:
        """Note accesses of threads at a time. `floor`: accesses up to it no longer matter."""
        who = self.who[words]
        other = (who != numbers) & (self.time[words] > 0)
        if other.any():
            if self.several:  # one of another warp is kept rather than one of this warp
                kept = (self.time_before[words] > floor) & (self.who_before[words] // LANES != numbers // LANES)
                other &= ~kept | (who // LANES != numbers // LANES)
            at = words[other]
            self.who_before[at], self.time_before[at], self.several = who[other], self.time[at], True
        self.who[words], self.time[words], self.latest = numbers, time, time
        hidden = self.who[words] != numbers  # of several threads that access a word by one instruction
        if hidden.any():
            at = words[hidden][::-1]  # the first one
            self.who_before[at], self.time_before[at], self.several = numbers[hidden][::-1], time, True


class Races:
    """The race detector for a space. `found`: messages, by the pairs of instructions. `kinds`: the last reads, writes and updates.
    `was_read`: of each word."""

    def __init__(self, m: Machine, name: str, memory: Space, order: Order):
        self.m, self.name, self.memory, self.order, self.unit = m, name, memory, order, _unit(m, name)
        self.reads, self.writes, self.updates = Last("reads"), Last("writes"), Last("updates")
        self.kinds = (self.reads, self.writes, self.updates)
        self._guesses = guesses(m.kernel.code)
        # A volatile access orders nothing on its own. Lanes of one warp share words by volatile accesses without any fence.
        fences = any(i.parts[0] in ("membar", "fence") for i in m.kernel.code)
        self._strong = STRONG if fences or name == "global" else STRONG - {"volatile"}
        # Whether a barrier that all threads leave together orders all accesses before it.
        self.by_block = m.threads.in_grid == 1 or (name == "shared" and m.threads.cluster_size == 1)
        # Reads: the offsets and numbers of the threads, the width, the time.
        self._deferred: list[tuple[np.ndarray, np.ndarray, int, int]] = []
        self._deferred_bytes = 0
        self.was_read = np.zeros(0, bool)
        self.written_ranges = _written_ranges(m) if name == "global" else None
        self._shift = np.uint64(self.unit.bit_length() - 1)
        self.fit()
        self.found: dict[tuple[int, int], str] = {}

    # -- accesses by the active threads, at byte offsets of the space, one a slot -----------------------
    def read(self, pc: int, offsets: np.ndarray, width: int) -> None:
        chosen, slots = self._chosen(offsets)
        if self._is_strong(pc):
            words, slots = self._expanded(chosen, slots, width)
            self._order(pc, words, slots, reads=True)
            self._check(pc, words, slots, "reads", self.writes)
            return
        self._mark_read(chosen, width)
        if not self._can_be_written(chosen):
            return
        time = self.order.tick(pc)
        if any(self.may_race(last) for last in (self.writes, self.updates)):
            words, of_words = self._expanded(chosen, slots, width)
            self._check(pc, words, of_words, "reads", self.writes)
            if pc not in self._guesses:
                self._check(pc, words, of_words, "reads", self.updates)
        if pc not in self._guesses:
            self._defer(chosen, self.m.threads.number[slots], width, time)

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
        for kind in self.kinds:
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
            self._check_scope(pc, words, slots)
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
            self.updates.note(words, self.m.threads.number[slots], time, self.floor)
            return
        bits = np.ascontiguousarray(values).reshape(-1).view(np.uint8).view(UNSIGNED[self.unit])
        time = self.order.tick(pc)
        self._check_same_instruction(pc, words, slots, bits)
        other = self.memory.bytes.view(UNSIGNED[self.unit])[words] != bits
        self._check(pc, words[other], slots[other], "writes", self.writes)
        self._check(pc, words, slots, "writes", self.updates)
        self._check(pc, words, slots, "writes", self.reads)
        self.writes.note(words, self.m.threads.number[slots], time, self.floor)

    def _check_scope(self, pc: int, words: np.ndarray, slots: np.ndarray) -> None:
        """Report an atomic of the block that updates a word which a thread of another block has updated."""
        number, padded = self.m.threads.number, self.m.threads.padded
        elsewhere = self.updates.who[words] // padded != number[slots] // padded
        self._check(pc, words[elsewhere], slots[elsewhere], "updates", self.updates)
        order = np.argsort(words, kind="stable")
        word, slot = words[order], slots[order]
        block = number[slot] // padded
        for at in np.flatnonzero((word[1:] == word[:-1]) & (block[1:] != block[:-1]))[:1].tolist():
            self._report(pc, int(word[at + 1]), int(slot[at + 1]), "updates", int(number[slot[at]]), "updates", pc)

    # -- bulk copies by a thread, of pieces of 16 bytes at these offsets ---------------------------------
    def begun_by_copy(self, pc: int, slot: int, pieces: np.ndarray) -> None:
        """Check a copy that may read from now on."""
        words = self._words_of(pieces)
        for last in (self.writes, self.updates):
            self._check(pc, words, np.full(words.size, slot), "reads", last)

    def read_by_copy(self, pc: int, slot: int, pieces: np.ndarray) -> None:
        """Note a read that a thread has waited for."""
        self.fit()
        self._mark_read(pieces, 16)
        self._defer(pieces, np.full(pieces.size, self.m.threads.number[slot]), 16, self.order.tick(pc))

    def written_by_copy(self, pc: int, slot: int, pieces: np.ndarray) -> None:
        """Check a copy that may write from now on. Its end is a phase of an mbarrier, which orders what comes after it."""
        self.settle()
        words = self._words_of(pieces)
        slots = np.full(words.size, slot)
        for last in self.kinds:
            self._check(pc, words, slots, "writes", last)

    def _words_of(self, pieces: np.ndarray) -> np.ndarray:
        self.fit()
        return (pieces[:, None].astype(np.int64) // self.unit + np.arange(16 // self.unit)).reshape(-1)

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
        self.order.strong(keys, slots, reads, writes, frozenset(self.m.kernel.code[pc].parts))

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
            for kind in self.kinds:
                kind.fit(size)
            self.was_read = _longer(self.was_read, size)

    def may_race(self, last: Last) -> bool:
        """Returns whether an access of a kind may come without an order before what is done now."""
        return last.latest > self.floor

    def _check(self, pc: int, words: np.ndarray, slots: np.ndarray, verb: str, last: Last) -> None:
        """Report an access if one of the last ones of another kind, by another thread, is not ordered before it."""
        if not words.size or not self.may_race(last):
            return
        self._check_one(pc, words, slots, verb, last, last.who, last.time)
        if last.several:
            if last is self.updates:
                # All updates of a word have one order: those before the thread's own come before what it does.
                other = last.who[words] != self.m.threads.number[slots]
                words, slots = words[other], slots[other]
            self._check_one(pc, words, slots, verb, last, last.who_before, last.time_before)

    def _check_one(self, pc: int, words, slots, verb: str, last: Last, who: np.ndarray, times: np.ndarray) -> None:
        who = who[words]
        other = np.flatnonzero((times[words] > self.floor) & (who != self.m.threads.number[slots]))
        if not other.size:
            return
        words, slots, who = words[other], slots[other], who[other]
        times = times[words]
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
    def _report(self, pc: int, word: int, slot: int, verb: str, who: int, other_verb: str, other_pc: int) -> None:
        """Report an access of a slot that races with one of a thread, by number."""
        m, code, key, number = self.m, self.m.kernel.code, (pc, other_pc), int(self.m.threads.number[slot])
        lines = {code[at].line for at in key}
        if len(self.found) >= MAX_RACES or any({code[at].line for at in pair} == lines for pair in self.found):
            return
        a, b = (m.threads.text(n) for n in (number, who))
        self.found[key] = (
            f"{m.name}, {code[pc].line}: data race on {self.name} memory: {a} {verb} {self._place(word)}, which {b} {other_verb} at "
            f"{code[other_pc].line}. {self._cure(number, who, verb, other_verb)}"
        )

    def _place(self, word: int) -> str:
        where = self.memory.describe(word * self.unit)
        return where.removeprefix("at ").removesuffix(" in shared memory")

    def _cure(self, number: int, who: int, verb: str, other_verb: str) -> str:
        """Returns what would order the accesses of two threads."""
        padded = self.m.threads.padded
        if number // LANES == who // LANES:
            return "Nothing orders lanes of one warp but __syncwarp() or __syncthreads() between them."
        if number // padded == who // padded:
            return "Nothing orders warps of one block but __syncthreads() between them."
        if self.name == "shared":
            return "Nothing orders blocks of a cluster but its barrier, or an mbarrier, between them."
        if "updates" in (verb, other_verb):
            return "Nothing orders blocks but a barrier of the grid, or another launch."
        return (
            "Nothing orders blocks but a barrier of the grid, another launch, or a flag that is written after "
            "__threadfence() and read before one; an atomic makes one access of a read and a write."
        )
