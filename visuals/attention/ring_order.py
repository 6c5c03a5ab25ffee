"""The order in which a block copies tiles of Q, K and V, multiplies them and computes softmax, from the emulator's trace.

A *slot* is a run of events of one kind: copies are issued, arrive, products begin, weights are computed, stages are freed,
O is stored. Slots have no duration. Tiles of Q and tiles of keys are counted from 1, over all that the block loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernels.engines.emulator.events import NONE, WARPS, Kind
from kernels.engines.emulator.ptx.kernel import Line
from kernels.engines.emulator.trace import BARRIER, BlockTrace
from visuals.scene.parts import Cells
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

SOFTMAX = "softmax"  # a kind of slots
ON_TOKEN = "token"  # a named barrier: a consumer may begin its products
Q, K, V = "Q", "K", "V"  # what is copied
S, P, O = "S", "P", "O"  # noqa: E741  # what a consumer computes: scores, weights, sums
RANK = {Q: 0, K: 1, V: 2, S: 0, P: 0, O: 1}  # a slot of copies or products takes them in this order only
# What a kernel's file has in the line that begins each of them: the first of these texts that is in the file.
MARKS = {
    Q: ("load_tile<Br>(",),
    K: ("load_tile<Bc>(tile_k",),
    V: ("load_tile<Bc>(tile_v",),
    S: ("begin_scores(s",),
    O: ("begin_values(o",),
    SOFTMAX: ("weigh(s,", "exponentiate("),
    STORE: ("store_values(O",),
}
NOBODY = (NONE, NONE)

Place = tuple[str, int]  # Q, K or V, and the stage
Barrier = tuple[str, str, int]  # Q, K or V, ON_FULL or ON_EMPTY, the stage


@dataclass(frozen=True)
class Region:
    """The stages of Q, K or V in shared memory: `stages` of `nbytes` bytes from byte `start`. Their barriers begin at the
    bytes `full` and `empty` (NONE: the block's barrier frees them)."""

    start: int
    stages: int
    nbytes: int
    full: int
    empty: int = NONE


@dataclass(frozen=True)
class Ring:
    """What is where in a block's shared memory. The producer is the warpgroup after the `consumers`, if there is one.
    `softmax` and `tokens`: the source lines that compute weights and that wait for the token. `alternates`: one
    warpgroup runs at a time in the emulator, so that two consumers alternate. More of them would have too many
    columns."""

    regions: Mapping[str, Region]
    consumers: int
    producer: bool
    softmax: frozenset[Line]
    tokens: frozenset[Line]
    alternates: bool
    lines: tuple[str, ...]  # of the kernel's file

    @property
    def stages(self) -> int:
        return self.regions[K].stages

    @cached_property
    def _marked(self) -> dict[str, list[int]]:
        return {}

    def marked(self, what: str) -> list[int]:
        """Returns the lines of the kernel's file that have the mark of `what`."""
        if what not in self._marked:
            text = next(text for text in MARKS[what] if any(text in line for line in self.lines))
            self._marked[what] = [n for n, line in enumerate(self.lines, 1) if text in line]
        return self._marked[what]

    @cached_property
    def barriers(self) -> dict[Barrier, int]:
        """The byte of each barrier."""
        return {
            (what, on, stage): first + 8 * stage
            for what, region in self.regions.items()
            for on, first in ((ON_FULL, region.full), (ON_EMPTY, region.empty))
            if first != NONE
            for stage in range(region.stages)
        }

    def barrier(self, byte: int) -> Barrier:
        """Returns the barrier at a byte. ValueError if none begins there."""
        if byte not in self._at:
            raise ValueError(f"no barrier of the ring begins at byte {byte}")
        return self._at[byte]

    @cached_property
    def _at(self) -> dict[int, Barrier]:
        return {byte: barrier for barrier, byte in self.barriers.items()}

    def place(self, first: int, stop: int) -> Place:
        """Returns the stage that has these bytes of shared memory. ValueError if none has them all."""
        for what, region in self.regions.items():
            stage = (first - region.start) // region.nbytes
            if 0 <= stage < region.stages and stop <= region.start + (stage + 1) * region.nbytes:
                return what, stage
        raise ValueError(f"bytes {first} to {stop} are in no stage")


@dataclass(frozen=True)
class Wait:
    """What a warpgroup waits for: tile `tile` of `what` at a barrier `on`; with ON_TOKEN, the token to begin `what`."""

    what: str
    tile: int
    on: str


NOTHING = Wait("", 0, "")


@dataclass(frozen=True)
class Slot:
    """`tiles` has the tile of each of Q, K, V, S, P, O that the slot is about. `doers` execute it; the copy engine none.
    After it, `running` has the tile of each product under way, `stages` the state and the tile of each stage that is not
    empty, `ended` the phases of each barrier that have ended. `folded`: the first and the last tile whose slots it
    replaces."""

    kind: str
    tiles: dict[str, int]
    line: int = 0
    doers: tuple[Actor, ...] = ()
    waits: dict[Actor, Wait] = field(default_factory=dict)
    running: dict[tuple[Actor, str], int] = field(default_factory=dict)
    stages: dict[Place, tuple[str, int]] = field(default_factory=dict)
    ended: dict[Barrier, int] = field(default_factory=dict)
    folded: tuple[int, int] = (0, 0)

    def moved(self, tiles: int, stages: int) -> Slot:
        """Returns the slot some tiles of keys later, whole rounds of the stages. Tiles of Q keep their numbers."""
        if not tiles:
            return self
        return replace(
            self,
            tiles={what: tile + tiles * (what != Q) for what, tile in self.tiles.items()},
            waits={who: replace(w, tile=w.tile + tiles * (w.what != Q)) for who, w in self.waits.items()},
            running={at: tile + tiles for at, tile in self.running.items()},
            stages={at: (state, tile + tiles * (at[0] != Q)) for at, (state, tile) in self.stages.items()},
            ended={at: count + tiles // stages * (at[0] != Q) for at, count in self.ended.items()},
        )


def ring_order(trace: BlockTrace, ring: Ring) -> tuple[Slot, ...]:
    """Returns the slots of a block. ValueError if a copy goes to another stage than that of its barrier, or if a product
    reads a stage that has no tile."""
    return _Reader(trace, ring).read()


class _Reader:
    """Goes through steps and events in the order of execution."""

    def __init__(self, trace: BlockTrace, ring: Ring):
        self.trace, self.ring, self.events = trace, ring, trace.events
        self.slots: list[Slot] = []
        self.issued = dict.fromkeys(ring.regions, 0)  # tiles whose copies have begun
        self.tile_of: dict[int, tuple[str, int]] = {}  # by copy
        self.stages: dict[Place, tuple[str, int]] = {}
        self.ended = dict.fromkeys(ring.barriers, 0)
        self.waiting: dict[Actor, Wait] = {}
        self.line_of: dict[Actor, int] = {}  # of the kernel's file, at which each warpgroup waited last
        self.passed = False  # whether a wait has ended since a copy arrived
        self.running: dict[tuple[Actor, str], int] = {}
        self.groups: dict[Actor, list[set[str]]] = {}  # closed groups of products under way
        self.open: dict[Actor, set[str]] = {}  # the products of the group that is not closed yet
        self.scores: dict[Actor, int] = {}  # the tile of the last scores
        self.weights: dict[Actor, int] = {}  # and of the last weights
        self.at_barrier = 0  # warps at the block's barrier
        self.token_waits = _token_waits(trace, ring)
        self.stores = _stores(trace)

    def read(self) -> tuple[Slot, ...]:
        e, step = self.events, 0
        for n in range(len(e)):
            for at in range(step, int(e.steps[n])):
                self._step(at)
            step = max(step, int(e.steps[n]))
            self._event(n, Kind(e.kind[n]), int(e.number[n]))
        for at in range(step, self.trace.steps):
            self._step(at)
        return tuple(self.slots)

    # -- steps ---------------------------------------------------------------------------------------
    def _step(self, at: int) -> None:
        """Reads a step: the end of a wait for the token, weights, a barrier, stores of O."""
        line = self.trace.lines[self.trace.line[at]]
        here = self.here[at]
        for who in here:
            if who in self.waiting and self.waiting[who].on == ON_TOKEN:
                del self.waiting[who]
            if line in self.ring.softmax and (tile := self.scores.get(who, 0)) > self.weights.get(who, 0):
                self._note(SOFTMAX, P, tile, self._lit(SOFTMAX, who), (who,))
                self.weights[who] = tile
        for who, what in self.token_waits.get(at, {}).items():
            self.waiting[who] = Wait(what, self.scores.get(who, 0) + (what == S), ON_TOKEN)
        if at in self.ring_barriers:
            self._block_barrier(at, line)
        if who := self.stores.get(at):
            self._note(STORE, O, max(self.scores.values(), default=0), self._lit(STORE, who[0]), who)

    @cached_property
    def here(self) -> list[tuple[Actor, ...]]:
        """The warpgroups of each step."""
        active = self.trace.masks != 0
        known = {row.tobytes(): row for row in active}
        groups = {key: _groups(self.trace.block, np.flatnonzero(row)) for key, row in known.items()}
        return [groups[row.tobytes()] for row in active]

    @cached_property
    def ring_barriers(self) -> dict[int, int]:
        """The warps at the block's barrier by step, if it frees the stages."""
        syncs = self.trace.syncs
        if self.ring.regions[K].empty != NONE:
            return {}
        rows = zip(syncs.kind, syncs.step, syncs.warps, strict=True)
        return {int(step): int(warps) for kind, step, warps in rows if kind == BARRIER}

    def _block_barrier(self, at: int, line: Line | None) -> None:
        """Frees the stages that have been read, once all warps are at the block's barrier."""
        self.at_barrier |= self.ring_barriers[at]
        if self.at_barrier != (1 << self.trace.masks.shape[1]) - 1:
            return
        self.at_barrier = 0
        for place, (state, tile) in list(self.stages.items()):
            if state == READING and place[0] != Q:
                del self.stages[place]
                self._note(FREE, place[0], tile, line.number if line else 0, self._everyone)

    @property
    def _everyone(self) -> tuple[Actor, ...]:
        return tuple((self.trace.block, group) for group in range(self.ring.consumers))

    # -- events --------------------------------------------------------------------------------------
    def _event(self, n: int, kind: Kind, number: int) -> None:
        if kind == Kind.COPY:
            self._copy(n, number)
        elif kind == Kind.COPIED:
            what, tile = self.tile_of[number]
            self._note(ARRIVED, what, tile, self._awaited_line(what, tile))
        elif kind == Kind.PRODUCT:
            self._product(n, number)
        elif kind == Kind.CLOSE_PRODUCTS:
            for who in self._actors(n):
                self.groups.setdefault(who, []).append(self.open.pop(who, set()))
        elif kind == Kind.WAIT_PRODUCTS:
            for who in self._actors(n):
                self._end_products(who, number)
        elif int(self.events.barrier[n]) != NONE:
            self._barrier(n, kind, number)

    def _copy(self, n: int, number: int) -> None:
        copy = self.events.copies[number]
        what, on, stage = self.ring.barrier(copy.barrier)
        if on != ON_FULL or self.ring.place(copy.start, copy.start + copy.nbytes) != (what, stage):
            raise ValueError(f"a copy to byte {copy.start} is reported to the barrier of another stage")
        self.tile_of[number] = what, self.issued[what]
        self.stages[what, stage] = FILLING, self.issued[what]
        (who,) = self._actors(n)
        self._note(ISSUE, what, self.issued[what], self._lit(what, who), (who,))

    def _product(self, n: int, number: int) -> None:
        product = self.events.products[number]
        places = [self.ring.place(*span) for span in (product.a, product.b) if span]
        what = O if product.a is None else S
        if [name for name, _ in places] != ([V] if what == O else [Q, K]) or not self.stages.keys() >= {*places}:
            raise ValueError(f"a product reads {product}, which is no stage with a tile")
        for place in places:
            self.stages[place] = READING, self.stages[place][1]
        tile = self.stages[places[-1]][1]
        for who in self._actors(n):
            self.running[who, what] = tile
            self.open.setdefault(who, set()).add(what)
            self.scores[who] = tile if what == S else self.scores[who]
            self._note(MULTIPLY, what, tile, self._lit(what, who), (who,))

    def _end_products(self, who: Actor, pending: int) -> None:
        groups = self.groups.setdefault(who, [])
        while len(groups) > pending:
            for what in groups.pop(0):
                self.running.pop((who, what), None)

    def _barrier(self, n: int, kind: Kind, number: int) -> None:
        at = self.ring.barrier(int(self.events.barrier[n]))
        what, on, stage = at
        if kind == Kind.WAIT:
            for who in self._actors(n):
                self.waiting[who] = self._wait(at, number)
                self.line_of[who] = line_number(self.events, n)
        elif kind == Kind.PASS:
            self.passed = True
            for who in self._actors(n):
                self.waiting.pop(who, None)
        elif kind == Kind.EXPECT:
            self.issued[what] += 1
            if (self.issued[what] - 1) % self.ring.regions[what].stages != stage:
                raise ValueError(f"tile {self.issued[what]} of {what} is not for stage {stage}")
        elif kind == Kind.ARRIVE and on == ON_EMPTY:
            self._note(FREE, what, self.stages[what, stage][1], line_number(self.events, n), self._actors(n))
        elif kind == Kind.PHASE:
            self._phase(at)

    def _wait(self, at: Barrier, parity: int) -> Wait:
        """Returns which tile a wait for a phase with this parity is for: the phase that runs, or the one before."""
        what, on, stage = at
        phase = self.ended[at] - (parity != self.ended[at] % 2)
        stages = self.ring.regions[what].stages
        return Wait(what, (phase + (on == ON_EMPTY)) * stages + stage + 1, on)

    def _phase(self, at: Barrier) -> None:
        what, on, stage = at
        _, tile = self.stages[what, stage]
        self.ended[at] += 1
        if on == ON_FULL:
            self.stages[what, stage] = FULL, tile
            self._note(ARRIVED, what, tile)
        else:
            del self.stages[what, stage]
            self._note(FREE, what, tile)

    # -- slots ---------------------------------------------------------------------------------------
    def _note(self, kind: str, what: str, tile: int, line: int = 0, doers: Sequence[Actor] = ()) -> None:
        """Adds to the last slot, or begins a new one."""
        if not self.slots or not self._continues(self.slots[-1], kind, what, tile, doers):
            self.slots.append(Slot(kind, {}, line, waits=dict(self.waiting)))
        self.passed = False
        slot = self.slots[-1]
        self.slots[-1] = replace(
            slot,
            tiles=slot.tiles | {what: tile},
            doers=tuple(sorted({*slot.doers, *doers})),
            running=self._running(slot),
            stages=dict(self.stages),
            ended=dict(self.ended),
        )

    def _running(self, slot: Slot) -> dict[tuple[Actor, str], int]:
        """Returns the products under way, and those that began in a slot."""
        return (slot.running if slot.kind == MULTIPLY else {}) | self.running

    def _continues(self, slot: Slot, kind: str, what: str, tile: int, doers: Sequence[Actor]) -> bool:
        """Returns whether an event belongs to a slot: the same kind, no second tile of Q, K, V, S, P or O. Copies that a
        warpgroup waited for arrive in slots of their own, and so do products after a wait for the token."""
        if slot.kind != kind or slot.tiles.get(what, tile) != tile:
            return False
        if kind == FREE and what not in slot.tiles and not {*doers} <= {*slot.doers}:
            return False
        if kind in (MULTIPLY, SOFTMAX) and self.ring.alternates and {*doers} != {*slot.doers}:
            return False
        if what in slot.tiles:
            return not any(slot.waits.get(who, NOTHING).on == ON_TOKEN for who in doers)
        if kind == ARRIVED:
            return not self.passed
        if kind in (ISSUE, MULTIPLY) and any(RANK[what] < RANK[other] for other in slot.tiles):
            return False
        return not any(slot.waits.get(who, NOTHING).on == ON_TOKEN for who in doers)

    def _lit(self, what: str, who: Actor) -> int:
        """Returns the line of the kernel's file at which a warpgroup begins `what`: the next one after its last wait."""
        found = self.ring.marked(what)
        return next((n for n in found if n >= self.line_of.get(who, 0)), found[0])

    def _awaited_line(self, what: str, tile: int) -> int:
        """Returns the line at which a warpgroup waits for a tile, else the line that copies it."""
        waits = [who for who, wait in self.waiting.items() if (wait.what, wait.tile, wait.on) == (what, tile, ON_FULL)]
        return self.line_of[waits[0]] if waits else self._lit(what, NOBODY)

    def _actors(self, n: int) -> tuple[Actor, ...]:
        return actors(self.events, n, self.ring.consumers + self.ring.producer)


def _groups(block: int, warps: Cells) -> tuple[Actor, ...]:
    """Returns the warpgroups of some warps."""
    return tuple((block, group) for group in sorted({int(warp) // WARPS for warp in warps}))


def _stores(trace: BlockTrace) -> dict[int, tuple[Actor, ...]]:
    """Returns, by step, the warpgroups that store O."""
    of, found = trace.requests, {}
    for row in range(len(of)):
        if of.write[row] and trace.buffers[of.buffer[row]] == O:
            found.setdefault(int(of.step[row]), set()).add(int(of.warp[row]))
    return {step: _groups(trace.block, sorted(warps)) for step, warps in found.items()}


def _token_waits(trace: BlockTrace, ring: Ring) -> dict[int, dict[Actor, str]]:
    """Returns, by step, the warpgroups that come to the barrier of their turn, each with what it begins next: S or O."""
    e = trace.events
    products = [
        (int(e.steps[n]), who, O if e.products[int(e.number[n])].a is None else S)
        for n in range(len(e))
        if e.kind[n] == Kind.PRODUCT
        for who in actors(e, n, ring.consumers)
    ]
    found: dict[int, dict[Actor, str]] = {}
    for step, warps in zip(trace.syncs.step.tolist(), trace.syncs.warps.tolist(), strict=True):
        if trace.lines[trace.line[step]] not in ring.tokens:
            continue
        for who in _groups(trace.block, [warp for warp in range(64) if warps >> warp & 1]):
            if what := next((what for at, other, what in products if at > step and other == who), ""):
                found.setdefault(step, {})[who] = what
    return found


# -- long loops ------------------------------------------------------------------------------------
def folded(slots: Sequence[Slot], ring: Ring, loops: Sequence[tuple[int, int]], tail: int) -> tuple[Slot, ...]:
    """Returns the slots of loops over (_, all) tiles of keys from those of loops over (run, _) of them. The tiles between
    the first HEAD and the last `tail` of a loop share one slot, if the loop has been shortened or is longer than that."""
    out: list[Slot] = []
    moved, iteration = 0, 0  # tiles left out so far; the tile of K that arrived last
    for slot in slots:
        iteration = slot.tiles.get(K, iteration) if slot.kind == ARRIVED else iteration
        before, run, whole = _loop_of(iteration, loops)
        at = iteration - before  # of its loop, from 1
        if whole <= whole_loop(tail) or not HEAD < at <= run - tail:
            out.append(slot.moved(moved, ring.stages))
            continue
        if at == HEAD + 1 and slot.kind == ARRIVED and K in slot.tiles:
            first = iteration + moved
            moved += whole - run
            last = before + run - tail + moved
            out.append(Slot(FOLDED, {K: first}, slot.line, folded=(first, last)))
        later = slot.moved(moved, ring.stages)
        out[-1] = replace(out[-1], stages=later.stages, ended=later.ended)
    return tuple(out)


def whole_loop(tail: int) -> int:
    """Returns the longest loop that is shown whole."""
    return HEAD + 1 + tail


def _loop_of(iteration: int, loops: Sequence[tuple[int, int]]) -> tuple[int, int, int]:
    """Returns of the loop that has a tile: the tiles before it, those run and all of its tiles."""
    before = 0
    for run, whole in loops:
        if iteration <= before + run:
            return before, run, whole
        before += run
    return before, 0, 0
