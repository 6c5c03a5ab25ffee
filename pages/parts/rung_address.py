"""The address of a lesson on a ladder whose rungs have tile sizes: the shape, the rung that is watched, its tile sizes.

The shape that is read is always valid, and each tile size is one that the rung offers. Together they may still break a
rule of the rung: then the page names it (`Asked.broken`) and keeps what was asked. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kernels.model.rung import Ladder, Rung
from pages.parts import tiles as parts_tiles
from pages.parts.address import Choice, Field, Fields, Mend, Value, Values


@dataclass(frozen=True)
class Asked(parts_tiles.Watched):
    """What the parameters ask for."""

    shape: Any

    @property
    def broken(self) -> list[str]:
        """The rules that keep the rung from running so."""
        return parts_tiles.broken(self.rung, self.shape, self.tiles)

    def params(self) -> Values:
        return self.shape.params() | {"rung": short(self.rung)} | dict(self.tiles)


def short(rung: Rung) -> str:
    """Its name in the address: "register-tile-2d"."""
    return rung.name.partition("/")[2]


@dataclass(frozen=True, eq=False)
class Address:
    """How a lesson's address says what is asked of a ladder. `shape` are the fields of its shape by name, `usual` the
    short name of the rung that is watched where none is named, `mend` as in Fields. `first`: the shape at which tile
    sizes that are not named are those that fit; else they are the rung's usual ones. `fit` says which do."""

    ladder: Ladder
    shape: Mapping[str, Field]
    usual: str
    mend: Mend
    first: Any = None
    fit: Callable[[Rung, Any], dict[str, int]] = parts_tiles.fitting

    @cached_property
    def rungs(self) -> dict[str, Rung]:
        """By their names in the address."""
        return {short(rung): rung for rung in self.ladder.rungs}

    # -- reading -----------------------------------------------------------------------------------
    @cached_property
    def fields(self) -> dict[str, Fields]:
        """The parameters of the lesson while a rung is watched, by its short name."""
        of = dict(self.shape) | {"rung": Choice(self.usual, tuple(self.rungs))}
        return {
            name: Fields(self.ladder.name, of | self._tile_fields(rung), self.mend)
            for name, rung in self.rungs.items()
        }

    def _tile_fields(self, rung: Rung) -> dict[str, Choice]:
        usual = self.fit(rung, self.first) if self.first else rung.default_tiles
        return {name: Choice(usual[name], tuple(sorted(choices))) for name, choices in rung.tiles.items()}

    def watched(self, raw: Mapping[str, Value]) -> str:
        """The short name of the rung that is asked for."""
        return raw.get("rung") if raw.get("rung") in self.rungs else self.usual

    def of(self, values: Values) -> Asked:
        """What the values of all fields ask for."""
        rung = self.rungs[values["rung"]]
        shape = self.ladder.shape(**{name: values[name] for name in self.shape})
        return Asked(rung, {name: values[name] for name in rung.tiles}, shape)

    def read(self, raw: Mapping[str, Value]) -> tuple[Asked, list[str]]:
        """What an address asks for, and a note for each value that could not be taken."""
        values, notes = self.fields[self.watched(raw)].read(raw)
        return self.of(values), notes

    # -- writing -----------------------------------------------------------------------------------
    def write(self, asked: Asked) -> dict[str, str]:
        return self.fields[short(asked.rung)].write(asked.params())

    def at_shape(self, asked: Asked, shape: Any) -> dict[str, str]:
        """The parameters for another shape: with the same rung and tile sizes where they can run it, else the
        nearest tile sizes, else the last kernel of the ladder that can. Tile sizes nobody chose are those that fit."""
        tiles = asked.tiles
        if tiles in (asked.rung.default_tiles, self.fit(asked.rung, asked.shape)):
            tiles = self.fit(asked.rung, shape)
        if parts_tiles.broken(asked.rung, shape, tiles):
            tiles = parts_tiles.nearest(asked.rung, shape, tiles)
        if tiles is None:
            return self.at_rung(replace(asked, shape=shape), self.last_that_runs(shape))
        return self.write(Asked(asked.rung, tiles, shape))

    def at_rung(self, asked: Asked, rung: Rung) -> dict[str, str]:
        """The parameters for another rung, at the tile sizes that fit the shape."""
        return self.write(Asked(rung, self.fit(rung, asked.shape), asked.shape))

    def at_tiles(self, asked: Asked, tiles: Mapping[str, int]) -> dict[str, str]:
        return self.write(replace(asked, tiles=tiles))

    def able(self, shape: Any) -> list[Rung]:
        """The rungs that run a shape at their usual tile sizes."""
        return [r for r in self.ladder.rungs if not parts_tiles.broken(r, shape, r.default_tiles)]

    def last_that_runs(self, shape: Any) -> Rung:
        """The last rung with a kernel of our own, else the last of all, else the first of the ladder."""
        runs = self.able(shape)
        return next((r for r in reversed(runs) if not r.library), next(reversed(runs), self.ladder.rungs[0]))
