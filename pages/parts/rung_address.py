"""The URL parameters of a lesson on a ladder whose rungs have tile sizes: shape, selected rung, tile sizes.

The shape is always valid, and each tile size is one that the rung offers. Together they can still break a rule of the
rung. Then the page names the rule (`Selection.broken`) and keeps the selection. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic

from kernels import records
from kernels.model.preset import Preset
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import S, Shape
from pages.parts import tiles as tile_sizes
from pages.parts.address import Choice, Field, Fields, Fix, Value, Values


@dataclass(frozen=True)
class Selection(tile_sizes.SelectedRung, Generic[S]):
    """The shape, rung and tile sizes that the parameters select."""

    shape: S

    @property
    def broken(self) -> list[str]:
        """Returns the rules that the rung breaks at this shape with these tile sizes."""
        return tile_sizes.broken(self.rung, self.shape, self.tiles)

    def params(self) -> Values:
        return self.shape.params() | {"rung": short(self.rung)} | dict(self.tiles)


def short(rung: Rung) -> str:
    """Returns the rung's name in the URL: "register-tile-2d"."""
    return rung.name.partition("/")[2]


@dataclass(frozen=True, eq=False)
class Address:
    """How the URL of a lesson selects a shape, a rung of its ladder and tile sizes.

    `shape` has the fields of the shape by name. `default_rung` is the short name of the default rung. `fix` is as in Fields.
    With `first`, tile sizes missing in the URL are `fit(rung, first)`; without it they are the rung's defaults.
    """

    ladder: Ladder
    shape: Mapping[str, Field]
    default_rung: str
    fix: Fix
    first: Shape | None = None
    fit: Callable[[Rung, Any], dict[str, int]] = tile_sizes.default_tiles_for

    @cached_property
    def rungs(self) -> dict[str, Rung]:
        """Returns the rungs by their names in the URL."""
        return {short(rung): rung for rung in self.ladder.rungs}

    # -- reading -----------------------------------------------------------------------------------
    @cached_property
    def fields(self) -> dict[str, Fields]:
        """Returns the parameters of the lesson for each selected rung, by its short name."""
        of = dict(self.shape) | {"rung": Choice(self.default_rung, tuple(self.rungs))}
        return {
            name: Fields(self.ladder.name, of | self._tile_fields(rung), self.fix) for name, rung in self.rungs.items()
        }

    def _tile_fields(self, rung: Rung) -> dict[str, Choice]:
        defaults = self.fit(rung, self.first) if self.first else rung.default_tiles
        return {name: Choice(defaults[name], tuple(sorted(choices))) for name, choices in rung.tiles.items()}

    def selected_name(self, raw: Mapping[str, Value]) -> str:
        """Returns the short name of the rung that `raw` selects."""
        name = str(raw.get("rung"))
        return name if name in self.rungs else self.default_rung

    def selection(self, values: Values) -> Selection:
        """Returns the selection for the values of all fields."""
        rung = self.rungs[values["rung"]]
        shape = self.ladder.shape(**{name: values[name] for name in self.shape})
        return Selection(rung, {name: values[name] for name in rung.tiles}, shape)

    def read(self, raw: Mapping[str, Value]) -> tuple[Selection, list[str]]:
        """Returns the selection for the parameters of a URL, and a note for each value that is not valid."""
        values, notes = self.fields[self.selected_name(raw)].read(raw)
        return self.selection(values), notes

    # -- writing -----------------------------------------------------------------------------------
    def write(self, selection: Selection) -> dict[str, str]:
        """Returns the URL parameters of a selection. Fields of the shape that the page does not set are left out."""
        fields = self.fields[short(selection.rung)]
        return fields.write({n: v for n, v in selection.params().items() if n in fields.by_name})

    def chosen_tiles(self, selection: Selection) -> Mapping[str, int]:
        """Returns the tile sizes if a reader chose them; none if they are the defaults, or those that fit the shape or
        `first`."""
        rung = selection.rung
        unchosen = [rung.default_tiles, *(self.fit(rung, s) for s in (selection.shape, self.first) if s)]
        return {} if selection.tiles in unchosen else selection.tiles

    def has_first_tiles(self, selection: Selection) -> bool:
        """Returns whether the tile sizes are those that fit `first`, although others fit the shape."""
        if not self.first:
            return False
        first, fitting = (self.fit(selection.rung, shape) for shape in (self.first, selection.shape))
        runs_first = not any(selection.rung.rules(self.first, first))
        return runs_first and selection.tiles == first != fitting

    def lit_shape(self, selection: Selection) -> Shape | None:
        """Returns the shape whose preset is the whole selection; None if a link to it would change the tile sizes."""
        same = self.at_shape(selection, selection.shape) == self.write(selection)
        return selection.shape if same else None

    def follow(self, previous: Values, values: Values) -> Values:
        """Returns the values after a reader changed the shape by hand: tile sizes that nobody chose become those of the
        recording of the new shape, if there is one."""
        if previous.get("rung") != values["rung"]:
            return values
        before, now = self.selection(previous), self.selection(values)
        if before.shape == now.shape or before.tiles != now.tiles or self.chosen_tiles(before):
            return values
        fitting = self.fit(now.rung, now.shape)
        return values | fitting if records.recorded(now.rung.name, now.shape, fitting) else values

    def at_shape(self, selection: Selection, shape: Shape) -> dict[str, str]:
        """Returns the URL parameters for another shape.

        The rung and tile sizes stay if they support the shape, else the nearest tile sizes are used, else the last
        kernel of the ladder that supports it. Tile sizes that nobody chose are replaced by `fit(rung, shape)`.
        """
        tiles = self.chosen_tiles(selection) or self.fit(selection.rung, shape)
        if tile_sizes.broken(selection.rung, shape, tiles):
            tiles = tile_sizes.nearest(selection.rung, shape, tiles)
        if tiles is None:
            return self.at_rung(replace(selection, shape=shape), self.last_supported(shape))
        return self.write(Selection(selection.rung, tiles, shape))

    def at_rung(self, selection: Selection, rung: Rung) -> dict[str, str]:
        """Returns the URL parameters for another rung, with the tile sizes that fit the shape."""
        return self.write(Selection(rung, self.fit(rung, selection.shape), selection.shape))

    def at_tiles(self, selection: Selection, tiles: Mapping[str, int]) -> dict[str, str]:
        return self.write(replace(selection, tiles=tiles))

    def example(self, selection: Selection) -> tuple[Preset, dict[str, str]] | None:
        """Returns the ladder's first preset that the selected rung runs, with its URL parameters; None if no preset of the
        page is one."""
        for preset in self.ladder.presets.values():
            params = self.at_shape(selection, preset.shape)
            found, _ = self.read(params)
            if found.rung is selection.rung and found.shape == preset.shape and not found.broken:
                return preset, params
        return None

    def supported_rungs(self, shape: Shape) -> list[Rung]:
        """Returns the rungs that support a shape with their default tile sizes."""
        return [r for r in self.ladder.rungs if not tile_sizes.broken(r, shape, r.default_tiles)]

    def last_supported(self, shape: Shape) -> Rung:
        """Returns the last supported rung that has a scene, else the last that is no library's, else the last, else the
        ladder's first."""
        runs = self.supported_rungs(shape)[::-1]
        own = [rung for rung in runs if not rung.library]
        drawn = [rung for rung in own if not rung.no_scene]
        return next(iter((*drawn, *own, *runs, self.ladder.rungs[0])))
