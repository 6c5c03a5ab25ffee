"""GEMM on Hopper as a timeline: a ring of stages that a producer fills and consumers multiply, of block 0 or its cluster.

The emulator executes the block at its tile sizes. Only the K loop is cut, by whole tiles, and the number of tiles of C.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.gemm.shape import GemmShape
from kernels.i18n import tr, trn
from kernels.ladders import find
from kernels.model.program import Tiles
from visuals import units
from visuals.gemm.ring_captions import RingTexts, whole
from visuals.gemm.ring_order import Ring, Slot, folded
from visuals.gemm.ring_plan import RINGS, Cut, order_of, program_of, ring_of, shortened, why_not
from visuals.scene.parts import Annotation, Captions, Flow, Group, Reading, Source, Tensor, Write
from visuals.scene.recorder import read_per_step
from visuals.scene.ring import (
    ARRIVED,
    CUT_NOTE,
    FILLING,
    FOLDED,
    FREE,
    ISSUE,
    MULTIPLY,
    NOTE,
    ON_EMPTY,
    ON_FULL,
    ORDER,
    STATES,
    WAITS,
    Actor,
    Cell,
    Row,
    parity_write,
)
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

BARRIERS = ON_FULL, ON_EMPTY


def ring_scene(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of the ring of block 0, or of the cluster that it is in. Missing tile sizes are the rung's
    defaults. ValueError if `why_not` gives a reason. Raises CompilerMissing if the kernel must be compiled and there is no
    compiler."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    return RingScene(shape, rung, find(rung).default_tiles | dict(tiles)).scene()


@dataclass(frozen=True)
class RingScene:
    """The scene of a rung at a shape, with all its tile sizes."""

    shape: GemmShape
    rung: str
    tiles: Tiles

    @cached_property
    def ring(self) -> Ring:
        return ring_of(self.rung, self.tiles)

    @cached_property
    def cut(self) -> Cut:
        return shortened(self.shape, self.rung, self.tiles)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        cut = self.cut
        slots = order_of(cut.shape, self.rung, self.tiles, cut.last)
        return folded(slots, self.ring, cut.tiles, cut.run)

    @cached_property
    def texts(self) -> RingTexts:
        return RingTexts(self.slots, self.ring, self.cut.tiles, RINGS[self.rung].boxes)

    @property
    def steps(self) -> int:
        return len(self.slots)

    def scene(self) -> Scene:
        sizes = ",".join(f"{k}={v}" for k, v in self.tiles.items())
        captions = [self.texts.caption(n) for n in range(self.steps)]
        return Scene(
            key=f"{self.rung} {self.shape} {sizes} ring",
            title=tr(find(self.rung).title),
            tensors=tuple(t for b in self.ring.blocks for t in self._tensors(b)),
            groups=tuple(self._group(b) for b in self.ring.blocks),
            steps=self.steps,
            step_name=tr("step"),
            order_name=tr(ORDER),
            order_note=self._note(),
            writes=tuple(w for b in self.ring.blocks for w in self._writes(b)),
            reads=tuple(self._reads()),
            annotations=tuple(a for b in self.ring.blocks for a in self._annotations(b)),
            captions=Captions.of(captions),
            readings=self._readings(),
            flows=tuple(self._flows()),
            source=self._source(),
        )

    def _source(self) -> Source:
        lines = np.array([slot.line for slot in self.slots])
        launch = program_of(self.cut.shape, self.rung, self.tiles).launch()
        source = source_of(RINGS[self.rung].file, ("wait(full",), np.zeros(1, int), detail=resources(launch))
        return dataclasses.replace(source, lines=lines)

    def _note(self) -> str:
        cut, notes = self.cut, [tr(NOTE)]
        if cut.run < cut.tiles:
            notes.append(tr(CUT_NOTE, run=whole(cut.run), all=whole(cut.tiles)))
        if cut.shown < cut.outputs:
            notes.append(
                trn(
                    "The block computes {all} tiles of C. The picture ends after the first.",
                    "The block computes {all} tiles of C. The picture ends after {n} of them.",
                    cut.shown,
                    all=whole(cut.outputs),
                )
            )
        return " ".join(notes)

    # -- rows --------------------------------------------------------------------------------------
    def _tensors(self, b: int) -> Iterator[Tensor]:
        ring = self.ring
        consumers = tr("consumer") if ring.consumers == 1 else tr("consumers")
        rows = (
            ("producer", tr("producer"), "input", tr("tile copied or waited for")),
            ("stages", tr("stages"), "input", tr("being filled, full, read") + self._fold_note()),
            ("consumers", consumers, "output", tr("tile multiplied, freed or waited for")),
        )
        for name, title, role, note in rows:
            yield self._lanes(name, b).tensor(title, role, note)
        zeros, title, shape = np.zeros(2 * ring.stages, np.float32), tr("full, empty"), (ring.stages, 2)
        note = tr("parity")
        if self.texts.clustered:
            shape, note = shape[::-1], tr("parity, one column per stage")
        yield Tensor(f"barriers{b}", title, title, WAITS, 1, *shape, values=zeros, note=note, timed=True)

    def _lanes(self, name: str, b: int) -> Row:
        """Returns the row of the producer, the stages or the consumers of a block."""
        lanes = {"stages": self.ring.stages, "consumers": self.ring.consumers}.get(name, 1)
        return Row(f"{name}{b}", lanes, self.steps, self._cells[f"{name}{b}"])

    @cached_property
    def _barriers(self) -> list[tuple[str, int]]:
        """The name and the stage of each barrier of a block, in the order of their cells."""
        stages = range(self.ring.stages)
        if self.texts.clustered:
            return [(on, stage) for on in BARRIERS for stage in stages]
        return [(on, stage) for stage in stages for on in BARRIERS]

    def _fold_note(self) -> str:
        for n, slot in enumerate(self.slots):
            if slot.kind == FOLDED:
                first, last = map(whole, slot.folded)
                return tr("; column {n}: tiles {first} to {last}", n=n + 1, first=first, last=last)
        return ""

    def _group(self, b: int) -> Group:
        title = tr("one block, from left to right: one column per step")
        if self.texts.clustered:
            title = tr("block {n} of the cluster: one column per step", n=b)
        rows = ((f"producer{b}",), (f"stages{b}", f"barriers{b}"), (f"consumers{b}",))
        if self.texts.clustered:  # two blocks are side by side: each is narrow
            rows = ((f"producer{b}",), (f"stages{b}",), (f"consumers{b}",), (f"barriers{b}",))
        return Group(rows, "shared", title)

    # -- cells -------------------------------------------------------------------------------------
    @cached_property
    def _cells(self) -> dict[str, list[Cell]]:
        """The cells that change with the steps, by the name of their row."""
        found: dict[str, list[Cell]] = {}
        for b in self.ring.blocks:
            for name in ("producer", "stages", "consumers"):
                found[f"{name}{b}"] = []
        for n, slot in enumerate(self.slots):
            for name, cell in (*self._actions(n, slot), *self._held(n, slot)):
                found[name].append(cell)
        return found

    def _row(self, who: Actor) -> tuple[str, int]:
        """Returns the row and the lane of a warpgroup."""
        block, group = who
        return (f"producer{block}", 0) if group == self.ring.consumers else (f"consumers{block}", group)

    def _actions(self, n: int, slot: Slot) -> Iterator[tuple[str, Cell]]:
        role = {ISSUE: "input", FREE: WAITS}.get(slot.kind, "output")
        for who in slot.doers:
            name, lane = self._row(who)
            yield name, Cell(lane, n, slot.tile, role, self.texts.does(slot, who))
        for who, tile in slot.waits.items():
            if who not in slot.doers:
                name, lane = self._row(who)
                yield name, Cell(lane, n, tile, WAITS, self.texts.waits(who, tile))

    def _held(self, n: int, slot: Slot) -> Iterator[tuple[str, Cell]]:
        if slot.kind == FOLDED:
            return
        for (block, stage), (state, tile) in slot.stages.items():
            text = self.texts.holds(stage, state, tile)
            yield f"stages{block}", Cell(stage, n, tile, STATES[state], text)

    def _writes(self, b: int) -> Iterator[Write]:
        for name in ("producer", "stages", "consumers"):
            yield self._lanes(name, b).write()
        ended = [[slot.ended[b, *barrier] for barrier in self._barriers] for slot in self.slots]
        yield parity_write(f"barriers{b}", np.array(ended))

    def _annotations(self, b: int) -> Iterator[Annotation]:
        idle = {
            "producer": tr("The producer starts no copy and does not wait at this step."),
            "stages": tr("The stage is empty."),
            "consumers": tr("The consumer does something else at this step."),
        }
        for name, text in idle.items():
            row = [self.texts.caption(n) if slot.kind == FOLDED else text for n, slot in enumerate(self.slots)]
            yield self._lanes(name, b).annotation(row)
        texts = [self.texts.barrier(*barrier) for barrier in self._barriers]
        yield Annotation(f"barriers{b}", Captions.of(texts))

    # -- links -------------------------------------------------------------------------------------
    def _reads(self) -> Iterator:
        """Yields the cells that each step depends on: the copies that arrive, the full stage that is multiplied, the
        products that end, the empty stage that is filled."""
        found: dict[str, list[list[int]]] = {}
        for n, slot in enumerate(self.slots):
            for name, lane, step in self._needs(slot):
                rows = found.setdefault(name, [[] for _ in self.slots])
                rows[n].append(lane * self.steps + step)
        for name, rows in found.items():
            yield read_per_step(name, [np.array(row, int) for row in rows])

    def _needs(self, slot: Slot) -> Iterator[tuple[str, int, int]]:
        tile, stage = slot.tile, self.texts.stage(slot.tile)
        for b in self.ring.blocks:
            if slot.kind == ARRIVED and (step := self._step(ISSUE, tile)) is not None:
                yield f"producer{b}", 0, step
            if slot.kind == MULTIPLY and (step := self._step(ARRIVED, tile)) is not None:
                yield f"stages{b}", stage, step
            before = {FREE: (MULTIPLY, tile), ISSUE: (FREE, tile - self.ring.stages)}.get(slot.kind)
            if before and (step := self._step(*before)) is not None:
                yield from ((f"consumers{b}", lane, step) for lane in range(self.ring.consumers))

    def _step(self, kind: str, tile: int) -> int | None:
        return self._steps.get((kind, tile))

    @cached_property
    def _steps(self) -> dict[tuple[str, int], int]:
        return {(slot.kind, slot.tile): n for n, slot in enumerate(self.slots)}

    def _flows(self) -> Iterator[Flow]:
        """Yields the arrows of copies that also go to another block of the cluster."""
        for source in self.ring.blocks:
            for target in self.ring.blocks:
                labels = [self._sent(slot, source, target) for slot in self.slots]
                if source != target and any(labels):
                    known = tuple(dict.fromkeys(["", *labels]))
                    text = np.array([known.index(label) for label in labels])
                    yield Flow(source, target, known, text, (text > 0).astype(int))

    def _sent(self, slot: Slot, source: int, target: int) -> str:
        sizes = [size for block, blocks, size in slot.copies if block == source and target in blocks]
        if not sizes:
            return ""
        nbytes = units.bytes_(sum(sizes))
        return tr("{bytes} of B of tile {tile} to block {n}", bytes=nbytes, tile=whole(slot.tile), n=target)

    def _readings(self) -> tuple[Reading, ...]:
        filling = [sum(state == FILLING for state, _ in slot.stages.values()) for slot in self.slots]
        ended = [sum(slot.ended.values()) for slot in self.slots]
        return (
            Reading(tr("bytes being copied"), np.array(filling) * self.ring.nbytes, "counted"),
            Reading(tr("phases ended"), np.array(ended), "counted"),
        )
