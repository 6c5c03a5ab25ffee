"""Texts of the ring of attention: the caption of each step, and what each cell says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.i18n import decimal, tr, trn
from visuals import units
from visuals.attention.ring_order import ON_TOKEN, SOFTMAX, O, P, Q, Ring, S, Slot, Wait
from visuals.scene.ring import ARRIVED, FILLING, FOLDED, FREE, FULL, ISSUE, MULTIPLY, ON_FULL


@dataclass(frozen=True)
class RingTexts:
    """The texts of some slots."""

    slots: tuple[Slot, ...]
    ring: Ring

    # -- captions ------------------------------------------------------------------------------------
    def caption(self, n: int) -> str:
        """Returns the caption of a slot."""
        return " ".join([self._sentence(self.slots[n]), *self._new_waits(n)])

    def _sentence(self, slot: Slot) -> str:
        if slot.kind == FOLDED:
            first, last = map(whole, slot.folded)
            return tr("Tiles {first} to {last} repeat these steps. They share this column.", first=first, last=last)
        if slot.kind == MULTIPLY:
            return self._products(slot)
        if slot.kind == SOFTMAX:
            return self._softmax(slot)
        names = _joined([_name(what, tile) for what, tile in slot.tiles.items()])
        if slot.kind == ISSUE:
            nbytes = units.bytes_(sum(self.ring.regions[what].nbytes for what in slot.tiles))
            if self.ring.producer:
                return tr("The producer starts the copies of {names}: {bytes}.", names=names, bytes=nbytes)
            return tr("Thread 0 starts the copies of {names}: {bytes}.", names=names, bytes=nbytes)
        if slot.kind == ARRIVED:
            return trn(
                "All bytes of {names} are in shared memory. The barrier of this stage ends a phase.",
                "All bytes of {names} are in shared memory. The barriers of these stages end a phase.",
                len(slot.tiles),
                names=names,
            )
        if slot.kind == FREE:
            return self._free(slot, names)
        return trn(
            "{who} stores its rows of [O](output).",
            "{who} store their rows of [O](output).",
            len(slot.doers),
            who=self._who(slot),
        )

    def _products(self, slot: Slot) -> str:
        who = self._who(slot)
        s, o = (whole(slot.tiles.get(what, 0)) for what in (S, O))
        count = len(slot.doers)
        if S in slot.tiles and O in slot.tiles:
            return trn(
                "{who} begins the products of [Q](input) and [K](input) of tile {s}, and of weights and [V](input) of tile {o}.",
                "{who} begin the products of [Q](input) and [K](input) of tile {s}, and of weights and [V](input) of tile {o}.",
                count,
                who=who,
                s=s,
                o=o,
            )
        if S in slot.tiles:
            return trn(
                "{who} begins the products of [Q](input) and [K](input) of tile {s}.",
                "{who} begin the products of [Q](input) and [K](input) of tile {s}.",
                count,
                who=who,
                s=s,
            )
        return trn(
            "{who} begins the products of weights and [V](input) of tile {o}.",
            "{who} begin the products of weights and [V](input) of tile {o}.",
            count,
            who=who,
            o=o,
        )

    def _softmax(self, slot: Slot) -> str:
        who, tile = self._who(slot), whole(slot.tiles[P])
        running = {slot.running[at, what] for at, what in slot.running if what == O and at in slot.doers}
        text = trn(
            "{who} computes [softmax](filter): scores of tile {tile} become weights.",
            "{who} compute [softmax](filter): scores of tile {tile} become weights.",
            len(slot.doers),
            who=who,
            tile=tile,
        )
        if not running:
            return text
        still = tr("The product with [V](input) of tile {tile} is still under way.", tile=whole(min(running)))
        return f"{text} {still}"

    def _free(self, slot: Slot, names: str) -> str:
        left = {(what, tile) for (what, _), (_, tile) in slot.stages.items()}
        if left & {*slot.tiles.items()}:
            return trn(
                "{who} has read {names}. Other consumers have not.",
                "{who} have read {names}. Other consumers have not.",
                len(slot.doers),
                who=self._who(slot),
                names=names,
            )
        if self.ring.consumers == 1:
            return trn(
                "The warpgroup has read {names}. The stage is empty.",
                "The warpgroup has read {names}. These stages are empty.",
                len(slot.tiles),
                names=names,
            )
        return trn(
            "All consumers have read {names}. The stage is empty.",
            "All consumers have read {names}. These stages are empty.",
            len(slot.tiles),
            names=names,
        )

    def _who(self, slot: Slot) -> str:
        """Returns the consumers that execute a slot."""
        if self.ring.consumers == 1:
            return tr("The warpgroup")
        numbers = [group for _, group in slot.doers]
        if len(numbers) == self.ring.consumers:
            return tr("All consumers")
        return trn("Consumer {names}", "Consumers {names}", len(numbers), names=_joined([whole(n) for n in numbers]))

    def _new_waits(self, n: int) -> Iterator[str]:
        """Yields a sentence about warpgroups that begin to wait between the last slot and this one."""
        slot, before = self.slots[n], self.slots[n - 1].waits if n else {}
        if slot.kind in (ARRIVED, FOLDED):
            return
        new = {w for who, w in slot.waits.items() if before.get(who) != w and who not in slot.doers}
        for wait in sorted(new, key=lambda w: (w.on, w.what)):
            name = _name(wait.what, wait.tile)
            if wait.on == ON_TOKEN:
                yield tr("The others wait for their turn.")
            elif wait.on == ON_FULL:
                yield tr("Consumers wait for {name}.", name=name)
            else:
                yield tr("The producer waits for an empty stage for {name}.", name=name)

    # -- cells ---------------------------------------------------------------------------------------
    def copies(self, what: str, tile: int) -> str:
        nbytes = units.bytes_(self.ring.regions[what].nbytes)
        return tr("The copy of {name} starts: {bytes}.", name=_name(what, tile), bytes=nbytes)

    def waits(self, wait: Wait) -> str:
        """Returns what a warpgroup waits for."""
        if wait.on == ON_TOKEN:
            return tr("It waits for its turn at a named barrier.")
        name = _name(wait.what, wait.tile)
        if wait.on == ON_FULL:
            return tr("It waits at a full barrier for {name}.", name=name)
        return tr("It waits at an empty barrier, before it copies {name}.", name=name)

    def multiplies(self, what: str, tile: int, begun: bool) -> str:
        """Returns what a product computes, and whether it begins."""
        fields = {"tile": whole(tile)}
        if what == S:
            return (
                tr("Products of Q and K of tile {tile} begin (wgmma).", **fields)
                if begun
                else tr("Products of Q and K of tile {tile} are under way.", **fields)
            )
        return (
            tr("Products of weights and V of tile {tile} begin (wgmma).", **fields)
            if begun
            else tr("Products of weights and V of tile {tile} are under way.", **fields)
        )

    def computes(self, what: str, tile: int) -> str:
        if what == P:
            return tr("Softmax: scores of tile {tile} become weights.", tile=whole(tile))
        return tr("It stores its rows of O after tile {tile}.", tile=whole(tile))

    def holds(self, what: str, state: str, tile: int) -> str:
        """Returns what a stage holds."""
        name = _name(what, tile)
        if state == FILLING:
            return tr("The copy of {name} is under way.", name=name)
        if state == FULL:
            return tr("{name} has arrived.", name=_capital(name))
        return tr("{name} is read, and not yet free.", name=_capital(name))

    def idle(self, row: str) -> str:
        """Returns the text of a cell of a row that is not written."""
        if row == "copies":
            return tr("No copy starts or waits here at this step.")
        if row.startswith("stages"):
            return tr("The stage is empty.")
        return tr("The consumer does something else at this step.")

    def barrier(self, what: str, on: str, stage: int) -> str:
        """Returns what a barrier's cell means, and what ends a phase."""
        if on == ON_FULL:
            nbytes = units.bytes_(self.ring.regions[what].nbytes)
            return tr(
                "Parity of the phase of barrier full {stage} of {what}. A phase ends when {bytes} have been copied.",
                stage=stage,
                what=what,
                bytes=nbytes,
            )
        return trn(
            "Parity of the phase of barrier empty {stage} of {what}. A phase ends when {n} consumer has arrived.",
            "Parity of the phase of barrier empty {stage} of {what}. A phase ends when {n} consumers have arrived.",
            self.ring.consumers,
            stage=stage,
            what=what,
        )


def _name(what: str, tile: int) -> str:
    """Returns the name of a tile: of queries for Q, else of keys."""
    if what == Q:
        return tr("tile {tile} of queries", tile=whole(tile))
    return tr("{what} of tile {tile}", what=what, tile=whole(tile))


def _capital(name: str) -> str:
    """Returns a name as the first word of a sentence."""
    return name[:1].upper() + name[1:]


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else tr("{first} and {last}", first=", ".join(names[:-1]), last=names[-1])


def whole(number: int) -> str:
    return decimal(f"{number:,}")
