"""The order in which a block copies tiles to shared memory, waits for them and uses them, from the emulator's trace.

A *slot* is a run of instructions of one kind: a copy of a tile, a use of a tile, a wait for copies or a barrier. Slots
say what follows what. They have no duration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernels.engines.emulator.trace import BARRIER, WAIT, BlockTrace, Requests

# Tiles whose slots are kept at the start and at the end of a long loop. Of long tiles, one less is kept.
HEAD, TAIL = 3, 2
LONG = 6  # from this many slots on, a tile is long

Pairs = tuple[tuple[str, int], ...]  # names of streams or uses, with the number of a tile


@dataclass(frozen=True)
class Region:
    """Bytes start .. stop - 1 of a buffer of the trace. They hold one tile of a `stream` of tiles at a time and are a part
    of that stream's buffer number `lane`. Loads from them are the use `use` of the tile."""

    buffer: str
    start: int
    stop: int
    stream: str
    lane: int
    use: str


@dataclass(frozen=True)
class Fill:
    """One copy of a tile into a buffer. `tile` counts the copies of a stream from 1. It lasts from slot `start` to slot
    `end`: that of its instructions, or the wait after which an asynchronous copy is complete. `uses`: the slots that load
    the tile."""

    stream: str
    lane: int
    tile: int
    is_async: bool
    start: int
    end: int
    uses: tuple[int, ...] = ()

    def moved(self, slots: int, tiles: int) -> Fill:
        """Returns the fill some slots and tiles later."""
        uses = tuple(use + slots for use in self.uses)
        return replace(self, tile=self.tile + tiles, start=self.start + slots, end=self.end + slots, uses=uses)


@dataclass(frozen=True)
class Slot:
    """`copied`: (stream, tile) of which copies are issued. `used`: (use, tile) that is loaded from shared memory. `awaited`:
    (stream, tile) whose asynchronous copies are complete after it. `barrier`: its number from 1; 0 for none. After a
    barrier of `warps` warps, the tiles `ready` are complete for all of them, and all of them have used the tiles `done`.
    `folded`: the first and the last tile whose slots it stands for. `line`: of the source."""

    line: int
    copied: Pairs = ()
    used: Pairs = ()
    awaited: Pairs = ()
    barrier: int = 0
    warps: int = 0
    ready: Pairs = ()
    done: Pairs = ()
    folded: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ProgramOrder:
    slots: tuple[Slot, ...]
    fills: tuple[Fill, ...]

    def in_flight(self, slot: int) -> list[Fill]:
        """Returns the fills whose copies have been issued and are not known to be complete, in order of the tiles."""
        return [f for f in self.fills if f.start <= slot <= f.end and not any(self.slots[slot].folded)]


# -- from the trace --------------------------------------------------------------------------------
@dataclass(eq=False)
class _Fill:
    region: Region
    tile: int
    is_async: bool
    start: int = -1
    end: int = -1
    uses: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Slot:
    line: int
    copies: list[_Fill] = field(default_factory=list)
    uses: list[tuple[str, _Fill]] = field(default_factory=list)
    awaited: list[_Fill] = field(default_factory=list)
    barrier: int = 0
    warps: int = 0


def program_order(trace: BlockTrace, regions: Sequence[Region], tiles: int) -> ProgramOrder:
    """Returns the order of a block's copies, uses, waits and barriers. `regions` say where tiles are in shared memory;
    accesses to other memory are left out. The loop has `tiles` tiles. Only asynchronous copies of later tiles are kept: a
    kernel that loads ahead does not use them, and after the loop it may use the memory for its results. ValueError if a buffer is read before it is written."""
    return _Reader(trace, regions, tiles).read()


class _Reader:
    """Goes through requests and syncs in the order of execution."""

    def __init__(self, trace: BlockTrace, regions: Sequence[Region], tiles: int):
        self.trace, self.regions, self.tiles = trace, regions, tiles
        self.key = _keys(trace, regions)
        self.slots: list[_Slot] = []
        self.segment = 0  # the first slot since the last wait or barrier
        self.now: dict[tuple[str, int], _Fill] = {}  # by stream and lane: the tile in the buffer
        self.fills: list[_Fill] = []
        self.open: list[_Fill] = []  # asynchronous copies of no group yet
        self.groups: list[list[_Fill]] = []
        self.barriers = 0
        self.warps = 0  # a bit mask: those at the last barrier, if nothing came after it

    def read(self) -> ProgramOrder:
        syncs, done = self.trace.syncs, 0
        for n in range(len(syncs)):
            self._requests(done, done := int(syncs.requests[n]))
            self._sync(int(syncs.kind[n]), int(syncs.pending[n]), int(syncs.step[n]), int(syncs.warps[n]))
        self._requests(done, len(self.key))
        return self._result()

    def _line(self, step: int) -> int:
        line = self.trace.lines[self.trace.line[step]]
        return line.number if line else 0

    def _requests(self, start: int, stop: int) -> None:
        for at in _changes(self.key, start, stop):
            region, is_copy, is_async = self.regions[self.key[at] // 4], self.key[at] & 2, self.key[at] & 1
            fill = self._copied(region, bool(is_async)) if is_copy else self._used(region)
            if fill.tile > self.tiles and not (is_copy and is_async):
                continue
            slot = self._slot(fill, region, bool(is_copy), self._line(int(self.trace.requests.step[at])))
            if is_copy and fill not in slot.copies:
                slot.copies.append(fill)
            if not is_copy and (region.use, fill) not in slot.uses:
                slot.uses.append((region.use, fill))
            self.warps = 0

    def _copied(self, region: Region, is_async: bool) -> _Fill:
        """Returns the fill that a copy belongs to: a new one if the tile before it was used."""
        at, last = (region.stream, region.lane), self.now.get((region.stream, region.lane))
        if last is None or last.uses:
            tile = 1 + sum(f.region.stream == region.stream for f in self.fills)
            self.now[at] = _Fill(region, tile, is_async)
            if tile <= self.tiles or is_async:
                self.fills.append(self.now[at])
        fill = self.now[at]
        if is_async and fill not in self.open:
            self.open.append(fill)
        return fill

    def _used(self, region: Region) -> _Fill:
        fill = self.now.get((region.stream, region.lane))
        if fill is None:
            raise ValueError(f"{region.use}: buffer {region.lane} of {region.stream} is read before it is written")
        fill.uses.append(-1)
        return fill

    def _slot(self, fill: _Fill, region: Region, is_copy: bool, line: int) -> _Slot:
        """Returns the slot of an access. Accesses that alternate between two waits or barriers share one slot."""
        for n in range(self.segment, len(self.slots)):
            slot = self.slots[n]
            if fill in slot.copies if is_copy else (region.use, fill) in slot.uses:
                for other in self.slots[n + 1 :]:
                    slot.copies += [f for f in other.copies if f not in slot.copies]
                    slot.uses += [use for use in other.uses if use not in slot.uses]
                del self.slots[n + 1 :]
                return slot
        self.slots.append(_Slot(line))
        return self.slots[-1]

    def _sync(self, kind: int, pending: int, step: int, warps: int) -> None:
        if kind == BARRIER:
            if self.warps and not self.warps & warps:  # warps that arrive later
                self.warps |= warps
            else:
                self.warps, self.barriers = warps, self.barriers + 1
                self.slots.append(_Slot(self._line(step), barrier=self.barriers))
            self.slots[-1].warps = self.warps.bit_count()
        elif kind == WAIT:
            done = [f for group in self.groups[: len(self.groups) - pending] for f in group]
            awaited = [f for f in done if f.end < 0]
            if not awaited:  # this wait has nothing to wait for
                return
            self.slots.append(_Slot(self._line(step), awaited=awaited))
            for f in awaited:
                f.end = len(self.slots) - 1
        else:
            self.groups.append(self.open)
            self.open = []
            return
        self.segment = len(self.slots)

    def _result(self) -> ProgramOrder:
        for fill in self.fills:
            issued = [n for n, slot in enumerate(self.slots) if fill in slot.copies]
            fill.start = issued[0]
            if fill.end < 0:
                fill.end = len(self.slots) - 1 if fill.is_async else issued[-1]
            fill.uses = [n for n, slot in enumerate(self.slots) if any(f is fill for _, f in slot.uses)]
        before, slots = -1, []
        for n, slot in enumerate(self.slots):
            ready = done = []
            if slot.barrier:
                ready = [f for f in self.fills if before < f.end < n and f.tile <= self.tiles]
                done = [f for f in self.fills if before < max(f.uses, default=-1) < n]
                before = n
            used = tuple((use, f.tile) for use, f in slot.uses)
            copied, awaited, ready, done = map(_pairs, (slot.copies, slot.awaited, ready, done))
            slots.append(Slot(slot.line, copied, used, awaited, slot.barrier, slot.warps, ready, done))
        while slots[-1].barrier and not (slots[-1].ready or slots[-1].done):  # after the loop
            slots.pop()
        fills = tuple(
            Fill(f.region.stream, f.region.lane, f.tile, f.is_async, f.start, f.end, tuple(f.uses)) for f in self.fills
        )
        return ProgramOrder(tuple(slots), fills)


def _pairs(fills: Sequence[_Fill]) -> Pairs:
    return tuple((f.region.stream, f.tile) for f in fills)


def _keys(trace: BlockTrace, regions: Sequence[Region]) -> np.ndarray:
    """Returns int64[requests]: 4 times the region that a request accesses, plus 2 for a store, plus 1 for a request of
    cp.async; -1 for accesses to other memory."""
    requests = trace.requests
    key, byte = np.full(len(requests), -1), first_bytes(requests)
    for n, region in enumerate(regions):
        if region.buffer not in trace.buffers:
            continue
        inside = (byte >= region.start) & (byte < region.stop)
        inside &= requests.buffer == trace.buffers.index(region.buffer)
        key[inside] = 4 * n + 2 * requests.write[inside] + requests.async_copy[inside]
    return key


def first_bytes(requests: Requests) -> np.ndarray:
    """Returns int64[requests]: the byte at which the first active lane begins."""
    mask = requests.mask.astype(np.int64)
    lane = np.round(np.log2(np.maximum(mask & -mask, 1))).astype(int)
    return requests.byte[np.arange(len(requests)), lane].astype(np.int64)


def _changes(key: np.ndarray, start: int, stop: int) -> Iterator[int]:
    """Yields the requests from `start` to `stop` - 1 that access a region in another way than the request before."""
    at = start + np.flatnonzero(key[start:stop] >= 0)
    if at.size:
        yield from at[np.append(True, np.diff(key[at]) != 0)].tolist()


# -- long loops ------------------------------------------------------------------------------------
def tiles_to_run(tiles: int, lanes: int) -> int:
    """Returns how many of a loop's tiles must run so that the others repeat them: all of a short loop. The tiles left out
    go round all `lanes` buffers, so that each tile stays in its buffer."""
    enough = _enough(lanes)
    return tiles if tiles <= enough else enough + (tiles - enough) % lanes


def _enough(lanes: int) -> int:
    """Returns the number of tiles in a loop with one in the middle. The tiles at the end differ from it: there is nothing
    left to copy while they are used."""
    return HEAD + max(TAIL, lanes - 1) + 1


def folded(order: ProgramOrder, tiles: int, run: int) -> ProgramOrder:
    """Returns the order of a loop over `tiles` tiles from that of a run with `run` of them (tiles_to_run). The tiles in the
    middle share one slot, as their slots repeat those of the tile before. A short loop stays as it is."""
    lanes = 1 + max(f.lane for f in order.fills)
    if tiles <= _enough(lanes):
        return order
    iteration = _iterations(order, run)
    period = [slot for slot, tile in zip(order.slots, iteration, strict=True) if tile == HEAD]
    less = len(period) >= LONG
    first, last = HEAD + 1 - less, run - max(TAIL - less, lanes - 1)
    start = int(np.searchsorted(iteration, first))
    stop = int(np.searchsorted(iteration, last, side="right"))
    more = tiles - run
    slots_moved = 1 - (stop - start)
    barriers = more * sum(slot.barrier > 0 for slot in period)
    middle = Slot(order.slots[start].line, folded=(first, last + more))
    tail = [_moved(slot, more, barriers) for slot in order.slots[stop:]]
    fills = [
        replace(f, end=min(f.end, start - 1), uses=tuple(u for u in f.uses if u < start))
        for f in order.fills
        if f.start < start
    ]
    fills += [
        replace(f, start=max(f.start, stop), uses=tuple(u for u in f.uses if u >= stop)).moved(slots_moved, more)
        for f in order.fills
        if max(f.end, *f.uses, -1) >= stop
    ]
    return ProgramOrder((*order.slots[:start], middle, *tail), tuple(fills))


def _iterations(order: ProgramOrder, run: int) -> np.ndarray:
    """Returns int64[slots]: the tile that is used next, in this slot or later; at the end, the last tile."""
    tiles, tile = [], run
    for slot in reversed(order.slots):
        tile = min((t for _, t in slot.used), default=tile)
        tiles.append(tile)
    return np.array(tiles[::-1])


def _moved(slot: Slot, tiles: int, barriers: int) -> Slot:
    def later(pairs: Pairs) -> Pairs:
        return tuple((name, tile + tiles) for name, tile in pairs)

    return replace(
        slot,
        copied=later(slot.copied),
        used=later(slot.used),
        awaited=later(slot.awaited),
        ready=later(slot.ready),
        done=later(slot.done),
        barrier=slot.barrier + barriers if slot.barrier else 0,
    )
