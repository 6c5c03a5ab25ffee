"""The order in which a block fills, multiplies and frees the stages of its ring, from the emulator's events.

A *slot* is a run of events of one kind for one tile: copies are issued, arrive, are multiplied, or the stage is freed.
Slots say what follows what. They have no duration. Tiles of A and B are counted from 1, over all tiles of C of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernels.engines.emulator.events import NONE, WARPS, Copy, Events, Kind
from kernels.engines.emulator.trace import BlockTrace
from visuals.scene.ring import (
    ARRIVED,
    FILLING,
    FOLDED,
    FREE,
    FULL,
    HEAD,
    ISSUE,
    MULTIPLY,
    ON_EMPTY,
    ON_FULL,
    READING,
    STORE,
    Actor,
    actors,
    line_number,
)

Place = tuple[int, int]  # block and stage
Barrier = tuple[int, str, int]  # block, ON_FULL or ON_EMPTY, stage
Sent = tuple[int, tuple[int, ...], int]  # a copy: the block that issues it, the blocks that it goes to, bytes in each


@dataclass(frozen=True)
class Ring:
    """The ring in the shared memory of each of `blocks`: `stages` of `nbytes` bytes from byte 0 on. Barriers of eight bytes
    begin at byte `full`, then those at byte `empty`. The producer is the warpgroup after the `consumers`."""

    blocks: tuple[int, ...]
    stages: int
    nbytes: int
    full: int
    empty: int
    consumers: int

    def barrier(self, byte: int) -> tuple[str, int]:
        """Returns the name and the stage of a barrier. ValueError if none begins at this byte."""
        for name, first in ((ON_FULL, self.full), (ON_EMPTY, self.empty)):
            stage, rest = divmod(byte - first, 8)
            if 0 <= stage < self.stages and not rest:
                return name, stage
        raise ValueError(f"no barrier of the ring begins at byte {byte}")

    def stage(self, byte: int) -> int:
        """Returns the stage of a byte of shared memory. ValueError if it is in none."""
        if not 0 <= byte < self.stages * self.nbytes:
            raise ValueError(f"byte {byte} is in no stage of the ring")
        return byte // self.nbytes

    @property
    def tail(self) -> int:
        """Tiles that are kept at the end of a long loop: nothing is left to copy while they are multiplied."""
        return max(2, self.stages - 1)

    @property
    def whole(self) -> int:
        """The longest loop that is shown whole."""
        return HEAD + 1 + self.tail

    def tiles_to_run(self, tiles: int) -> int:
        """Returns how many of a loop's tiles must run so that the others repeat them. Those left out go round all stages, so
        that each tile stays in its stage."""
        return tiles if tiles <= self.whole else self.whole + (tiles - self.whole) % self.stages


@dataclass(frozen=True)
class Slot:
    """`doers` execute it. `waits`: the tile that each waiting warpgroup waits for. `copies` begin in it; `products` are the
    wgmma of each consumer. After it, `stages` has the state and the tile of each stage that is not empty, and `ended` the
    number of phases of each barrier that have ended. `line`: of the source. `folded`: the first and the last tile whose
    slots it replaces."""

    kind: str
    tile: int
    line: int = 0
    doers: tuple[Actor, ...] = ()
    waits: dict[Actor, int] = field(default_factory=dict)
    copies: tuple[Sent, ...] = ()
    products: int = 0
    stages: dict[Place, tuple[str, int]] = field(default_factory=dict)
    ended: dict[Barrier, int] = field(default_factory=dict)
    folded: tuple[int, int] = (0, 0)

    def moved(self, tiles: int, stages: int) -> Slot:
        """Returns the slot some tiles later, whole rounds of a ring of `stages`."""
        if not tiles:
            return self
        return replace(
            self,
            tile=self.tile + tiles,
            waits={who: tile + tiles for who, tile in self.waits.items()},
            stages={at: (state, tile + tiles) for at, (state, tile) in self.stages.items()},
            ended={at: count + tiles // stages for at, count in self.ended.items()},
        )


def ring_order(trace: BlockTrace, ring: Ring) -> tuple[Slot, ...]:
    """Returns the slots of a block and its cluster. ValueError if the events are not those of a ring: copies that go to
    another stage than that of their barrier, or products that read a stage without a tile."""
    return _Reader(trace, ring).read()


class _Reader:
    """Goes through the events in the order of execution."""

    def __init__(self, trace: BlockTrace, ring: Ring):
        self.trace, self.ring = trace, ring
        self.events: Events = trace.events
        self.slots: list[Slot] = []
        self.issued = dict.fromkeys(ring.blocks, 0)  # by block: tiles whose copies have begun
        self.multiplied: dict[Actor, int] = {}  # the last tile of each consumer
        self.tile_of: dict[int, int] = {}  # by copy
        self.stages: dict[Place, tuple[str, int]] = {}
        self.ended = {(b, on, s): 0 for b in ring.blocks for on in (ON_FULL, ON_EMPTY) for s in range(ring.stages)}
        self.waiting: dict[Actor, tuple[str, int, int]] = {}  # the barrier's name, its stage, the line of the wait
        self.requests = 0  # of the block, read so far

    def read(self) -> tuple[Slot, ...]:
        e = self.events
        for n in range(len(e)):
            self._stored(int(e.requests[n]))
            self._event(n, Kind(e.kind[n]), int(e.number[n]), int(e.block[n]))
        self._stored(len(self.trace.requests))
        return tuple(self.slots)

    def _event(self, n: int, kind: Kind, number: int, block: int) -> None:
        if kind in (Kind.COPY, Kind.COPIED):
            copy = self.events.copies[number]
            if not copy.load:
                if kind == Kind.COPY:
                    self._note(STORE, self._last(), n, self._actors(n))
            elif kind == Kind.COPY:
                self._copy(n, number, copy)
            else:
                self._note(ARRIVED, self.tile_of[number], n)
        elif kind == Kind.PRODUCT:
            self._product(n, number, block)
        elif int(self.events.barrier[n]) != NONE:
            self._barrier(n, kind, number, block)

    # -- kinds of events -----------------------------------------------------------------------------
    def _copy(self, n: int, number: int, copy: Copy) -> None:
        (on, stage), tile = self.ring.barrier(copy.barrier), self.issued[copy.block]
        last = copy.start + copy.nbytes - 1
        if on != ON_FULL or {self.ring.stage(copy.start), self.ring.stage(last)} != {stage}:
            raise ValueError(f"a copy to byte {copy.start} is reported to the barrier of another stage")
        self.tile_of[number] = tile
        for block in copy.blocks:
            self.stages[block, stage] = FILLING, tile
        slot = self._note(ISSUE, tile, n, self._actors(n))
        self.slots[-1] = replace(slot, copies=(*slot.copies, (copy.block, copy.blocks, copy.nbytes)))

    def _product(self, n: int, number: int, block: int) -> None:
        product = self.events.products[number]
        spans = (product.a or product.b, product.b)
        found = {self.ring.stage(byte) for first, stop in spans for byte in (first, stop - 1)}
        (stage,) = found if len(found) == 1 else (NONE,)
        if (block, stage) not in self.stages:
            raise ValueError(f"a product reads {product}, which is no stage with a tile")
        tile = self.stages[block, stage][1]
        self.stages[block, stage] = READING, tile
        actors = self._actors(n)
        slot = self._note(MULTIPLY, tile, n, actors)
        self.slots[-1] = replace(slot, products=slot.products + (actors[0] == slot.doers[0]))
        self.multiplied |= dict.fromkeys(actors, tile)

    def _barrier(self, n: int, kind: Kind, number: int, block: int) -> None:
        on, stage = self.ring.barrier(int(self.events.barrier[n]))
        at = int(self.events.barrier_block[n]), stage
        if kind == Kind.WAIT:
            self.waiting |= dict.fromkeys(self._actors(n), (on, stage, self._line(n)))
        elif kind == Kind.PASS:
            for actor in self._actors(n):
                self.waiting.pop(actor, None)
        elif kind == Kind.EXPECT:
            self.issued[block] += 1
            self._expected(self.issued[block], stage)
        elif kind == Kind.ARRIVE and on == ON_EMPTY:
            if at not in self.stages:
                raise ValueError(f"stage {stage} is freed twice")
            self._note(FREE, self.stages[at][1], n, self._actors(n))
        elif kind == Kind.PHASE:
            self._phase(n, on, at)

    def _expected(self, tile: int, stage: int) -> None:
        if (tile - 1) % self.ring.stages != stage:
            raise ValueError(f"tile {tile} is not for stage {stage}")

    def _phase(self, n: int, on: str, at: Place) -> None:
        if at not in self.stages:
            raise ValueError(f"a phase of stage {at[1]} ends while the stage is empty")
        kind, (_, tile) = ARRIVED if on == ON_FULL else FREE, self.stages[at]
        if on == ON_FULL:
            self.stages[at] = FULL, tile
        else:
            del self.stages[at]
        self.ended[at[0], on, at[1]] += 1
        self._note(kind, tile, n)

    def _stored(self, requests: int) -> None:
        """Notes the memory requests of the block up to this number: only stores of sums make any."""
        if requests > self.requests:
            of = self.trace.requests
            actors = {(self.trace.block, int(warp) // WARPS) for warp in of.warp[self.requests : requests]}
            line = self.trace.lines[self.trace.line[of.step[self.requests]]]
            self._note(STORE, self._last(), NONE, tuple(sorted(actors)), line.number if line else 0)
            self.requests = requests

    # -- slots ---------------------------------------------------------------------------------------
    def _note(self, kind: str, tile: int, n: int, doers: Sequence[Actor] = (), line: int = 0) -> Slot:
        """Returns the slot that event n belongs to, the last one: a new one if its kind or its tile differ."""
        if not self.slots or (self.slots[-1].kind, self.slots[-1].tile) != (kind, tile):
            waits = {who: self._awaited(who, *wait) for who, wait in self.waiting.items()}
            self.slots.append(Slot(kind, tile, line or self._lit(kind, tile, n), waits=waits))
        slot = self.slots[-1]
        doers = tuple(sorted({*slot.doers, *doers}))
        self.slots[-1] = replace(slot, doers=doers, stages=dict(self.stages), ended=dict(self.ended))
        return self.slots[-1]

    def _lit(self, kind: str, tile: int, n: int) -> int:
        """Returns the line of a slot: where a consumer waits while copies arrive, else that of the event."""
        stage = (tile - 1) % self.ring.stages
        waits = [line for on, at, line in self.waiting.values() if (on, at) == (ON_FULL, stage)]
        return waits[0] if kind == ARRIVED and waits else self._line(n)

    def _awaited(self, who: Actor, on: str, stage: int, _: int) -> int:
        """Returns the tile that a warpgroup waits for: its next one."""
        block, warpgroup = who
        tile = 1 + (self.issued[block] if warpgroup == self.ring.consumers else self.multiplied.get(who, 0))
        self._expected(tile, stage)
        return tile

    def _last(self) -> int:
        return max(self.multiplied.values(), default=0)

    def _line(self, n: int) -> int:
        return line_number(self.events, n)

    def _actors(self, n: int) -> tuple[Actor, ...]:
        return actors(self.events, n, self.ring.consumers + 1)


# -- long loops ------------------------------------------------------------------------------------
def folded(slots: Sequence[Slot], ring: Ring, tiles: int, run: int) -> tuple[Slot, ...]:
    """Returns the slots of loops over `tiles` tiles from those of loops over `run` of them (Ring.tiles_to_run). The tiles in
    the middle of each loop share one slot, as their slots repeat those of the tile before."""
    if tiles <= ring.whole:
        return tuple(slots)
    last, more = run - ring.tail, tiles - run
    out: list[Slot] = []
    moved, iteration = 0, 0  # tiles left out so far; the tile that arrived last
    for slot in slots:
        iteration = slot.tile if slot.kind == ARRIVED else iteration
        loop, tile = divmod(iteration - 1, run)
        if iteration and HEAD < tile + 1 <= last:
            if tile == HEAD and slot.kind == ARRIVED:
                moved += more
                first = loop * tiles + HEAD + 1
                out.append(Slot(FOLDED, first, slot.line, folded=(first, loop * tiles + last + more)))
            later = slot.moved(moved, ring.stages)
            out[-1] = replace(out[-1], stages=later.stages, ended=later.ended)
        else:
            out.append(slot.moved(moved, ring.stages))
    return tuple(out)
