"""The URL of the lesson on attention's backward pass: shape, rung on the stage, tile sizes. Also builds the scene."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernels.attention.backward.presets import BACKWARD_PRESETS
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import cached, mark
from kernels.ladders import LADDERS
from kernels.model.program import RuleError
from kernels.model.rung import Rung
from pages.attention import address as forward
from visuals.attention.backward.inputs import KINDS, inputs
from visuals.attention.backward.memory import DESCRIPTION, MEMORY, memory_scene
from visuals.attention.backward.scene import backward_scene, why_not
from visuals.attention.backward.views import MAX_ROWS
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

LADDER = LADDERS["attention-backward"]
DEFAULT = BACKWARD_PRESETS["backward-toy"].shape
DEFAULT_RUNG = "flash"
VALUES = forward.VALUES
ORDERS = {"explaining": mark("the steps of the kernel with their values"), MEMORY: DESCRIPTION}


def fit(rung: Rung, s: AttentionBackwardShape) -> dict[str, int]:
    """Returns the tile sizes for a shape: the smallest that are compiled ahead if a head is shown whole, else the defaults."""
    if s.N > MAX_ROWS:
        return rung.default_tiles
    return min(rung.tile_sets(s), key=lambda tiles: prod(tiles.values()), default=rung.default_tiles)


ADDRESS = forward.address_of(LADDER, DEFAULT, DEFAULT_RUNG, fit)


@cached(MAX_CACHED_SCENES)
def scene(
    s: AttentionBackwardShape, rung: str, tiles: tuple[tuple[str, int], ...], values: str, order: str = "explaining"
) -> tuple[Scene | None, str]:
    """Returns the scene of a rung in one of ORDERS; (None, reason) if it has none. `values` names the numbers on the stage."""
    if order == MEMORY:
        return memory_scene(s), ""
    if reason := why_not(s, rung, dict(tiles)):
        return None, reason
    try:
        return backward_scene(s, rung, dict(tiles), inputs(s, values)), ""
    except RuleError as error:  # no compiler here for these tile sizes
        return None, f"{error}."


def valid_values(name: str | None) -> str:
    return name if name is not None and name in KINDS else next(iter(KINDS))


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the rung can run with them."""
    query, _ = ADDRESS.read(params)
    values, order = valid_values(params.get(VALUES)), params.get("order", "explaining")
    return required(scene(query.shape, query.rung.name, tuple(query.tiles.items()), values, order))
