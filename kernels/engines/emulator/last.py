"""The accesses to each word of a space that later ones are compared with."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.threads import LANES

MOST = 1 << 22  # accesses that are kept besides the last two of each word; beyond, the oldest half is forgotten


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """Returns an array with zeros after its values. What is never written takes no memory."""
    out = np.zeros(size, array.dtype)
    out[: array.size] = array
    return out


class Last:
    """The last access of one kind to each word and the last one before by another thread: who, by number in the grid, and when, 0 for
    never. `several`: whether a word has both. `has_others`: whether more are kept."""

    def __init__(self, verb: str):
        self.verb, self.latest, self.several, self.has_others = verb, 0, False, False
        self.who, self.time, self.who_before, self.time_before = np.zeros((4, 0), np.int32)

    def fit(self, words: int) -> None:
        """Makes place for as many words."""
        self.who, self.time, self.who_before, self.time_before = (
            longer(old, words) for old in (self.who, self.time, self.who_before, self.time_before)
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
                kept &= other & (who // LANES == numbers // LANES)
                self.drop(words[kept], who[kept], self.time[words[kept]])
                other &= ~kept
                self.drop(words[other], self.who_before[words[other]], self.time_before[words[other]])
            at = words[other]
            self.who_before[at], self.time_before[at], self.several = who[other], self.time[at], True
        self.who[words], self.time[words], self.latest = numbers, time, time
        hidden = self.who[words] != numbers  # of several threads that access a word by one instruction
        if hidden.any():
            at = words[hidden][::-1]  # the first one
            self.who_before[at], self.time_before[at], self.several = numbers[hidden][::-1], time, True
            self.drop(words[hidden], numbers[hidden], np.full(at.size, time, np.int32))

    def drop(self, words: np.ndarray, who: np.ndarray, times: np.ndarray) -> None:
        """Called for accesses that are no longer among the last two."""


class All(Last):
    """All accesses of a kind that no write of their word has followed: where barriers order only some threads, a write may come after the
    last two and not after one before."""

    def __init__(self, verb: str):
        super().__init__(verb)
        # [3, n]: words, who, times. The rest is in the order of words, then of who, each pair once with its last time.
        self._new: list[np.ndarray] = []
        self._rest = np.zeros((3, 0), np.int64)

    def drop(self, words: np.ndarray, who: np.ndarray, times: np.ndarray) -> None:
        if words.size:
            self.has_others = True
            self._new.append(np.stack([words, who, times]).astype(np.int64))
            if sum(part.shape[1] for part in self._new) > MOST // 4:
                self._sort()

    def forget(self) -> None:
        super().forget()
        self._new, self._rest, self.has_others = [], self._rest[:, :0], False

    def others(self, words: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the accesses besides the last two that came after a time, one for each word: the place in `words`, who, when."""
        self._sort()
        first, stop = (np.searchsorted(self._rest[0], words, side) for side in ("left", "right"))
        counts = stop - first
        at = np.repeat(np.arange(words.size), counts)
        chosen = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        _, who, times = self._rest[:, chosen]
        matter = times > after[at]
        return at[matter], who[matter], times[matter]

    def _sort(self) -> None:
        if not self._new:
            return
        words, who, times = every = np.concatenate([self._rest, *self._new], axis=1)
        every = every[:, np.lexsort((times, who, words))]
        is_last = np.append((every[:2, 1:] != every[:2, :-1]).any(axis=0), True)
        self._rest, self._new = every[:, is_last], []
        if self._rest.shape[1] > MOST:
            self._rest = self._rest[:, self._rest[2] > np.median(self._rest[2])]
