"""What the address of the lesson on implicit GEMM means beside the shape: the rung that is watched and its tile sizes.

The shape is that of every convolution lesson, with a usual value of its own: one that fills a tile. Each tile size
is one that the rung offers; together they may still break a rule of it, which the page then names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import find
from pages.conv import address as conv_address
from pages.parts import rung_picker
from pages.parts import tiles as tile_sizes
from pages.parts.address import Choice, Fields, Value, Values
from pages.parts.kept import MOST_KEPT
from pages.parts.query import asked
from visuals.conv.implicit import plan as implicit_plan
from visuals.conv.implicit.scene import implicit_scene
from visuals.conv.inputs import Inputs
from visuals.scene.scene import Scene

DEFAULT = conv_address.Asked(CONV_PRESETS["one-tile"].shape)
FIELDS = Fields(
    "implicit",
    {name: replace(conv_address.FIELDS.of[name], usual=usual) for name, usual in DEFAULT.params().items()},
    lambda values: conv_address.fits(values, DEFAULT.params()),
)
RUNGS = {name.partition("/")[2]: find(name) for name in implicit_plan.RUNGS}
DEFAULT_RUNG = "implicit-gemm"


@dataclass(frozen=True)
class Watched(tile_sizes.Watched):
    """As the address says it."""

    def params(self) -> Values:
        return {"rung": self.rung.name.partition("/")[2]} | dict(self.tiles)


# The parameters beside the shape's: both rungs have the same tile sizes.
TILES = Fields(
    "implicit-tiles",
    {"rung": Choice(DEFAULT_RUNG, tuple(RUNGS))}
    | {name: Choice(all_[0], tuple(sorted(all_))) for name, all_ in RUNGS[DEFAULT_RUNG].tiles.items()},
)


def watched_in(values: Values) -> Watched:
    rung = RUNGS[values["rung"]]
    return Watched(rung, {name: values[name] for name in rung.tiles})


def read(raw: Mapping[str, Value]) -> tuple[conv_address.Asked, Watched]:
    """What an address asks for; what cannot be taken is left out."""
    return conv_address.of(FIELDS.read(raw)[0]), watched_in(TILES.read(raw)[0])


def watched(shown: bool) -> tuple[Watched, list[str]]:
    """What the controls ask for, and what could not be taken; not `shown`: the address alone is read. Asked before
    any control of the page is drawn: an address that holds what cannot be taken is then written anew."""
    values, notes = asked(TILES, shown)
    return watched_in(values), notes


def draw(page: str, shape: ConvShape, now: Watched) -> None:
    """The line of the rung that is watched."""
    rung_picker.draw(
        rung_picker.Line(
            page,
            TILES,
            tuple(RUNGS.values()),
            [rung for rung in RUNGS.values() if not tile_sizes.broken(rung, shape, rung.default_tiles)],
            shape,
            now.rung,
            now.tiles,
            lambda rung: TILES.write(replace(now, rung=rung).params()),
            lambda tiles: TILES.write(replace(now, tiles=tiles).params()),
        )
    )


@lru_cache(maxsize=MOST_KEPT)
def scene(inputs: Inputs, rung: str, tiles: tuple[tuple[str, int], ...]) -> tuple[Scene | None, str]:
    """The scene of a rung at its tile sizes; None where it has none, and then why."""
    shape, sizes = inputs.shape, dict(tiles)
    if reason := implicit_plan.why_not(shape, rung, sizes):
        return None, reason
    plan = implicit_plan.Plan(shape, rung, sizes)
    images = -(-plan.columns_shown // shape.PQ)
    return implicit_scene(shape, rung, sizes, inputs.x(images), inputs.w(min(shape.K, plan.BM))), ""
