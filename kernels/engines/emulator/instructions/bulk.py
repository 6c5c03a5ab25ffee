"""Bulk copies: cp.async.bulk of adjacent bytes, and cp.async.bulk.tensor of a box of a tensor (TMA).

One thread begins a copy. A copy to shared memory reports its bytes to an mbarrier; a copy from shared memory belongs to
a group of its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from kernels.engines.emulator.bulk_copies import PIECE, Load, Store
from kernels.engines.emulator.clusters import INSIDE, RANK
from kernels.engines.emulator.events import NONE, Copy, Kind
from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.memory import GLOBAL_BASE, WINDOWS, Fault, space_at
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine, needed
from kernels.engines.emulator.swizzle import swizzled
from kernels.engines.emulator.tensor_maps import box_elements, decoded, im2col_elements
from kernels.model.tensor_map import ELEMENTS, MAX_OFFSET, Im2colMap, TensorMap

MAP_BYTES = 128
_PLAIN = {"cp", "async", "bulk", "global", "shared::cta", "shared::cluster"}
_KNOWN = _PLAIN | {
    "tensor",
    *(f"{n}d" for n in range(1, 6)),
    "tile",
    "im2col",
    "mbarrier::complete_tx::bytes",
    "multicast::cluster",
    "bulk_group",
    "L2::cache_hint",
}


def bulk(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cp.async.bulk in all its forms."""
    if "prefetch" in i.parts:
        return lambda: None
    if "commit_group" in i.parts:
        return lambda: _commit(m, pc)
    if "wait_group" in i.parts:
        pending = i.operands[0].number
        only_read = "read" in i.parts
        return lambda: _wait(m, pc, pending, only_read)
    if not set(i.parts) <= _KNOWN:
        raise Unknown(f"unknown opcode {i.opcode}")
    return _Copy(m, pc, i).run


def _commit(m: Machine, pc: int) -> None:
    needed(m.copies).commit(_slots(m))
    if m.trace is not None:
        m.trace.events.active(Kind.CLOSE_COPIES, pc)


def _wait(m: Machine, pc: int, pending: int, only_read: bool) -> None:
    needed(m.copies).wait(_slots(m), pending, only_read)
    if m.trace is not None:
        m.trace.events.active(Kind.WAIT_COPIES, pc, pending)


def _slots(m: Machine) -> np.ndarray:
    return np.flatnonzero(m.live if m.active_mask is None else m.active_mask)


def _split(pieces: np.ndarray, width: int) -> np.ndarray:
    """Returns the offsets of the numbers of `width` bytes in pieces."""
    return (pieces[:, None] + np.arange(0, PIECE, width, dtype=pieces.dtype)).reshape(-1)


@dataclass(frozen=True)
class _Taken:
    """What a load reads: numbers of `width` bytes at `offsets` of a memory; which of the numbers that it writes these are, the others are
    zeros; and the pieces, uint8 [pieces, 16]."""

    memory: str
    offsets: np.ndarray
    inside: np.ndarray
    width: int
    read: Callable[[], np.ndarray]


class _Copy:
    """One instruction that begins a copy."""

    def __init__(self, m: Machine, pc: int, i: Instruction):
        self.m, self.pc = m, pc
        self.loads = "mbarrier::complete_tx::bytes" in i.parts
        self.tensor = "tensor" in i.parts
        target, source, *rest = i.operands
        size = None if self.tensor else rest.pop(0)
        self.size = size and m.reader(size, "u32")
        self.target, self.source = self._address(target), self._address(source)
        coordinates = (target if source.value is None else source).inner
        self.coordinates = [m.reader(c, "s32") for c in coordinates]
        self.barrier = self._address(rest.pop(0)) if self.loads else None
        self.im2col = "im2col" in i.parts
        taps = rest.pop(0).inner if self.im2col else ()
        self.taps = [m.reader(t, "u16") for t in taps]
        self.mask = m.reader(rest.pop(0), "u16") if "multicast::cluster" in i.parts else None
        self.from_shared = i.parts[4] == "shared::cta"  # of a plain copy

    def _address(self, o: Operand) -> Callable[[], np.ndarray]:
        """Returns a reader of an operand's address as uint64, one a slot."""
        reg = o.root.kind == "reg" and self.m.type_of(o.root.name) in ("b32", "u32", "s32")
        read, offset = self.m.reader(o.root, "u32" if reg else "u64"), np.uint64(o.offset % (1 << 64))
        return lambda: np.broadcast_to(read().astype(np.uint64) + offset, self.m.slots)

    def run(self) -> None:
        for slot in _slots(self.m).tolist():
            (self._load if self.loads else self._store)(slot)

    # -- the two directions ------------------------------------------------------------------------
    def _load(self, slot: int) -> None:
        m = self.m
        block, at = self._shared(slot, int(self.target()[slot]))
        same, barrier = self._shared(slot, int(needed(self.barrier)()[slot]))
        if self.mask is None and same != block:
            self._fail(slot, "the copy's bytes and its mbarrier are in different blocks of the cluster")
        source, map_ = int(self.source()[slot]), None
        if self.tensor:
            map_, source = self._map(slot, source)
            inner, taken = self._box(slot, at, map_), self._read_box(slot, map_, source)
            nbytes = map_.box_bytes
        else:
            nbytes = self._bytes(slot, at)
            inner = at + np.arange(0, nbytes, PIECE)
            taken = self._read_bytes(slot, source, nbytes)
        blocks = self._blocks(slot, block)
        pieces = [np.uint64(b * m.shared.size) + inner.astype(np.uint64) for b in blocks]
        barriers = [b * m.shared.size + barrier for b in blocks]
        for offset in barriers:
            self._checked(slot, m.shared, np.array([offset], np.uint64), 8, write=False)
        load = Load(self.pc, slot, taken.read, pieces, barriers, nbytes)
        if m.trace is not None:
            load.number = self._event(slot, blocks, at, source, nbytes, map_, barrier)
            data, dtype = taken.read().reshape(-1).view(f"u{taken.width}"), self._dtype(source, map_)
            m.trace.bulk(slot, taken.memory, taken.offsets, data[taken.inside], dtype, write=False)
            for of_block in pieces:
                m.trace.bulk(slot, "shared", _split(of_block, taken.width), data, dtype, write=True)
        needed(m.copies).begin(load)

    def _store(self, slot: int) -> None:
        m = self.m
        block, at = self._shared(slot, int(self.source()[slot]))
        target, map_ = int(self.target()[slot]), None
        if self.tensor:
            map_, target = self._map(slot, target)
            inner, nbytes = self._box(slot, at, map_), map_.box_bytes
            offsets, inside, width = *box_elements(map_, self._corner(slot)), ELEMENTS[map_.dtype]
            offsets = (offsets[inside] + (target - GLOBAL_BASE)).astype(np.uint64)
        else:
            nbytes = self._bytes(slot, at)
            inner = at + np.arange(0, nbytes, PIECE)
            offsets, width = (target - GLOBAL_BASE + np.arange(0, nbytes, 8)).astype(np.uint64), 8
            inside = np.ones(len(offsets), bool)
        pieces = np.uint64(block * m.shared.size) + inner.astype(np.uint64)
        self._checked(slot, m.shared, pieces, 8, write=False)
        needed(m.proxies).check(self.pc, pieces, slot)
        races = m.races.get("global")
        if offsets.size:
            self._checked(slot, m.memory, offsets, width, write=True)
            if races is not None:
                races.overwritten_by_copy(self.pc, slot, offsets, width)
        self._count("st", offsets.size * width)

        def write(data: np.ndarray) -> None:
            if offsets.size:
                m.memory.store(offsets, width, data.reshape(-1).view(f"u{width}")[inside])
                if races is not None:
                    races.written_by_copy(self.pc, slot, offsets, width)

        store = Store(self.pc, slot, pieces, lambda: self._pieces(pieces), write)
        if m.trace is not None:
            store.number = self._event(slot, [block], at, target, nbytes, map_)
            data, dtype = store.read().reshape(-1).view(f"u{width}"), self._dtype(target, map_)
            m.trace.bulk(slot, "shared", _split(pieces, width), data, dtype, write=False)
            m.trace.bulk(slot, "global", offsets, data[inside], dtype, write=True)
        needed(m.copies).store(store)

    def _event(
        self,
        slot: int,
        blocks: list[int],
        at: int,
        address: int,
        nbytes: int,
        map_: TensorMap | None,
        barrier: int = NONE,
    ) -> int:
        """Adds a copy to the trace. Returns its number there. `address`: of the tensor or of the bytes in global memory."""
        m, buffer, first = self.m, "", address
        if not (self.loads and self.from_shared):
            first -= GLOBAL_BASE
            region = next(r for r in m.memory.regions if r.start <= first < r.stop)
            buffer, first = region.name, first - region.start
        corner, box = (self._corner(slot), map_.box) if map_ else ((first,), (nbytes,))
        block = int(m.block_of[slot])
        copy = Copy(buffer, self.loads, corner, box, block, tuple(blocks), at, nbytes, barrier)
        return needed(m.trace).events.copy(self.pc, slot, copy)

    def _dtype(self, address: int, map_: TensorMap | None) -> str:
        """Returns the type of what is copied: that of the map, or of the array that the bytes are in."""
        if map_ is not None:
            return map_.dtype
        at = address - GLOBAL_BASE
        return next((r.dtype.name for r in self.m.memory.regions if r.start <= at < r.stop), "uint32")

    # -- shared memory -----------------------------------------------------------------------------
    def _shared(self, slot: int, address: int) -> tuple[int, int]:
        """Returns (block, byte in its shared memory) of an address of the cluster's shared memory."""
        m = self.m
        block = int(m.block_of[slot])
        address -= WINDOWS["shared"] if address >= WINDOWS["shared"] else 0
        rank = address >> RANK
        if rank:
            size = m.threads.cluster_size
            if rank > size:
                self._fail(slot, f"block {rank - 1} of a cluster of {size}")
            block = int(m.threads.blocks_of_cluster[m.threads.cluster_of_block[block], rank - 1])
        return block, address & int(INSIDE)

    def _blocks(self, slot: int, block: int) -> list[int]:
        """Returns the blocks that a copy writes to: one, or those in the mask."""
        m = self.m
        if self.mask is None:
            blocks = [block]
        else:
            mask = int(np.broadcast_to(self.mask(), m.slots)[slot])
            of_cluster = m.threads.blocks_of_cluster[m.threads.cluster_of_block[block]].tolist()
            blocks = [b for rank, b in enumerate(of_cluster) if mask >> rank & 1]
            if mask >> len(of_cluster) or not blocks:
                self._fail(slot, f"the mask {mask:#b} is not of a cluster of {len(of_cluster)} blocks")
        for b in blocks:
            if not m.live[m.block_of == b].any():
                self._fail(slot, "this copy is to a block of the cluster that has ended")
        return blocks

    def _box(self, slot: int, at: int, map_: TensorMap) -> np.ndarray:
        """Returns where the pieces of a box are stored in a block's shared memory."""
        if at % 128:
            self._fail(slot, f"a box begins at a multiple of 128 bytes of shared memory, got {at}")
        if self.im2col != isinstance(map_, Im2colMap):
            self._fail(slot, "the map is of mode im2col and the copy is not, or the reverse")
        if len(self.coordinates) != len(map_.extents):
            self._fail(slot, f"{len(self.coordinates)} coordinates for {len(map_.extents)} dimensions")
        pieces = swizzled(at + np.arange(0, map_.box_bytes, PIECE), map_.swizzle)
        if pieces.max() + PIECE > self.m.shared.size:
            self._fail(slot, f"the box extends beyond the block's {self.m.shared.size:,} bytes of shared memory")
        return pieces

    def _bytes(self, slot: int, at: int) -> int:
        count = int(np.broadcast_to(needed(self.size)(), self.m.slots)[slot])
        if count % PIECE or at % PIECE or not count:
            self._fail(slot, f"a bulk copy is of multiples of {PIECE} bytes, got {count} bytes at byte {at}")
        return count

    # -- global memory -----------------------------------------------------------------------------
    def _map(self, slot: int, address: int) -> tuple[TensorMap, int]:
        """Returns the tensor map at a generic address, and the address of its tensor."""
        m, name = self.m, space_at(address)
        if name == "param":
            offset = address - WINDOWS["param"] + int(m.param_base[slot])
            data = m.param_space.bytes[offset : offset + MAP_BYTES]
        else:
            offsets = np.uint64(address - GLOBAL_BASE) + np.arange(0, MAP_BYTES, 8, dtype=np.uint64)
            self._checked(slot, m.memory, offsets, 8, write=False)
            data = m.memory.load(offsets, 8)
        found = decoded(data.tobytes()) if data.nbytes == MAP_BYTES else None
        if found is None:
            self._fail(slot, "there is no tensor map at this address")
        return found

    def _corner(self, slot: int) -> tuple[int, ...]:
        return self._values(slot, self.coordinates)

    def _values(self, slot: int, readers: list[Callable[[], np.ndarray]]) -> tuple[int, ...]:
        return tuple(int(np.broadcast_to(read(), self.m.slots)[slot]) for read in readers)

    def _elements(self, slot: int, map_: TensorMap) -> tuple[np.ndarray, np.ndarray]:
        """Returns byte offsets from the tensor's start of what a copy takes, and whether each is inside the tensor."""
        if not isinstance(map_, Im2colMap):
            return box_elements(map_, self._corner(slot))
        tap = self._values(slot, self.taps)
        if max(tap) > MAX_OFFSET:
            self._fail(slot, f"offsets of a tap are 0 .. {MAX_OFFSET}, got {tap}")
        try:
            return im2col_elements(map_, self._corner(slot), tap)
        except ValueError as error:
            self._fail(slot, str(error))

    def _read_box(self, slot: int, map_: TensorMap, start: int) -> _Taken:
        offsets, inside = self._elements(slot, map_)
        width = ELEMENTS[map_.dtype]
        offsets = (offsets[inside] + (start - GLOBAL_BASE)).astype(np.uint64)
        if offsets.size:
            self._read_from(slot, offsets, width)
        self._count("ld", offsets.size * width)

        def read() -> np.ndarray:
            data = np.zeros(inside.size, f"u{width}")
            if offsets.size:
                data[inside] = self.m.memory.load(offsets, width)
            return data.view(np.uint8).reshape(-1, PIECE)

        return _Taken("global", offsets, inside, width, read)

    def _read_bytes(self, slot: int, address: int, nbytes: int) -> _Taken:
        every = np.ones(nbytes // 8, bool)
        if self.from_shared:
            block, at = self._shared(slot, address)
            pieces = (block * self.m.shared.size + at + np.arange(0, nbytes, PIECE)).astype(np.uint64)
            self._checked(slot, self.m.shared, pieces, 8, write=False)
            needed(self.m.proxies).check(self.pc, pieces, slot)
            return _Taken("shared", _split(pieces, 8), every, 8, lambda: self._pieces(pieces))
        offsets = (address - GLOBAL_BASE + np.arange(0, nbytes, 8)).astype(np.uint64)
        self._read_from(slot, offsets, 8)
        self._count("ld", nbytes)
        return _Taken(
            "global", offsets, every, 8, lambda: self.m.memory.load(offsets, 8).view(np.uint8).reshape(-1, PIECE)
        )

    def _read_from(self, slot: int, offsets: np.ndarray, width: int) -> None:
        self._checked(slot, self.m.memory, offsets, width, write=False)
        if (races := self.m.races.get("global")) is not None:
            races.begun_by_copy(self.pc, slot, offsets, width)

    def _pieces(self, pieces: np.ndarray) -> np.ndarray:
        """Returns the bytes of pieces of shared memory, uint8 [pieces, 16]."""
        return self.m.shared.bytes.reshape(-1, PIECE)[(pieces // PIECE).astype(np.int64)]

    # -- counting and errors -----------------------------------------------------------------------
    def _count(self, op: str, nbytes: int) -> None:
        if self.m.tally is not None:
            self.m.tally.add(self.pc, f"bulk_bytes_{op}", nbytes)

    def _checked(self, slot: int, space, offsets: np.ndarray, width: int, write: bool) -> None:
        try:
            space.check(offsets, width, write)
        except Fault as fault:
            self._fail(slot, fault.description)

    def _fail(self, slot: int, message: str) -> NoReturn:
        self.m.fail(self.pc, message, slot)
