"""The URL of the lesson on implicit GEMM: the shape, the rung on the stage and its tile sizes.

The shape's fields are those of every convolution lesson. Its default is different: it fills one tile.
Each tile size is one that the rung offers. Together they may still break a rule, which the page then names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.i18n import cached, mark, tr
from kernels.ladders import find
from kernels.model.program import RuleError
from pages.conv import address as conv_address
from pages.parts import rung_picker
from pages.parts import tiles as tile_sizes
from pages.parts.address import Choice, Fields, Value, Values
from pages.parts.query import current_values
from visuals.conv.implicit import plan as implicit_plan
from visuals.conv.implicit.gpu_map import implicit_map
from visuals.conv.implicit.scene import implicit_scene, shown
from visuals.conv.implicit.timeline import timeline_scene
from visuals.conv.inputs import Inputs
from visuals.conv.watched import smaller
from visuals.gpu_map.scene import map_scene
from visuals.gpu_map.texts import DESCRIPTION, MAP, NO_MAP
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

DEFAULT = conv_address.ConvQuery(CONV_PRESETS["one-tile"].shape)
FIELDS = Fields(
    "implicit",
    {name: replace(conv_address.FIELDS.by_name[name], default=default) for name, default in DEFAULT.params().items()},
    conv_address.fix(DEFAULT.shape),
)
RUNGS = {name.partition("/")[2]: find(name) for name in implicit_plan.RUNGS}
DEFAULT_RUNG = "implicit-gemm"
ORDERS = {
    "explaining": mark("the copies and products of one block, tile by tile, with their values"),
    "timeline": mark("the copies, waits, products and barriers of one block: what follows what"),
    MAP: DESCRIPTION,
}


@dataclass(frozen=True)
class Watched(tile_sizes.SelectedRung):
    """The rung on the stage and its tile sizes, as in the URL."""

    def params(self) -> Values:
        return {"rung": self.rung.name.partition("/")[2]} | dict(self.tiles)


# The parameters besides the shape's. Both rungs have the same tile sizes.
TILES = Fields(
    "implicit-tiles",
    {"rung": Choice(DEFAULT_RUNG, tuple(RUNGS))}
    | {name: Choice(sizes[0], tuple(sorted(sizes))) for name, sizes in RUNGS[DEFAULT_RUNG].tiles.items()},
)


def watched_in(values: Values) -> Watched:
    rung = RUNGS[values["rung"]]
    return Watched(rung, {name: values[name] for name in rung.tiles})


def read(raw: Mapping[str, Value]) -> tuple[conv_address.ConvQuery, Watched]:
    """Returns what URL parameters select. Invalid values are ignored."""
    return conv_address.query_of(FIELDS.read(raw)[0]), watched_in(TILES.read(raw)[0])


def watched(visible: bool) -> tuple[Watched, list[str]]:
    """Returns the rung and tile sizes of the controls, and notes on invalid values.

    If not `visible`, only the URL is read. Call this before the page draws any control: it rewrites a URL with invalid
    values."""
    values, notes = current_values(TILES, visible)
    return watched_in(values), notes


def draw(page: str, shape: ConvShape, current: Watched) -> None:
    """Draws the line of controls for the rung on the stage."""
    rung_picker.draw(
        rung_picker.Line(
            page,
            TILES,
            tuple(RUNGS.values()),
            [rung for rung in RUNGS.values() if not tile_sizes.broken(rung, shape, rung.default_tiles)],
            shape,
            current.rung,
            current.tiles,
            lambda rung: TILES.write(replace(current, rung=rung).params()),
            lambda tiles: TILES.write(replace(current, tiles=tiles).params()),
        )
    )


@cached(MAX_CACHED_SCENES)
def scene(
    inputs: Inputs, rung: str, tiles: tuple[tuple[str, int], ...], order: str = "explaining"
) -> tuple[Scene | None, str]:
    """Returns the scene in one of ORDERS and why it differs from the request; (None, reason) if the rung has no scene at
    these tile sizes."""
    shape, sizes, note = inputs.shape, dict(tiles), ""
    if reason := implicit_plan.why_not(shape, rung, sizes):
        return None, reason
    if order == MAP:
        if found := implicit_map(shape, rung, sizes):
            return map_scene(found), ""
        note = tr(NO_MAP)
    if order == "timeline":
        try:
            return timeline_scene(shape, rung, sizes), ""
        except RuleError as error:  # no compiler here for these tile sizes
            note = tr("{error}. The stage shows the explaining order instead.", error=error)
    try:
        return implicit_scene(inputs, rung, sizes), note or smaller(shape, shown(shape))
    except RuleError as error:  # no compiler here for these tile sizes
        return None, str(error)
