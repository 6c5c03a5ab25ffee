"""What works asynchronously in a block, event by event: bulk copies, mbarriers, products of warpgroups. Traces have it.

The events are those of all blocks of the traced block's cluster, in the order in which the emulator executed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from kernels.engines.emulator.ptx.kernel import Line
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import LANES

NONE = -1  # an event without an mbarrier
WARPS = 4  # of a warpgroup


class Kind(IntEnum):
    """The kinds of events, each with its `number` in Events.

    COPY, COPIED: a bulk copy begins, and its bytes are in place; index in `copies`. CLOSE_COPIES, WAIT_COPIES: a group of
    stores is closed, and a wait leaves so many groups incomplete. EXPECT: a phase waits for so many more bytes. ARRIVE: so
    many arrivals. PHASE: a phase with this parity ends. WAIT, PASS: warps begin and end to wait for the end of a phase with
    this parity. PRODUCT: wgmma is issued; index in `products`. CLOSE_PRODUCTS, WAIT_PRODUCTS: as of stores.
    """

    COPY = 0
    COPIED = 1
    CLOSE_COPIES = 2
    WAIT_COPIES = 3
    EXPECT = 4
    ARRIVE = 5
    PHASE = 6
    WAIT = 7
    PASS = 8
    PRODUCT = 9
    CLOSE_PRODUCTS = 10
    WAIT_PRODUCTS = 11


@dataclass(frozen=True)
class Copy:
    """A bulk copy that `block` issues: to the shared memory of `blocks` (a load), or from it.

    `corner` and `box`: the first element and the extents in `buffer`, innermost first; of adjacent bytes, their first and
    their number. `start`: the first byte in shared memory. `nbytes`: written in each block. `barrier`: the byte of the
    mbarrier that they are reported to, in each block; NONE for a store. `buffer` is "" for a copy between blocks.
    """

    buffer: str
    load: bool
    corner: tuple[int, ...]
    box: tuple[int, ...]
    block: int
    blocks: tuple[int, ...]
    start: int
    nbytes: int
    barrier: int = NONE


@dataclass(frozen=True)
class Product:
    """One wgmma of a warpgroup: [64, columns] += [64, depth] x [depth, columns]. `a` and `b`: the first byte in shared
    memory that it reads, and the one after the last; `a` is None if it is in registers."""

    a: tuple[int, int] | None
    b: tuple[int, int]
    columns: int
    depth: int


@dataclass(frozen=True)
class Events:
    """The events, one row each.

    `kind` and `number`: Kind. `line` indexes `lines`. `block` executes it; `warps` has bit i set if its warp i does, 0 for
    the copy engine. `barrier`: the first byte of the mbarrier in the shared memory of block `barrier_block`; NONE for other
    events and for the cluster's own barrier. `requests` and `steps`: the numbers of memory requests and of steps of the
    traced block before it; the last of these steps has the event, if threads of that block execute it.
    """

    kind: np.ndarray
    number: np.ndarray
    line: np.ndarray
    block: np.ndarray
    warps: np.ndarray
    barrier: np.ndarray
    barrier_block: np.ndarray
    requests: np.ndarray
    steps: np.ndarray
    lines: tuple[Line | None, ...]
    copies: tuple[Copy, ...]
    products: tuple[Product, ...]

    def __len__(self) -> int:
        return len(self.kind)


class EventLog:
    """Collects Events while the machine runs. `requests` and `steps` return how many the trace has so far."""

    def __init__(self, m: Machine, block: int, requests: Callable[[], int], steps: Callable[[], int]):
        self.m, self._requests, self._steps = m, requests, steps
        self._blocks = set(m.threads.blocks_of_cluster[m.threads.cluster_of_block[block]].tolist())
        self._rows: list[tuple[int, ...]] = []
        self._lines: dict[Line | None, int] = {}
        self._copies: list[Copy] = []
        self._products: list[Product] = []
        self._brought: dict[str, int] = {}  # bytes by buffer
        self._waiting = np.zeros(m.slots, bool)

    def result(self) -> Events:
        columns = np.array(self._rows, np.int64).reshape(-1, 9).T
        lines, copies, products = tuple(self._lines), tuple(self._copies), tuple(self._products)
        return Events(*columns, lines=lines, copies=copies, products=products)

    # -- copies ------------------------------------------------------------------------------------
    def copy(self, pc: int, slot: int, copy: Copy) -> int:
        """Add a copy that a thread begins. Return its index."""
        if copy.block in self._blocks:
            self._copies.append(copy)
            self.threads(Kind.COPY, pc, np.array([slot]), len(self._copies) - 1)
            return len(self._copies) - 1
        return NONE

    def copied(self, pc: int, copy: int, block: int) -> None:
        """Add that the bytes of a copy are in place: in this block, or from it in global memory."""
        if copy != NONE:
            self._add(Kind.COPIED, pc, block, 0, copy)
            of = self._copies[copy]
            self._brought[of.buffer] = self._brought.get(of.buffer, 0) + of.nbytes * of.load

    def brought(self, buffer: str, nbytes: int) -> bool:
        """Returns whether copies have brought so many bytes of a buffer to shared memory."""
        return self._brought.get(buffer, 0) >= nbytes

    # -- barriers ----------------------------------------------------------------------------------
    def arrivals(
        self,
        pc: int,
        offsets: Sequence[int],
        counts: Sequence[int],
        nbytes: Sequence[int],
        ended: Sequence[tuple[int, int]],
    ) -> None:
        """Add arrivals of the active threads at the barriers at `offsets`, the bytes that they expect before, and the
        phases (offset, parity) that end."""
        slots = self._active()
        for kind, numbers in ((Kind.EXPECT, nbytes), (Kind.ARRIVE, counts)):
            sums: dict[tuple[int, int], list[int]] = {}
            for slot, offset, number in zip(slots.tolist(), offsets, numbers, strict=True):
                if number:
                    found = sums.setdefault((int(self.m.block_of[slot]), offset), [0, 0])
                    found[0] |= 1 << int(self.m.thread_of[slot]) // LANES
                    found[1] += number
            for (block, offset), (warps, number) in sums.items():
                self._add(kind, pc, block, warps, number, offset)
        for offset, parity in ended:
            self.phase(pc, offset, parity)

    def phase(self, pc: int, offset: int, parity: int) -> None:
        """Add the end of a phase of the barrier at a byte offset."""
        self._add(Kind.PHASE, pc, offset // self.m.shared.size, 0, parity, offset)

    def waits(self, pc: int, ended: np.ndarray, offsets: np.ndarray | int = NONE, parity: np.ndarray | int = 0) -> None:
        """Add waits of the active threads that begin or end. `ended`: whether the phase of each has ended."""
        slots = self._active()
        begun = ~self._waiting[slots]
        self._waiting[slots] = ~ended
        offsets, parity = (np.broadcast_to(of, slots.shape).astype(np.int64) for of in (offsets, parity))
        for kind, of in ((Kind.WAIT, begun), (Kind.PASS, ended)):
            self._threads(kind, pc, slots[of], parity[of], offsets[of])

    # -- products ----------------------------------------------------------------------------------
    def issued(self, pc: int, rows: Sequence[int], products: Sequence[Product]) -> None:
        """Add products of warps, by the rows of their slots: one event for each warpgroup."""
        groups: dict[tuple[int, int], list] = {}
        for row, product in zip(rows, products, strict=True):
            block, warp = int(self.m.block_of[row * LANES]), int(self.m.thread_of[row * LANES]) // LANES
            groups.setdefault((block, warp // WARPS), [product, 0])[1] |= 1 << warp
        for (block, _), (product, warps) in groups.items():
            if block in self._blocks:
                self._products.append(product)
                self._add(Kind.PRODUCT, pc, block, warps, len(self._products) - 1)

    # -- rows --------------------------------------------------------------------------------------
    def active(self, kind: Kind, pc: int, number: int = 0) -> None:
        """Add an event of the active threads."""
        self.threads(kind, pc, self._active(), number)

    def threads(self, kind: Kind, pc: int, slots: np.ndarray, number: int = 0) -> None:
        """Add an event of the threads in these slots."""
        self._threads(kind, pc, slots, np.full(len(slots), number), np.full(len(slots), NONE))

    def _threads(self, kind: Kind, pc: int, slots: np.ndarray, numbers: np.ndarray, offsets: np.ndarray) -> None:
        """Add an event for each block, number and barrier."""
        found: dict[tuple[int, int, int], int] = {}
        if not len(slots):
            return
        if (numbers == numbers[0]).all() and (offsets == offsets[0]).all():
            number, offset = int(numbers[0]), int(offsets[0])
            rows = [(row, number, offset) for row in np.unique(slots // LANES).tolist()]
        else:
            rows = np.unique(np.stack([slots // LANES, numbers, offsets], axis=1), axis=0).tolist()
        for row, number, offset in rows:
            key = int(self.m.block_of[row * LANES]), number, offset
            found[key] = found.get(key, 0) | 1 << int(self.m.thread_of[row * LANES]) // LANES
        for (block, number, offset), warps in found.items():
            self._add(kind, pc, block, warps, number, offset)

    def _add(self, kind: Kind, pc: int, block: int, warps: int, number: int, offset: int = NONE) -> None:
        if block not in self._blocks:
            return
        line = self._lines.setdefault(self.m.kernel.code[pc].line, len(self._lines))
        barrier_block, barrier = (NONE, NONE) if offset == NONE else divmod(offset, self.m.shared.size)
        row = kind, number, line, block, warps, barrier, barrier_block, self._requests(), self._steps()
        self._rows.append(row)

    def _active(self) -> np.ndarray:
        m = self.m
        return np.flatnonzero(m.live if m.active_mask is None else m.active_mask)
