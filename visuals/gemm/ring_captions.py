"""Texts of a ring of stages: the caption of each step, and what each cell says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.i18n import decimal, tr, trn
from visuals import units
from visuals.gemm.ring_order import Ring, Slot
from visuals.scene.ring import ARRIVED, FILLING, FOLDED, FREE, FULL, ISSUE, MULTIPLY, ON_FULL, Actor


@dataclass(frozen=True)
class RingTexts:
    """The texts of some slots. `tiles`: of a loop along K. `boxes`: whether the copy engine stores the results."""

    slots: tuple[Slot, ...]
    ring: Ring
    tiles: int
    boxes: bool

    @property
    def clustered(self) -> bool:
        return len(self.ring.blocks) > 1

    def _fields(self, slot: Slot) -> dict[str, str | int]:
        return {"tile": whole(slot.tile), "stage": self.stage(slot.tile), "bytes": units.bytes_(self.ring.nbytes)}

    def stage(self, tile: int) -> int:
        return (tile - 1) % self.ring.stages

    # -- captions ----------------------------------------------------------------------------------
    def caption(self, n: int) -> str:
        """Returns the caption of a slot."""
        return " ".join([self._sentence(self.slots[n]), *self._new_waits(n)])

    def _sentence(self, slot: Slot) -> str:
        fields = self._fields(slot)
        if slot.kind == FOLDED:
            first, last = map(whole, slot.folded)
            return tr("Tiles {first} to {last} repeat these steps. They share this column.", first=first, last=last)
        if slot.kind == ARRIVED:
            return tr(
                "All {bytes} of [tile {tile}](filter) are in stage {stage}. Barrier full {stage} ends its phase.",
                **fields,
            )
        if slot.kind == MULTIPLY:
            return trn(
                "The consumer starts the products of [tile {tile}](output), which read stage {stage}.",
                "The consumers start their products of [tile {tile}](output), which read stage {stage}.",
                len(slot.doers),
                **fields,
            )
        if slot.kind == FREE:
            return trn(
                "The products of [tile {tile}](output) have ended. The consumer arrives at barrier empty {stage}: the stage is empty.",
                "The products of [tile {tile}](output) have ended. The {n} consumers arrive at barrier empty {stage}: the stage is empty.",
                len(slot.doers),
                **fields,
            )
        return self._issue(slot, fields) if slot.kind == ISSUE else self._store(slot)

    def _issue(self, slot: Slot, fields: dict) -> str:
        if slot.tile > 1 and (slot.tile - 1) % self.tiles == 0:
            if self.clustered:
                return tr(
                    "The producers go on to the next tiles of [C](output): they start the copies of [tile {tile}](input) into stage {stage}.",
                    **fields,
                )
            return tr(
                "The producer goes on to the next tile of [C](output): it starts the copies of [tile {tile}](input) into stage {stage}.",
                **fields,
            )
        if self.clustered:
            return tr(
                "Each producer copies its own A of [tile {tile}](input), and half of B to both blocks (multicast).",
                **fields,
            )
        if slot.tile > self.ring.stages:
            return tr(
                "Stage {stage} is empty again. The producer starts the copies of [tile {tile}](input) into it.",
                **fields,
            )
        return tr(
            "Stage {stage} is empty. The producer starts the copies of [tile {tile}](input) into it: {bytes} of A and B.",
            **fields,
        )

    def _store(self, slot: Slot) -> str:
        count = len(slot.doers)
        out = [trn("The consumer has its sums.", "The consumers have their sums.", count)]
        if self.boxes:
            out.append(tr("They go to shared memory, and the copy engine stores them in [C](output)."))
        else:
            out.append(trn("It stores them in [C](output).", "They store them in [C](output).", count))
        if any(state == FILLING for state, _ in slot.stages.values()):
            out.append(tr("Copies for the next tile of C are under way."))
        return " ".join(out)

    def _new_waits(self, n: int) -> Iterator[str]:
        """Yields a sentence about warpgroups that begin to wait between the last slot and this one."""
        slot, before, blocks = self.slots[n], self.slots[n - 1].waits if n else {}, len(self.ring.blocks)
        new = {who: tile for who, tile in slot.waits.items() if before.get(who) != tile}
        producers = {tile for (_, group), tile in new.items() if group == self.ring.consumers}
        for tile in producers:
            yield trn(
                "The producer waits until stage {stage} is empty.",
                "The producers wait until stage {stage} is empty.",
                blocks,
                stage=self.stage(tile),
            )
        if producers or slot.kind != ISSUE:
            return
        for tile in {*new.values()}:
            yield trn(
                "The consumer waits for tile {tile}.",
                "The consumers wait for tile {tile}.",
                self.ring.consumers * blocks,
                tile=whole(tile),
            )

    # -- cells -------------------------------------------------------------------------------------
    def does(self, slot: Slot, who: Actor) -> str:
        """Returns what a warpgroup does in a slot."""
        fields = self._fields(slot)
        if slot.kind == ISSUE:
            sizes = [size for block, _, size in slot.copies if block == who[0]]
            return trn(
                "The producer starts {n} copy of tile {tile}: {nbytes}.",
                "The producer starts {n} copies of tile {tile}: {nbytes}.",
                len(sizes),
                tile=fields["tile"],
                nbytes=units.bytes_(sum(sizes)),
            )
        if slot.kind == MULTIPLY:
            return trn(
                "It starts {n} product of tile {tile} (wgmma).",
                "It starts {n} products of tile {tile} (wgmma).",
                slot.products,
                tile=fields["tile"],
            )
        if slot.kind == FREE:
            return tr("It arrives at barrier empty {stage}: its products of tile {tile} have ended.", **fields)
        return tr("It stores its sums after tile {tile}.", **fields)

    def waits(self, who: Actor, tile: int) -> str:
        """Returns what a warpgroup waits for."""
        fields = {"tile": whole(tile), "stage": self.stage(tile)}
        if who[1] == self.ring.consumers:
            return tr("It waits at barrier empty {stage}, before it copies tile {tile}.", **fields)
        return tr("It waits at barrier full {stage} for tile {tile}.", **fields)

    def holds(self, stage: int, state: str, tile: int) -> str:
        fields = {"tile": whole(tile), "stage": stage}
        if state == FILLING:
            return tr("Stage {stage} is being filled: the copies of tile {tile} are under way.", **fields)
        if state == FULL:
            return tr("Stage {stage} is full: tile {tile} has arrived.", **fields)
        return tr("Stage {stage} is read: products of tile {tile} are under way.", **fields)

    def barrier(self, on: str, stage: int) -> str:
        """Returns what a barrier's cell means, and what ends a phase."""
        if on == ON_FULL:
            nbytes = units.bytes_(self.ring.nbytes)
            return tr(
                "Parity of the phase of barrier full {stage}. A phase ends when {bytes} have been copied.",
                stage=stage,
                bytes=nbytes,
            )
        return trn(
            "Parity of the phase of barrier empty {stage}. A phase ends when {n} consumer has arrived.",
            "Parity of the phase of barrier empty {stage}. A phase ends when {n} consumers have arrived.",
            self.ring.consumers * len(self.ring.blocks),
            stage=stage,
        )


def whole(number: int) -> str:
    return decimal(f"{number:,}")
