"""Data races on shared memory: two threads use one word with no barrier between them, and one of them writes.

A race is a write of a different value, a read and a write of any value, or an atomic and a plain read or write.
Accesses with the same result in any order are no race: atomics with atomics, and writes of the value that the word
already holds or that all of the writers write, in one warp or in several.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.operations.dtypes import UNSIGNED
from kernels.engines.emulator.ptx.kernel import type_bytes
from kernels.engines.emulator.state import Machine

MAX_RACES = 20  # races reported in a run
_ELSEWHERE = {"global", "local", "param", "const"}


def _unit(m: Machine) -> int:
    """Returns the bytes of a word: at most 4, and the width of the narrowest access to shared memory."""
    widths = [4]
    for i in m.kernel.code:
        if i.parts[0] in ("ld", "st") and not _ELSEWHERE & set(i.parts):
            widths.append(type_bytes(i.parts[-1]))
        elif i.parts[0] == "wmma" and i.parts[1] != "mma":
            widths.append(4 if i.parts[-1] == "tf32" else type_bytes(i.parts[-1]))
    return min(widths)


class _Accesses:
    """The accesses of one kind to each word since the block's last barrier.

    For each word: the last thread, and whether several threads, or threads of several warps, made accesses that no
    barrier of the warp has ordered.
    """

    def __init__(self, words: int, verb: str):
        self.verb = verb
        self.who, self._epoch = np.full(words, -1), np.full(words, -1)
        self._warp_epoch = np.zeros(words, np.int64)
        self._several, self._warps = np.zeros(words, bool), np.zeros(words, bool)
        self.pc = np.zeros(words, np.int32)  # of the last access
        self.latest = -1  # epoch of the last access to any word

    def conflicts(self, words, slots, epoch: int, warp_epoch) -> np.ndarray:
        """Returns for each word whether another thread accessed it with no barrier between that access and this."""
        other = self._several[words] | (self.who[words] != slots)
        return self._unordered(words, slots, epoch, warp_epoch) & other

    def _unordered(self, words, slots, epoch: int, warp_epoch) -> np.ndarray:
        """Returns for each word whether an access since the block's barrier is unordered: no barrier of the warp is
        between it and this access."""
        one_warp = (self.who[words] // 32 == slots // 32) & ~self._warps[words]
        ordered = one_warp & (self._warp_epoch[words] < warp_epoch[slots // 32])
        return (self._epoch[words] == epoch) & ~ordered

    def note(self, pc: int, words, slots, epoch: int, warp_epoch) -> None:
        again = self._unordered(words, slots, epoch, warp_epoch)
        several = again & (self._several[words] | (self.who[words] != slots))
        warps = again & (self._warps[words] | (self.who[words] // 32 != slots // 32))
        self._several[words], self._warps[words] = several, warps
        order = np.argsort(words, kind="stable")
        w, s = words[order], slots[order]
        together = (w[1:] == w[:-1]) & (s[1:] != s[:-1])
        self._several[w[1:][together]] = True
        self._warps[w[1:][together & (s[1:] // 32 != s[:-1] // 32)]] = True
        self.who[words], self.pc[words], self._epoch[words], self.latest = slots, pc, epoch, epoch
        self._warp_epoch[words] = warp_epoch[slots // 32]


class Races:
    """The race detector: for each word of shared memory, the threads that read, wrote and atomically updated it since
    the last barrier. A word has 4 bytes, or as few as the kernel's narrowest access, so that accesses to neighbouring
    halves do not conflict.

    A barrier of the warp (__syncwarp), counted separately, may also order threads of one warp.
    """

    def __init__(self, m: Machine):
        self.m, self.unit = m, _unit(m)
        words = m.shared.bytes.size // self.unit
        self.epoch = 0  # of the block's barriers
        self.warp_epoch = np.zeros(m.slots // 32, np.int64)
        self._reads, self._writes, self._atomics = (_Accesses(words, verb) for verb in ("reads", "writes", "updates"))
        self._now = m.shared.bytes.view(UNSIGNED[self.unit])
        self.found: dict[tuple, str] = {}

    def accessed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns for each word whether it was written, whether it was read, and the instruction that wrote it last."""
        return self._writes.who >= 0, (self._reads.who >= 0) | (self._atomics.who >= 0), self._writes.pc

    def barrier(self) -> None:
        self.epoch += 1

    def warp_barrier(self) -> None:
        m = self.m
        warps = slice(None) if m.active_mask is None else m.active_mask.reshape(-1, 32).any(axis=1)
        self.warp_epoch[warps] += 1

    def read(self, pc: int, offsets: np.ndarray, width: int) -> None:
        """Check a read of `width` bytes by the active threads at these offsets (one a slot)."""
        words, slots = self._words(offsets, width)
        self._check(pc, words, slots, self._reads, (self._writes, self._atomics))

    def atomic(self, pc: int, offsets: np.ndarray, width: int) -> None:
        """Check an atomic update of `width` bytes by the active threads at these offsets (one a slot)."""
        words, slots = self._words(offsets, width)
        self._check(pc, words, slots, self._atomics, (self._writes, self._reads))

    def write(self, pc: int, offsets: np.ndarray, width: int, values: np.ndarray) -> None:
        """Check a write of `width` bytes by the active threads at these offsets (one a slot), before it is done.
        `values`: the bytes of each active thread, [active, width] or as wide in a larger type."""
        words, slots = self._words(offsets, width)
        bits = np.ascontiguousarray(values).reshape(-1).view(np.uint8).view(UNSIGNED[self.unit])
        self._check_same_instruction(pc, words, slots, bits)
        other = self._now[words] != bits
        self._check(pc, words[other], slots[other], self._writes, (self._writes,), note=False)
        self._check(pc, words, slots, self._writes, (self._atomics, self._reads))

    def _words(self, offsets: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words that the active threads access and, for each, the thread's slot."""
        m = self.m
        slots = m.active_slots()
        words = (offsets[slots] // np.uint64(self.unit)).astype(np.int64)
        if width > self.unit:
            n = width // self.unit
            words = (words[:, None] + np.arange(n)).reshape(-1)
            slots = np.repeat(slots, n)
        return words, slots

    def _check(self, pc: int, words, slots, kind: _Accesses, others, note: bool = True) -> None:
        for other in others:
            if other.latest < self.epoch:
                continue
            bad = np.flatnonzero(other.conflicts(words, slots, self.epoch, self.warp_epoch))
            if bad.size:
                at = bad[0]
                self._report(pc, words[at], slots[at], kind.verb, other.who[words[at]], other.verb)
        if note:
            kind.note(pc, words, slots, self.epoch, self.warp_epoch)

    def _check_same_instruction(self, pc: int, words, slots, bits) -> None:
        """Report threads that write different values to one word by one instruction."""
        order = np.argsort(words, kind="stable")
        w, s, b = words[order], slots[order], bits[order]
        bad = np.flatnonzero((w[1:] == w[:-1]) & (s[1:] != s[:-1]) & (b[1:] != b[:-1]))
        if bad.size:
            at, verb = bad[0], self._writes.verb
            self._report(pc, w[at + 1], s[at + 1], verb, s[at], verb)

    def _report(self, pc: int, word: int, slot: int, verb: str, other: int, other_verb: str) -> None:
        m, line = self.m, self.m.kernel.code[pc].line
        key = (line, verb)
        if key in self.found or len(self.found) >= MAX_RACES:
            return
        where, thread = m.shared.describe(int(word) * self.unit), m.threads.thread(slot)
        other_name = "another thread" if other == slot else f"thread {m.threads.thread(other)}"
        self.found[key] = (
            f"{m.name}, {line}: data race: thread {thread} {verb} {where}, which {other_name} {other_verb} "
            f"with no barrier between them"
        )
