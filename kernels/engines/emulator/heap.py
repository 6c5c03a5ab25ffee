"""The device heap in global memory, for malloc and free (new and delete) in a kernel."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass

from kernels.engines.emulator.memory import ALLOCATED, OUTSIDE, Global, Region

SIZE = 8 << 20  # bytes, CUDA's own unless cudaDeviceSetLimit says otherwise
APART = 16  # unused bytes between two allocations, and the alignment of each
NAME = "device heap"


class Heap:
    """The heap of a device memory, empty at first. Addresses are byte offsets into that memory."""

    def __init__(self, memory: Global, name: str = NAME):
        self.memory, self.name = memory, name
        self.start = self.end = memory.add(name, SIZE, b"")
        memory.state[self.start : self.start + SIZE] = OUTSIDE
        region = memory.regions[-1]
        memory.regions[-1] = _HeapRegion(region.name, region.start, region.stop, region.shape, region.dtype, self)
        self.sizes: dict[int, int] = {}  # of every allocation, live or freed, by its start
        self.live: set[int] = set()
        self._freed: dict[int, list[int]] = {}  # starts to reuse, by width

    def allocate(self, size: int) -> int | None:
        """Returns the start of `size` new, unwritten bytes; None if the heap is full."""
        width = -(-size // APART) * APART + APART
        reusable = self._freed.get(width)
        if reusable:
            start = reusable.pop()
        elif self.end + width <= self.start + SIZE:
            start, self.end = self.end, self.end + width
        else:
            return None
        self.sizes[start] = size
        self.live.add(start)
        self.memory.state[start : start + size] = ALLOCATED
        return start

    def release(self, start: int) -> None:
        """Free the allocation at `start`. KeyError if no live one begins there."""
        self.live.remove(start)
        size = self.sizes[start]
        self.memory.state[start : start + size] = OUTSIDE
        self._freed.setdefault(-(-size // APART) * APART + APART, []).append(start)

    def describe(self, offset: int) -> str:
        """Returns a text that names the byte of the allocation that an offset falls into or follows."""
        starts = sorted(self.sizes)
        n = bisect(starts, offset) - 1
        if n < 0:
            return f"byte {offset - self.start} of the {self.name}, where nothing is allocated"
        start = starts[n]
        freed = "" if start in self.live else ", which was freed"
        return f"byte {offset - start} of an allocation of {self.sizes[start]} bytes{freed}"


@dataclass(frozen=True)
class _HeapRegion(Region):
    """The heap as a region of a memory. Faults name the allocation."""

    heap: Heap

    def element(self, offset: int) -> str:
        return self.heap.describe(offset)
