"""Bytes that cross the links between several emulated GPUs: loads from a peer's memory and stores to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator.memory import Global

if TYPE_CHECKING:
    from kernels.engines.emulator.state import Machine


class Links:
    """Counts of bytes by link and buffer. `owner`: the rank that holds each buffer, by the buffer's name; other global
    memory is on the GPU of whoever reads it."""

    def __init__(self, memory: Global, owner: Mapping[str, int], ranks: int):
        regions = sorted((r.start, r.name) for r in memory.regions if r.name in owner)
        self._starts = np.array([start for start, _ in regions], np.uint64)
        self._names = [name for _, name in regions]
        self._owner = np.array([owner[name] for name in self._names])
        self._counts = np.zeros((2, ranks, len(regions)), np.int64)  # [reads or writes, rank of the thread, buffer]

    def of(self, machine: Machine) -> OfMachine:
        """Returns the counter for the accesses of a launch."""
        return OfMachine(self, machine)

    def add(self, offsets: np.ndarray, ranks: np.ndarray, width: int, write: bool) -> None:
        """Count an access of `width` bytes at each offset (uint64) by a thread of each rank."""
        buffers = np.searchsorted(self._starts, offsets, "right") - 1
        np.add.at(self._counts[int(write)], (ranks, buffers), width)

    def crossed(self, names: Collection[str]) -> dict[tuple[int, int], int]:
        """Returns the bytes that crossed each link, by (source, destination), from or to the buffers of these names."""
        found: dict[tuple[int, int], int] = {}
        for write, rank, buffer in zip(*np.nonzero(self._counts), strict=True):
            owner = int(self._owner[buffer])
            if self._names[buffer] in names and owner != rank:
                link = (int(rank), owner) if write else (owner, int(rank))
                found[link] = found.get(link, 0) + int(self._counts[write, rank, buffer])
        return found


class OfMachine:
    """Counts the accesses of one launch."""

    def __init__(self, links: Links, machine: Machine):
        self._links, self._m = links, machine
        self._ranks = machine.threads.rank_of

    def access(self, offsets: np.ndarray, width: int, write: bool) -> None:
        """Count an access by the active threads. A constant that all read at once has one offset: it is on every GPU."""
        mask = self._m.active_mask
        ranks = self._ranks if mask is None else self._ranks[mask]
        if len(offsets) == len(ranks):
            self._links.add(offsets, ranks, width, write)
