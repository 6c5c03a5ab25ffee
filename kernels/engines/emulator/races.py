"""Data races on shared memory: two threads, one word, no barrier between them, one of them writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.parse import type_bytes

if TYPE_CHECKING:
    from kernels.engines.emulator.machine import Machine

MOST = 20  # races told of; more say no more


def _unit(m: Machine) -> int:
    widths = [4]
    for i in m.kernel.code:
        to_shared = any(p.startswith("shared") for p in i.parts) or not {
            "global",
            "local",
            "param",
            "const",
        } & set(i.parts)
        if i.parts[0] in ("ld", "st") and to_shared:
            widths.append(type_bytes(i.parts[-1]))
        elif i.parts[0] == "wmma" and i.parts[1] != "mma":
            widths.append(4 if i.parts[-1] == "tf32" else type_bytes(i.parts[-1]))
    return min(widths)


class Races:
    """Watches each word of shared memory: who wrote it and who read it since the last barrier. A word has
    4 bytes, or as few as the kernel's narrowest access, so that neighbouring halves are no clash.

    Threads of one warp may also be ordered by a barrier of the warp (__syncwarp), counted apart.
    """

    def __init__(self, m: Machine):
        self.m, self.unit = m, _unit(m)
        words = m.shared.bytes.size // self.unit
        self.epoch = 0  # of the block's barriers
        self.warp_epoch = np.zeros(m.slots // 32, np.int64)
        self._writer, self._reader = np.full(words, -1), np.full(words, -1)
        self._written, self._read = np.full(words, -1), np.full(words, -1)  # epochs
        self._written_warp, self._read_warp = np.zeros(words, np.int64), np.zeros(words, np.int64)
        # In the epoch of the last read: read by several threads, and by those of several warps.
        self._many, self._many_warps = np.zeros(words, bool), np.zeros(words, bool)
        self.found: dict[tuple, str] = {}

    def barrier(self) -> None:
        self.epoch += 1

    def warp_barrier(self) -> None:
        m = self.m
        warps = slice(None) if m.am is None else m.am.reshape(-1, 32).any(axis=1)
        self.warp_epoch[warps] += 1

    def access(self, pc: int, offsets: np.ndarray, width: int, write: bool) -> None:
        """An access by the active threads at byte offsets (one a slot)."""
        m = self.m
        slots = np.arange(m.slots) if m.am is None else np.flatnonzero(m.am)
        words = (offsets[slots] // np.uint64(self.unit)).astype(np.int64)
        if width > self.unit:
            n = width // self.unit
            words = (words[:, None] + np.arange(n)).reshape(-1)
            slots = np.repeat(slots, n)
        by_other_write = self._clash(words, slots, self._writer, self._written, self._written_warp)
        bad = by_other_write
        if write:
            read = (self._read[words] == self.epoch) & (self._many[words] | (self._reader[words] != slots))
            ordered = self._ordered(words, slots, self._reader, self._read_warp) & ~self._many_warps[words]
            bad = bad | (read & ~ordered)
            bad |= self._same_instruction(words, slots)
        if bad.any():
            self._tell(pc, words[bad], slots[bad], write)
        self._note(words, slots, write)

    def _clash(self, words, slots, who, when, when_warp) -> np.ndarray:
        other = (when[words] == self.epoch) & (who[words] != slots)
        return other & ~self._ordered(words, slots, who, when_warp)

    def _ordered(self, words, slots, who, when_warp) -> np.ndarray:
        """Both of one warp, with a barrier of the warp between."""
        same = who[words] // 32 == slots // 32
        return same & (when_warp[words] < self.warp_epoch[slots // 32])

    def _same_instruction(self, words, slots) -> np.ndarray:
        order = np.argsort(words, kind="stable")
        twice = np.zeros(len(words), bool)
        w, s = words[order], slots[order]
        twice[order[1:]] = (w[1:] == w[:-1]) & (s[1:] != s[:-1])
        return twice

    def _note(self, words, slots, write: bool) -> None:
        if write:
            self._writer[words], self._written[words] = slots, self.epoch
            self._written_warp[words] = self.warp_epoch[slots // 32]
            return
        again = self._read[words] == self.epoch
        many = again & (self._many[words] | (self._reader[words] != slots))
        warps = again & (self._many_warps[words] | (self._reader[words] // 32 != slots // 32))
        order = np.argsort(words, kind="stable")
        w, s = words[order], slots[order]
        together = w[1:] == w[:-1]
        self._many[words], self._many_warps[words] = many, warps
        self._many[w[1:][together]] = True
        self._many_warps[w[1:][together & (s[1:] // 32 != s[:-1] // 32)]] = True
        self._reader[words], self._read[words] = slots, self.epoch
        self._read_warp[words] = self.warp_epoch[slots // 32]

    def _tell(self, pc: int, words, slots, write: bool) -> None:
        m, line = self.m, self.m.kernel.code[pc].line
        where = m.shared.describe(int(words[0]) * self.unit)
        other = self._writer[words[0]] if self._written[words[0]] == self.epoch else self._reader[words[0]]
        key = (line, write)
        if key not in self.found and len(self.found) < MOST:
            thread = m.threads.thread(slots[0])
            whom = m.threads.thread(other) if other >= 0 else "another"
            self.found[key] = (
                f"{m.name}, {line}: data race: thread {thread} {'writes' if write else 'reads'} {where}, which "
                f"thread {whom} {'uses' if write else 'wrote'} with no barrier between them"
            )
