"""Attention on Hopper as a timeline of block 0: a producer copies tiles of Q, K and V to their stages, and consumers
compute scores, softmax and O. The emulator executes the block; each column is a run of its events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from visuals.attention.ring_captions import RingTexts, whole
from visuals.attention.ring_order import ON_TOKEN, SOFTMAX, K, O, P, Q, S, Slot, V
from visuals.attention.ring_plan import RingPlan, why_not
from visuals.scene.parts import Annotation, Captions, Group, Reading, Tensor, Write
from visuals.scene.ring import (
    CUT_NOTE,
    FILLING,
    FOLDED,
    ISSUE,
    MULTIPLY,
    NOTE,
    ON_FULL,
    ORDER,
    STATES,
    STORE,
    WAITS,
    Cell,
    Row,
    parity_write,
)
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

TOKEN_NOTE = mark(
    "In the emulator, consumers compute softmax at the same step. On the GPU, one multiplies while the other computes softmax."
)
ALTERNATING_NOTE = mark(
    "The columns show order, not duration. The emulator runs one warpgroup until it waits or passes its turn. Then copies "
    "arrive. On the GPU, warpgroups and copies run at the same time."
)
# A block that computes a short loop after a long one: its warpgroups do not fall into one pattern (tests/visuals/attention).
INTERLEAVED_NOTE = mark("In a run of all tiles, the warpgroups take the same steps. Which one is first can differ.")
LANE = {Q: 0, K: 1, V: 2}  # of the copies
COMPUTED = {S: "scores", P: "softmax", O: "values"}  # the row of each


def ring_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int], head: object = None) -> Scene:
    """Returns the scene of the ring of block 0, with all tile sizes of the rung. `head` is not used: the order does not
    depend on values. ValueError if `why_not` gives a reason. RuleError if the kernel must be compiled and there is no
    compiler."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    return RingScene(RingPlan(s, rung, find(rung).default_tiles | dict(tiles))).scene()


@dataclass(frozen=True)
class RingScene:
    plan: RingPlan

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return self.plan.slots

    @cached_property
    def texts(self) -> RingTexts:
        return RingTexts(self.slots, self.plan.ring)

    def scene(self) -> Scene:
        plan, steps = self.plan, len(self.slots)
        sizes = ",".join(f"{k}={v}" for k, v in plan.tiles.items())
        source = source_of(plan.kind.file, ("wait(full",), np.zeros(1, int), detail=resources(plan.program.launch()))
        return Scene(
            key=f"{plan.rung} {plan.s} {sizes} ring",
            title=tr(find(plan.rung).title),
            tensors=(*self._tensors(), *self._parities()),
            groups=(Group(self._layout(), "shared", self._group_title()),),
            steps=steps,
            step_name=tr("step"),
            order_name=tr(ORDER),
            order_note=self._note(),
            writes=tuple(self._writes()),
            annotations=tuple(self._annotations()),
            captions=Captions.of([self.texts.caption(n) for n in range(steps)]),
            readings=self._readings(),
            source=dataclasses.replace(source, lines=np.array([slot.line for slot in self.slots])),
        )

    def _note(self) -> str:
        plan = self.plan
        notes = [tr(ALTERNATING_NOTE if plan.ring.alternates else NOTE)]
        if plan.kind.passes_token and not plan.ring.alternates:
            notes.append(tr(TOKEN_NOTE))
        if plan.run < plan.count:
            notes.append(tr(CUT_NOTE, run=whole(plan.run), all=whole(plan.count)))
            if plan.s.causal and plan.kind.persistent:
                notes.append(tr(INTERLEAVED_NOTE))
        if plan.shown < plan.rounds:
            notes.append(
                tr(
                    "The block computes {all} tiles of queries. The picture ends after tile {n}.",
                    all=whole(plan.rounds),
                    n=whole(plan.shown),
                )
            )
        return " ".join(notes)

    # -- rows ----------------------------------------------------------------------------------------
    @cached_property
    def rows(self) -> dict[str, Row]:
        """The rows of lanes by name."""
        found: dict[str, list[Cell]] = {}
        for n, slot in enumerate(self.slots):
            if slot.kind != FOLDED:
                for name, cell in self._cells(n, slot):
                    found.setdefault(name, []).append(cell)
        regions, consumers = self.plan.ring.regions, self.plan.ring.consumers
        lanes = {"copies": len(LANE)} | {f"stages_{what}": regions[what].stages for what in regions}
        lanes |= dict.fromkeys(COMPUTED.values(), consumers)
        return {name: Row(name, count, len(self.slots), found.get(name, ())) for name, count in lanes.items()}

    def _cells(self, n: int, slot: Slot) -> Iterator[tuple[str, Cell]]:
        """Yields what a slot writes: copies, waits, what consumers compute, what stages hold."""
        if slot.kind == ISSUE:
            for what, tile in slot.tiles.items():
                yield "copies", Cell(LANE[what], n, tile, "input", self.texts.copies(what, tile))
        for who, wait in slot.waits.items():
            if who not in slot.doers:
                name, lane = self._row(who[1], wait.what, wait.on)
                yield name, Cell(lane, n, wait.tile, WAITS, self.texts.waits(wait))
        for ((_, group), what), tile in slot.running.items():
            begun = slot.kind == MULTIPLY and slot.tiles.get(what) == tile
            text = self.texts.multiplies(what, tile, begun)
            yield COMPUTED[what], Cell(group, n, tile, "output", text)
        if slot.kind in (SOFTMAX, STORE):
            for what, tile in slot.tiles.items():
                for _, group in slot.doers:
                    role = "filter" if what == P else "output"
                    yield COMPUTED[what], Cell(group, n, tile, role, self.texts.computes(what, tile))
        for (what, stage), (state, tile) in slot.stages.items():
            yield f"stages_{what}", Cell(stage, n, tile, STATES[state], self.texts.holds(what, state, tile))

    def _row(self, group: int, what: str, on: str) -> tuple[str, int]:
        """Returns the row and the lane in which a warpgroup waits."""
        if group == self.plan.ring.consumers:
            return "copies", LANE[what]
        if on == ON_TOKEN:
            return COMPUTED[what], group
        return COMPUTED[O if what == V else S], group

    def _tensors(self) -> Iterator[Tensor]:
        held = tr("filling, full, read")
        titles = {
            "copies": (tr("producer") if self.plan.kind.producer else tr("thread 0, copies"), "input", tr("Q, K, V")),
            f"stages_{Q}": (tr("Q"), "input", ""),
            f"stages_{K}": (tr("stages of K"), "input", held),
            f"stages_{V}": (tr("stages of V"), "input", held),
            "scores": (tr("S = Q Kᵀ"), "output", tr("by consumer")),
            "softmax": (tr("softmax"), "filter", tr("by consumer")),
            "values": (tr("O += P V"), "output", tr("by consumer")),
        }
        for name, row in self.rows.items():
            yield row.tensor(*titles[name])

    def _barriers(self, what: str) -> list[tuple[str, str, int]]:
        """Returns the barriers of K or V, in the order of their cells."""
        found = [at for at in self.plan.ring.barriers if at[0] == what]
        return sorted(found, key=lambda at: (at[1] != ON_FULL, at[2]))

    def _parities(self) -> Iterator[Tensor]:
        for what in (K, V):
            stages = self.plan.ring.regions[what].stages
            zeros = np.zeros(len(self._barriers(what)), np.float32)
            note = tr("full, empty") if len(zeros) > stages else tr("full")
            title = tr("parities, {what}", what=what)
            yield Tensor(
                f"barriers_{what}", title, title, WAITS, 1, len(zeros) // stages, stages, zeros, note=note, timed=True
            )

    def _layout(self) -> tuple[tuple[str, ...], ...]:
        lanes = ("copies", *(f"stages_{what}" for what in LANE), *COMPUTED.values())
        return (*((name,) for name in lanes), tuple(f"barriers_{what}" for what in (K, V)))

    def _group_title(self) -> str:
        for n, slot in enumerate(self.slots, 1):
            if slot.kind == FOLDED:
                first, last = map(whole, slot.folded)
                return tr(
                    "one block: one column per step. Column {n}: tiles {first} to {last}", n=n, first=first, last=last
                )
        return tr("one block: one column per step")

    def _writes(self) -> Iterator[Write]:
        yield from (row.write() for row in self.rows.values() if row.cells)
        for what in (K, V):
            ended = np.array([[slot.ended[at] for at in self._barriers(what)] for slot in self.slots])
            yield parity_write(f"barriers_{what}", ended)

    def _annotations(self) -> Iterator[Annotation]:
        for name, row in self.rows.items():
            text = self.texts.idle(name)
            yield row.annotation(
                [self.texts.caption(n) if slot.kind == FOLDED else text for n, slot in enumerate(self.slots)]
            )
        for what in (K, V):
            texts = [self.texts.barrier(*at) for at in self._barriers(what)]
            yield Annotation(f"barriers_{what}", Captions.of(texts))

    def _readings(self) -> tuple[Reading, ...]:
        regions = self.plan.ring.regions
        filling = [
            sum(regions[what].nbytes for (what, _), (state, _) in slot.stages.items() if state == FILLING)
            for slot in self.slots
        ]
        running = [len(slot.running) for slot in self.slots]
        return (
            Reading(tr("bytes being copied"), np.array(filling), "counted"),
            Reading(tr("products under way"), np.array(running), "counted"),
        )
