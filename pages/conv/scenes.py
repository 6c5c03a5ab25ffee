"""The scenes of the lessons, cached: built once for equal inputs and shared by all sessions."""

from __future__ import annotations

from kernels.i18n import cached, mark
from kernels.ladders import find
from kernels.model.program import RuleError
from visuals.conv.direct.scene import ORDERS, direct_scene, shown
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs
from visuals.conv.part import part_of
from visuals.conv.watched import smaller
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

Ordered = tuple[Scene, str]  # a scene, and why it is not in the requested order ("" if it is)
IM2COL_ORDERS = {
    "explaining": mark("each step copies one window, then each step loads or multiplies two tiles"),
    "warps": mark("each step is one store of one warp, then each step loads or multiplies two tiles"),
    "library": mark("each step copies one window, then cuBLAS computes the product in one call"),
}
DIRECT_ORDERS = {
    "explaining": mark("one thread after another, the first with one step per product"),
    "warps": mark("one warp of block 0 after another, with one step per product"),
    "tiled": mark("the kernel that loads pixels and taps into shared memory first, block 0"),
}
DIRECT_RUNGS = {"tiled": "conv/direct-tiled"}


Tiles = tuple[tuple[str, int], ...]  # a rung's tile sizes by name; those left out have their default


@cached(MAX_CACHED_SCENES)
def im2col(inputs: Inputs, order: str, tiles: Tiles = ()) -> Ordered:
    """Returns the scene in one of IM2COL_ORDERS."""
    part = part_of(inputs.shape, inputs.planes()[0])
    scene = im2col_scene(inputs.shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), order, dict(tiles))
    return scene, smaller(inputs.shape, part.shape(inputs.shape))


@cached(MAX_CACHED_SCENES)
def direct(inputs: Inputs, order: str, every_step: bool = False, tiles: Tiles = ()) -> Ordered:
    """Returns the scene in one of DIRECT_ORDERS. It folds many products, unless `every_step`."""
    sizes, reason = find(ORDERS[order]).default_tiles | dict(tiles), ""
    try:
        scene = direct_scene(inputs, order, sizes, every_step)
    except RuleError as error:
        scene, reason = direct(inputs, "explaining", every_step)[0], str(error)
    return scene, reason or smaller(inputs.shape, shown(inputs.shape, order))
