"""Data races on global memory: two threads access one word, at least one of them writes it, and nothing orders them.

`order` says what does. Atomics, volatile and relaxed accesses do not race with each other. Writes of the value that a word
already holds, or that all writers write, have the same result in any order.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.order import Order
from kernels.engines.emulator.ptx.kernel import type_bytes
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

MAX_RACES = 20  # reported in a run
STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
_ELSEWHERE = {"shared", "local", "param", "const"}


def _unit(m: Machine) -> int:
    """Returns the bytes of a word: at most 4, and the width of the narrowest access to global memory."""
    parts = [i.parts for i in m.kernel.code if i.parts[0] in ("ld", "st", "atom", "red")]
    widths = [type_bytes(p[-1]) for p in parts if not _ELSEWHERE & {part.partition("::")[0] for part in p}]
    return min([4, *widths])


class _Last:
    """The last access of one kind to each word: its thread, its instruction and its time."""

    def __init__(self, verb: str):
        self.verb, self.any = verb, False
        self.who, self.pc, self.time = np.zeros((3, 0), np.int32)

    def grow(self, words: int) -> None:
        """Makes place for as many words."""
        more = words - self.who.size
        self.who = np.append(self.who, np.full(more, -1, np.int32))
        self.pc, self.time = (np.append(old, np.zeros(more, np.int32)) for old in (self.pc, self.time))

    def note(self, words: np.ndarray, slots: np.ndarray, pc: int, time: int) -> None:
        self.any = True
        self.who[words], self.pc[words], self.time[words] = slots, pc, time


class GlobalRaces:
    """The race detector for global memory. `found`: messages, by the pairs of instructions."""

    def __init__(self, m: Machine):
        self.m, self.order, self.unit = m, Order(m), _unit(m)
        self._reads, self._writes, self._updates = _Last("reads"), _Last("writes"), _Last("updates")
        self._kinds = (self._reads, self._writes, self._updates)
        self._fit()
        self.found: dict[tuple[int, int], str] = {}

    def read(self, pc: int, offsets: np.ndarray, width: int) -> None:
        """Check a read of `width` bytes by the active threads at these offsets (one a slot)."""
        words, slots = self._words(offsets, width)
        if self._is_strong(pc):
            self._strong(pc, words, slots, reads=True)
            self._check(pc, words, slots, "reads", self._writes)
            return
        time = self.order.tick()
        self._check(pc, words, slots, "reads", self._writes)
        self._check(pc, words, slots, "reads", self._updates)
        self._reads.note(words, slots, pc, time)

    def update(self, pc: int, offsets: np.ndarray, width: int) -> None:
        """Check an atomic update of `width` bytes by the active threads at these offsets (one a slot)."""
        words, slots = self._words(offsets, width)
        self._strong(pc, words, slots, reads=True, writes=True)
        time = self.order.tick()
        self._check(pc, words, slots, "updates", self._writes)
        self._check(pc, words, slots, "updates", self._reads)
        self._updates.note(words, slots, pc, time)

    def write(self, pc: int, offsets: np.ndarray, width: int, values: np.ndarray) -> None:
        """Check a write of `width` bytes by the active threads at these offsets (one a slot), before it is done.
        `values`: the bytes of each active thread, [active, width] or as wide in a larger type."""
        words, slots = self._words(offsets, width)
        if self._is_strong(pc):
            self._strong(pc, words, slots, writes=True)
            time = self.order.tick()
            self._check(pc, words, slots, "writes", self._writes)
            self._check(pc, words, slots, "writes", self._reads)
            self._updates.note(words, slots, pc, time)
            return
        bits = np.ascontiguousarray(values).reshape(-1).view(np.uint8).view(UNSIGNED[self.unit])
        time = self.order.tick()
        self._check_same_instruction(pc, words, slots, bits)
        other = self.m.memory.bytes.view(UNSIGNED[self.unit])[words] != bits
        self._check(pc, words[other], slots[other], "writes", self._writes)
        self._check(pc, words, slots, "writes", self._updates)
        self._check(pc, words, slots, "writes", self._reads)
        self._writes.note(words, slots, pc, time)

    def accessed(self, start: int, stop: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns for each element of `width` bytes from byte start to stop whether it was read, and whether it was written."""
        self._fit()
        at, count = slice(start // self.unit, -(-stop // self.unit)), (stop - start) // width

        def of_elements(last: _Last) -> np.ndarray:
            seen = np.repeat(last.who[at] >= 0, max(1, self.unit // width))
            return np.logical_or.reduce(seen[: count * max(1, width // self.unit)].reshape(count, -1), axis=1)

        was_read, was_written, updated = map(of_elements, self._kinds)
        return was_read | updated, was_written | updated

    def writer(self, start: int) -> int:
        """Returns the slot of the thread that wrote or updated the byte `start` last, -1 if none did."""
        word = start // self.unit
        last = max((self._writes, self._updates), key=lambda kind: kind.time[word] if kind.who[word] >= 0 else -1)
        return int(last.who[word])

    def _is_strong(self, pc: int) -> bool:
        return not STRONG.isdisjoint(self.m.kernel.code[pc].parts)

    def _strong(self, pc: int, words: np.ndarray, slots: np.ndarray, reads: bool = False, writes: bool = False) -> None:
        self.order.strong(words, slots, reads, writes, frozenset(self.m.kernel.code[pc].parts))

    def _words(self, offsets: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words that the active threads access and, for each, the thread's slot."""
        m = self.m
        self._fit()
        slots = m.active_slots()
        words = (offsets[slots] // np.uint64(self.unit)).astype(np.int64)
        if width > self.unit:
            n = width // self.unit
            words, slots = (words[:, None] + np.arange(n)).reshape(-1), np.repeat(slots, n)
        return words, slots

    def _fit(self) -> None:
        """Makes place for memory that has grown by malloc, or by a variable of the module."""
        if (size := self.m.memory.bytes.size // self.unit) > self._reads.who.size:
            for kind in self._kinds:
                kind.grow(size)

    def _check(self, pc: int, words: np.ndarray, slots: np.ndarray, verb: str, last: _Last) -> None:
        """Report an access if the last one of another kind, by another thread, is not ordered before it."""
        if not last.any or not words.size:
            return
        who = last.who[words]
        other = np.flatnonzero((who >= 0) & (who != slots))
        if not other.size:
            return
        words, slots, who = words[other], slots[other], who[other]
        bad = np.flatnonzero(~self.order.ordered(who, last.time[words], slots))
        if bad.size:
            at = bad[0]
            self._report(pc, int(words[at]), int(slots[at]), verb, int(who[at]), last.verb, int(last.pc[words[at]]))

    def _check_same_instruction(self, pc: int, words: np.ndarray, slots: np.ndarray, bits: np.ndarray) -> None:
        """Report threads that write different values to one word by one instruction."""
        order = np.argsort(words, kind="stable")
        w, s, b = words[order], slots[order], bits[order]
        bad = np.flatnonzero((w[1:] == w[:-1]) & (s[1:] != s[:-1]) & (b[1:] != b[:-1]))
        if bad.size:
            at = bad[0]
            self._report(pc, int(w[at + 1]), int(s[at + 1]), "writes", int(s[at]), "writes", pc)

    def _report(self, pc: int, word: int, slot: int, verb: str, who: int, other_verb: str, other_pc: int) -> None:
        m, key = self.m, (pc, other_pc)
        line, other_line = (m.kernel.code[at].line for at in key)
        if len(self.found) >= MAX_RACES or any(
            {line, other_line} == {m.kernel.code[at].line for at in k} for k in self.found
        ):
            return
        where = m.memory.describe(word * self.unit).removeprefix("at ")
        threads = m.threads
        a, b = (f"thread {threads.thread(s)} of block {threads.block_at(s)}" for s in (slot, who))
        self.found[key] = (
            f"{m.name}, {line}: data race on global memory: {a} {verb} {where}, which {b} {other_verb} at {other_line}. "
            f"{self._cure(slot, who, verb, other_verb)}"
        )

    def _cure(self, slot: int, who: int, verb: str, other_verb: str) -> str:
        """Returns what would order the two accesses."""
        block = self.m.block_of
        if slot // LANES == who // LANES:
            return "Nothing orders lanes of one warp but __syncwarp() or __syncthreads() between them."
        if block[slot] == block[who]:
            return "Nothing orders warps of one block but __syncthreads() between them."
        if "updates" in (verb, other_verb):
            return "Nothing orders blocks but a barrier of the grid, or another launch."
        return (
            "Nothing orders blocks but a barrier of the grid, another launch, or a flag that is written after "
            "__threadfence() and read before one; an atomic makes one access of a read and a write."
        )
