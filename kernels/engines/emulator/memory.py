"""Memory of the emulated GPU: global buffers with guard gaps, shared and local memory per block and thread.

Every byte has a state (outside, coming by a copy under way, allocated, written, leaving by a copy that still reads it). So an access
out of bounds, a read of an unwritten byte, an access before the copy that writes it was waited for, and a write before the copy that
reads it was, are errors. Addresses are the kernel's own 64-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernels.model.program import View

if TYPE_CHECKING:
    from kernels.engines.emulator.heap import Heap

ALIGN = 256  # as cudaMalloc aligns, at least
GUARD = 512  # unused bytes between buffers
GLOBAL_BASE = 1 << 32
# Generic addresses of shared and local memory: the starts of their windows, which no global buffer reaches.
# A kernel's parameters have such addresses too.
WINDOWS, WINDOW = {"shared": 1 << 44, "local": 1 << 45, "param": 1 << 46}, 1 << 40

OUTSIDE, COMING, ALLOCATED, WRITTEN, LEAVING = range(5)
VIEWS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def indices(offsets: np.ndarray) -> np.ndarray:
    """Returns checked offsets (uint64) as NumPy's type for indices, which has 32 bits in WebAssembly."""
    return offsets.view(np.int64) if np.intp is np.int64 else offsets.astype(np.intp)


def space_at(address: int) -> str:
    """Returns the name of the state space that a generic address points into."""
    return next((name for name, start in WINDOWS.items() if start <= address < start + WINDOW), "global")


class Fault(Exception):
    """A forbidden access: a description, and the index of the access among those checked."""

    def __init__(self, description: str, index: int):
        super().__init__(description)
        self.description, self.index = description, index


class Unwritten(Fault):
    """A read of what nobody has written."""


@dataclass(frozen=True)
class Region:
    """A buffer in a space: bytes start .. stop, elements of `dtype`."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def element(self, offset: int) -> str:
        """Returns the element at a byte offset of the space as text: "x[0, 3, 2]"."""
        flat = (offset - self.start) // self.dtype.itemsize
        inside = self.shape and flat < math.prod(self.shape)  # a last element may be cut short
        index = np.unravel_index(flat, self.shape) if inside else (flat,) if self.shape else ()
        return f"{self.name}[{', '.join(str(int(i)) for i in index)}]"


class Space:
    """Bytes with a state each. Offsets are counted from the start of the space."""

    name = "memory"

    def __init__(self, size: int):
        size = -(-size // 16) * 16
        self.bytes = np.zeros(size, np.uint8)
        self.state = np.zeros(size, np.uint8)
        self._as = {width: self.bytes.view(dtype) for width, dtype in VIEWS.items()}
        self.writes = 0  # calls of store so far
        self.copies: list[
            Callable[[int], str]
        ] = []  # each describes the copy under way that writes or reads a byte, or ""
        self.leaving = 0  # copies that still read bytes

    def check(self, offsets: np.ndarray, width: int, write: bool) -> None:
        """Raise Fault if an access of `width` bytes at one of the offsets (uint64) is forbidden."""
        size = self.bytes.size
        if offsets.max() > size - width:  # below the space wraps to a huge number
            self._fault(offsets > size - width, offsets, width, write)
        if np.bitwise_or.reduce(offsets, axis=None) & np.uint64(width - 1):
            at = int(np.flatnonzero(offsets & np.uint64(width - 1))[0])
            raise Fault(f"misaligned {_verb(write)} of {width} bytes {self.describe(int(offsets[at]))}", at)
        required = ALLOCATED if write else WRITTEN
        # Elements are aligned and buffers start aligned, so the first and last byte decide for all.
        state = self.state.take(indices(offsets))
        if width > 4:
            state = np.minimum(state, self.state.take(indices(offsets + np.uint64(width - 1))))
        if state.min() < required:
            self._fault(state < required, offsets, width, write)
        if write and self.leaving and (state == LEAVING).any():
            self._fault(state == LEAVING, offsets, width, write)

    def _fault(self, bad: np.ndarray, offsets: np.ndarray, width: int, write: bool) -> None:
        at = int(np.flatnonzero(bad)[0])
        offset = int(offsets[at])
        states = self.state[offset : offset + width]
        for state, verb in ((COMING, "writes"), (LEAVING if write else COMING, "reads")):
            if states.size == width and (found := np.flatnonzero(states == state)).size:
                copy = "".join(describe(offset + int(found[0])) for describe in self.copies)
                raise Fault(
                    f"{_verb(write)} {self.describe(offset)} before the copy that {verb} it was waited for{copy}", at
                )
        if states.size == width and states.min() == ALLOCATED and not write:
            raise Unwritten(f"read {self.describe(offset)}, which was never written", at)
        raise Fault(f"out-of-bounds {_verb(write)} of {width} bytes {self.describe(offset)}", at)

    def of_width(self, width: int) -> np.ndarray:
        """Returns the bytes as unsigned numbers of a width."""
        return self._as[width]

    def load(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Returns uint8/16/32/64 values at checked offsets."""
        return self._as[width].take(indices(offsets >> np.uint64(width.bit_length() - 1)))

    def store(self, offsets: np.ndarray, width: int, values: np.ndarray) -> None:
        """Write at checked offsets. If two offsets are equal, the last value stays."""
        self.writes += 1
        shift = np.uint64(width.bit_length() - 1)
        at = offsets >> shift
        self._as[width][at] = values
        if width == 1:
            self.state[at] = WRITTEN
        else:
            self.state.view(VIEWS[width])[at] = np.uint64(WRITTEN * 0x0101010101010101 & (1 << 8 * width) - 1)

    def describe(self, offset: int) -> str:
        return f"byte {offset} of {self.name} memory"


def _verb(write: bool) -> str:
    return "write" if write else "read"


class Global(Space):
    """The device's memory: named buffers, each aligned and followed by a gap."""

    name = "global"

    def __init__(self, arrays: Mapping[str, np.ndarray], written: Sequence[str]):
        """Allocate copies of `arrays`; those not named in `written` count as unwritten."""
        self.regions: list[Region] = []
        self.heap: Heap | None = None  # of malloc, once a kernel calls it
        self.owners: dict[str, str] = {}  # of a program's buffers: "host" or "device", which may access them
        self.hidden: dict[str, np.ndarray] = {}  # the states of buffers that who runs now cannot access
        self.freed: list[Region] = []
        at = GUARD
        for name, array in arrays.items():
            at = -(-at // ALIGN) * ALIGN
            self.regions.append(Region(name, at, at + array.nbytes, array.shape, array.dtype))
            at += array.nbytes + GUARD
        super().__init__(at)
        for p in self.regions:
            self.bytes[p.start : p.stop] = np.ascontiguousarray(arrays[p.name]).reshape(-1).view(np.uint8)
            self.state[p.start : p.stop] = WRITTEN if p.name in written else ALLOCATED

    def _fault(self, bad: np.ndarray, offsets: np.ndarray, width: int, write: bool) -> None:
        at = int(np.flatnonzero(bad)[0])
        region = self.region(int(offsets[at]))
        if region and region.name in self.hidden:
            owner, other = self.owners[region.name], {"host": "device", "device": "host"}
            raise Fault(
                f"{_verb(write)} {self.describe(int(offsets[at]))}: it is memory of the {owner}, which the "
                f"{other.get(owner, 'device')} cannot access",
                at,
            )
        super()._fault(bad, offsets, width, write)

    def region(self, offset: int) -> Region | None:
        """Returns the buffer that a byte offset is in."""
        return next((r for r in self.regions if r.start <= offset < r.stop), None)

    def add(self, name: str, size: int, data: bytes) -> int:
        """Allocate a module's variable and return its offset. A known name keeps its offset and content."""
        for p in self.regions:
            if p.name == name:
                return p.start
        start = -(-self.bytes.size // ALIGN) * ALIGN
        old, state = self.bytes, self.state
        Space.__init__(self, start + size + GUARD)
        self.bytes[: old.size], self.state[: old.size] = old, state
        content = np.frombuffer(data.ljust(size, b"\0"), np.uint8)
        self.bytes[start : start + size], self.state[start : start + size] = content, WRITTEN
        self.regions.append(Region(name, start, start + size, (size,), np.dtype(np.uint8)))
        return start

    def address(self, name: str) -> int:
        return GLOBAL_BASE + next(p.start for p in self.regions if p.name == name)

    def add_view(self, view: View) -> None:
        """Give a part of a buffer a name of its own."""
        whole = next(p for p in self.regions if p.name == view.of)
        dtype = np.dtype(view.dtype) if view.dtype else whole.dtype
        start = whole.start + view.offset * dtype.itemsize
        stop = start + math.prod(view.shape) * dtype.itemsize
        assert stop <= whole.stop, f"{view.name} is beyond {view.of}"
        self.regions.append(Region(view.name, start, stop, view.shape, dtype))

    def array(self, name: str) -> np.ndarray:
        """Returns a copy of a buffer's current content."""
        p = next(p for p in self.regions if p.name == name)
        return self.bytes[p.start : p.stop].copy().view(p.dtype).reshape(p.shape)

    def written(self, name: str) -> np.ndarray:
        """Returns which elements of a buffer are written, bool of its shape."""
        p = next(p for p in self.regions if p.name == name)
        return (self.state[p.start : p.stop].reshape(-1, p.dtype.itemsize) == WRITTEN).all(axis=1).reshape(p.shape)

    def write(self, name: str, array: np.ndarray) -> None:
        """Replace a buffer's content."""
        p = next(p for p in self.regions if p.name == name)
        self.bytes[p.start : p.stop] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.state[p.start : p.stop] = WRITTEN

    def unwrite(self, name: str) -> None:
        """Make a buffer unwritten: reading it is an error until a kernel has written it."""
        p = next(p for p in self.regions if p.name == name)
        self.state[p.start : p.stop] = ALLOCATED

    def describe(self, offset: int) -> str:
        for p in (*self.regions, *self.freed):
            if p.start <= offset < p.stop:
                return f"at {p.element(offset)}{'' if p in self.regions else ', which was freed'}"
        nearest = min(self.regions, key=lambda p: max(p.start - offset, offset - p.stop), default=None)
        if nearest is None:
            return f"at address {GLOBAL_BASE + offset:#x}"
        if offset >= 1 << 62:
            return f"at address {(GLOBAL_BASE + offset) % (1 << 64):#x}, in no buffer"
        past = offset - nearest.stop
        side = f"{nearest.start - offset} bytes before the start" if past < 0 else f"{past} bytes past the end"
        return f"{side if past else 'just past the end'} of {nearest.name} {list(nearest.shape)}"


class PerBlock(Space):
    """Shared memory: `size` bytes for each block slot."""

    name = "shared"

    def __init__(self, slots: int, size: int, names: Sequence[Region]):
        self.size, self.regions = -(-size // 16) * 16, names
        super().__init__(slots * self.size)
        self._slots, self._allocated, self._zeros = slots, size, slice(0)
        self._set_states()

    def zero(self, start: int, size: int) -> None:
        """Mark `size` bytes of each block's memory, which are zeros, as written."""
        self._zeros = slice(start, start + size)
        self._set_states()

    def forget(self) -> None:
        """Make all of it unwritten again."""
        self.bytes[:] = 0
        self._set_states()

    def _set_states(self) -> None:
        if self._slots:
            states = self.state.reshape(self._slots, -1)
            states[:, : self._allocated], states[:, self._zeros] = ALLOCATED, WRITTEN

    def describe(self, offset: int) -> str:
        inside = offset % self.size if self.size else offset
        for p in self.regions:
            if p.start <= inside < p.stop:
                return f"at {p.element(inside)} in {self.name} memory"
        return f"at byte {inside} of the block's {self.size} bytes of {self.name} memory"


class Parameters(PerBlock):
    """The parameters of a kernel, as many bytes for each GPU of the launch."""

    name = "parameter"

    def __init__(self, content: Sequence[bytes]):
        super().__init__(len(content), max(map(len, content)), ())
        self.bytes.reshape(len(content), -1)[:, : len(content[0])] = np.frombuffer(b"".join(content), np.uint8).reshape(
            len(content), -1
        )
        self.state[:] = WRITTEN


class PerThread(PerBlock):
    """Local memory: spilled and indexed arrays, `size` bytes for each thread."""

    name = "local"

    def __init__(self, slots: int, size: int, names: Sequence[Region]):
        super().__init__(slots, size, names)
        self._columns: dict[tuple[int, int], np.ndarray] = {}

    def column(self, offset: int, width: int) -> np.ndarray:
        """Returns the bytes at an offset of each thread's memory as unsigned numbers of a width, a view."""
        column = self._columns.get((offset, width))
        if column is None:
            column = np.ndarray((self._slots,), VIEWS[width], self.bytes, offset, (self.size,))
            self._columns[offset, width] = column
        return column
