"""The timeline of a block that copies tiles to shared memory and uses them: which copy can run during which use.

Rows, events and captions are made from the order of the block's instructions (visuals.scene.program_order).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.i18n import decimal, mark, tr, trn
from visuals.scene.parts import Reading, Source
from visuals.scene.program_order import Fill, ProgramOrder, Slot
from visuals.scene.scene import Scene
from visuals.scene.timeline import Event, Row, Step, timeline_scene

ORDER = mark("as one block runs")
NOTE = mark(
    "The columns show order, not duration: the instructions of one block, as the emulator executed them. On the GPU, the "
    "warps of a block take turns, and other blocks run at the same time."
)
CUT_NOTE = mark("The emulator ran {run} of the {all} tiles. The tiles left out repeat the others.")
SYNCS = "syncs"  # the name of the row of waits and barriers


@dataclass(frozen=True)
class Stream:
    """Tiles that are copied one after the other, tile n to buffer (n - 1) mod `lanes`. `tile`: a marked text such as
    "tile {tile} of A". `title`: of its row. Streams with the same `row` share that of the first, with its `note`."""

    name: str
    title: str
    role: str
    lanes: int
    tile: str
    row: str = ""
    note: str = ""


@dataclass(frozen=True)
class Use:
    """What the warps do with a tile. `text`: a marked sentence with {tile}, the tile's number. Uses with the same `row`
    share that of the first, with its `note`."""

    name: str
    title: str
    role: str
    text: str
    row: str = ""
    note: str = ""


@dataclass(frozen=True)
class TileTimeline:
    """The timeline of an order. `tiles`: of the whole loop; the emulator ran `run` of them. `note`: what the picture leaves
    out."""

    order: ProgramOrder
    streams: Sequence[Stream]
    uses: Sequence[Use]
    tiles: int
    run: int
    note: str = ""

    def scene(self, key: str, title: str, source: Source) -> Scene:
        """Returns the scene. `source`: the kernel's text. Its lines are those of each stream's copies, then of each use."""
        notes = [tr(NOTE), *([self.note] if self.note else [])]
        if self.run < self.tiles:
            notes.append(tr(CUT_NOTE, run=_whole(self.run), all=_whole(self.tiles)))
        return timeline_scene(
            key,
            title,
            self._rows(),
            [*self._copies(), *self._uses(), *self._syncs()],
            [
                Step(self._caption(n), self._line(slot, source), self._reads(n))
                for n, slot in enumerate(self.order.slots)
            ],
            source,
            tr(ORDER),
            " ".join(notes),
            tr("one block, from left to right: one column per step"),
            self._readings(),
        )

    # -- rows and events ---------------------------------------------------------------------------
    def _rows(self) -> list[Row]:
        rows, idle = [], tr("No copy to this buffer is under way at this step.")
        for stream in self.streams:
            name, lane = self._place(stream)
            if lane:
                continue
            lanes = sum(s.lanes for s in self.streams if self._place(s)[0] == name)
            note = tr(stream.note) or (tr("one row per buffer") if lanes > 1 else tr("one buffer"))
            note += "" if rows else self._fold_note()
            rows.append(Row(name, tr(stream.title), stream.role, lanes, note, idle))
        idle = tr("The warps do something else at this step.")
        for use in self.uses:
            name, lane = self._place(use)
            if not lane:
                lanes = sum(self._place(u)[0] == name for u in self.uses)
                rows.append(Row(name, tr(use.title), use.role, lanes, tr(use.note), idle))
        if self._waits:
            note = tr("first for the copy, then for all warps")
            rows.append(Row(SYNCS, tr("wait, barrier"), "workspace", 2, note, tr("No wait at this step.")))
        elif any(slot.barrier for slot in self.order.slots):
            note = tr("until all warps are here")
            rows.append(Row(SYNCS, tr("barrier"), "workspace", note=note, idle=tr("No barrier at this step.")))
        return rows

    @cached_property
    def _waits(self) -> bool:
        return any(slot.awaited for slot in self.order.slots)

    def _place(self, one: Stream | Use) -> tuple[str, int]:
        """Returns the row of a stream or a use, and its first lane there."""
        group = self.streams if isinstance(one, Stream) else self.uses
        row = one.row or one.name
        before = [other for other in group[: group.index(one)] if (other.row or other.name) == row]
        return row, sum(other.lanes if isinstance(other, Stream) else 1 for other in before)

    def _line(self, slot: Slot, source: Source) -> int:
        """Returns the line of a slot. That of a copy or a use may be in a header, which is not the text shown."""
        names = [one.name for one in (*self.streams, *self.uses)]
        for name, _ in (*slot.used, *slot.copied):
            return int(source.lines[names.index(name)])
        return slot.line

    def _cell(self, fill: Fill) -> tuple[str, int]:
        """Returns the row and the lane of a copy."""
        row, lane = self._place(next(s for s in self.streams if s.name == fill.stream))
        return row, lane + fill.lane

    def _fold_note(self) -> str:
        """Returns which column stands for several tiles, for the note of the first row; "" if none does."""
        for n, slot in enumerate(self.order.slots):
            if any(slot.folded):
                first, last = map(_whole, slot.folded)
                return tr("; column {n}: tiles {first} to {last}", n=n + 1, first=first, last=last)
        return ""

    def _in_flight(self, n: int) -> list[Fill]:
        """Returns the copies of tiles that exist, among those that can run at a slot."""
        return [f for f in self.order.in_flight(n) if f.tile <= self.tiles]

    def _copies(self) -> list[Event]:
        events = []
        for fill in self.order.fills:
            tile = self._tile(fill.stream, fill.tile)
            if fill.tile > self.tiles:
                text = tr("The threads write only zeros: there is no {tile}.", tile=tile)
            elif fill.is_async:
                text = tr("The copy of {tile} can run at this step.", tile=tile)
            else:
                text = tr("The threads copy {tile}.", tile=tile)
            events.append(Event(*self._cell(fill), fill.start, fill.end, fill.tile, text))
        return events

    def _uses(self) -> list[Event]:
        uses = {use.name: use for use in self.uses}
        return [
            Event(*self._place(uses[name]), n, n, tile, tr(uses[name].text, tile=_whole(tile)))
            for n, slot in enumerate(self.order.slots)
            for name, tile in slot.used
        ]

    def _syncs(self) -> list[Event]:
        events = []
        for n, slot in enumerate(self.order.slots):
            if slot.awaited:
                events.append(Event(SYNCS, 0, n, n, slot.awaited[-1][1], self._wait(slot)))
            if slot.barrier:
                tile = (slot.ready or slot.done or [("", slot.barrier)])[-1][1]
                events.append(Event(SYNCS, int(self._waits), n, n, tile, self._barrier(slot)))
        return events

    def _reads(self, n: int) -> tuple[tuple[str, int, int], ...]:
        """Returns the cells in which the tiles that a slot uses have arrived."""
        return tuple((*self._cell(f), f.end) for f in self.order.fills if n in f.uses and f.start <= f.end < n)

    def _readings(self) -> tuple[Reading, ...]:
        barriers = np.maximum.accumulate([slot.barrier for slot in self.order.slots])
        flying = [len(self._in_flight(n)) for n in range(len(self.order.slots))]
        for n, slot in enumerate(self.order.slots):
            if any(slot.folded):  # as many as just before the next barrier
                flying[n] = flying[n - 1]
                barriers[n] = next((s.barrier for s in self.order.slots[n:] if s.barrier), barriers[-1] + 1) - 1
        return (
            Reading(tr("tiles being copied"), np.array(flying), "counted"),
            Reading(tr("barriers so far"), np.array(barriers), "counted"),
        )

    # -- captions ----------------------------------------------------------------------------------
    def _caption(self, n: int) -> str:
        slot = self.order.slots[n]
        if any(slot.folded):
            first, last = map(_whole, slot.folded)
            return tr("Tiles {first} to {last} repeat these steps. They share this column.", first=first, last=last)
        if slot.barrier:
            return self._barrier(slot)
        if slot.awaited:
            return " ".join(filter(None, (self._wait(slot), self._others(n))))
        sentences = [self._copy(n, stream, tile) for stream, tile in slot.copied]
        texts = {use.name: use.text for use in self.uses}
        used = [tr(texts[name], tile=_whole(tile)) for name, tile in slot.used]
        if sentences and used:
            sentences.insert(0, tr("The warps alternate between two tasks."))
        elif used:
            used.append(self._meanwhile(n))
        return " ".join([*sentences, *used])

    def _copy(self, n: int, stream: str, tile: int) -> str:
        fill = next(f for f in self.order.fills if (f.stream, f.tile) == (stream, tile))
        lanes = next(s.lanes for s in self.streams if s.name == stream)
        place = tr("buffer {n} of shared memory", n=fill.lane) if lanes > 1 else tr("shared memory")
        words = {"tile": self._tile(stream, tile), "place": place}
        if tile > self.tiles:
            return tr("The threads write only zeros to {place}: there is no {tile}.", **words)
        if fill.is_async:
            return tr("The threads start to copy {tile} to {place}. They do not wait for it.", **words)
        return tr("The threads copy {tile} to {place}. They multiply nothing meanwhile.", **words)

    def _meanwhile(self, n: int) -> str:
        copies = self._in_flight(n)
        if not copies:
            return tr("No other tile is being copied.")
        return trn(
            "Meanwhile the copy of {tiles} can run.",
            "Meanwhile the copies of {tiles} can run.",
            len(copies),
            tiles=self._tiles(copies),
        )

    def _wait(self, slot: Slot) -> str:
        tiles = _listed([self._tile(stream, tile) for stream, tile in slot.awaited if tile <= self.tiles])
        if not tiles:
            return tr("Each thread waits until its zeros are written.")
        return tr("Each thread waits until its own copies of {tiles} are complete.", tiles=tiles)

    def _others(self, n: int) -> str:
        """Returns which copies go on after a wait; "" if none do."""
        copies = [f for f in self._in_flight(n) if f.end > n]
        if not copies:
            return ""
        return trn(
            "The copy of {tiles} goes on.", "The copies of {tiles} go on.", len(copies), tiles=self._tiles(copies)
        )

    def _barrier(self, slot: Slot) -> str:
        ready, done = (_listed([self._tile(*pair) for pair in pairs]) for pairs in (slot.ready, slot.done))
        here = trn("The only warp is at the barrier.", "All {n} warps wait for each other.", slot.warps)
        if ready and done:
            return " ".join(
                (here, tr("Now each warp can read {ready}, and {done} may be overwritten.", ready=ready, done=done))
            )
        if ready:
            return " ".join((here, tr("Now each warp can read {ready}.", ready=ready)))
        return " ".join((here, tr("Now {done} may be overwritten.", done=done))) if done else here

    def _tile(self, stream: str, tile: int) -> str:
        return tr(next(s.tile for s in self.streams if s.name == stream), tile=_whole(tile))

    def _tiles(self, fills: Sequence[Fill]) -> str:
        return _listed([self._tile(f.stream, f.tile) for f in fills])


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return tr("{first} and {last}", first=", ".join(names[:-1]), last=names[-1])


def _whole(number: int) -> str:
    return decimal(f"{number:,}")
