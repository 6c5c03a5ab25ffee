"""The arrays in global and shared memory that a watched launch may access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.engines.emulator.memory import ALLOCATED, GLOBAL_BASE, VIEWS, WINDOWS, WRITTEN, Region, Space, indices
from kernels.engines.emulator.state import Machine


def arrays(m: Machine) -> Iterator[Array]:
    """Yields the arrays that no other one overlaps."""
    for space, base in ((m.memory, GLOBAL_BASE), (m.shared, WINDOWS["shared"])):
        for region in space.regions:
            if not any(
                other is not region and other.start < region.stop and region.start < other.stop
                for other in space.regions
            ):
                yield Array(m, space, region, base)


class Array:
    """One of them: generic addresses start .. stop-1, bytes after `base` in its space."""

    def __init__(self, m: Machine, space: Space, region: Region, base: int):
        self.space, self.region, self.base, self.shared = space, region, base, space is m.shared
        self.start, self.stop = base + region.start, base + region.stop
        self._part = m.shared.size if self.shared else space.state.size  # of each block
        # Where others decide about its bytes, each access is checked.
        self._checked = m.async_copies is not None or m.copies is not None or bool(m.memory.hidden)
        self._written = False  # whether all of it is known to be
        self._checks = 0

    def allows(self, at: np.ndarray, width: int, write: bool) -> bool:
        """Returns whether bytes at these offsets of the space may be accessed."""
        if self._written or (write and not self._checked):
            return True
        if write and self.space.leaving:
            return False
        state = self.space.state
        if min(state.take(indices(at)).min(), state.take(indices(at + np.uint64(width - 1))).min()) < (
            ALLOCATED if write else WRITTEN
        ):
            return False
        self._checks += 1
        if not self._checked and self._checks & (self._checks - 1) == 0:
            self._written = bool(
                state.reshape(-1, self._part)[:, self.region.start : self.region.stop].min() == WRITTEN
            )
        return True

    def store(self, element: np.ndarray, width: int, values: np.ndarray) -> None:
        """Write elements of a width in bytes, by their index in the space."""
        self.space.writes += 1
        self.space.of_width(width)[element] = values
        if not self._written:
            self.space.state.view(VIEWS[width])[element] = WRITTEN * 0x0101010101010101 & (1 << 8 * width) - 1
