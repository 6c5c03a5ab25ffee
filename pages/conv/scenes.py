"""The scenes of the lessons, cached: built once for equal inputs and shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType

from kernels.engines import emulator
from kernels.i18n import cached, mark
from kernels.ladders import find
from kernels.model.program import RuleError
from kernels.model.rung import Rung
from visuals.conv.direct.scene import ORDERS, direct_scene, shown
from visuals.conv.im2col import warps as im2col_warps
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import Part, part_of
from visuals.conv.watched import smaller
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

Ordered = tuple[Scene, str]  # a scene, and why it is not in the requested order ("" if it is)
IM2COL_ORDERS = {
    "explaining": mark("each step copies one column, then each step multiplies two tiles"),
    "warps": mark("each step is one store of block 0, in the order of the emulated CUDA kernel"),
    "library": mark("each step copies one column, then cuBLAS computes the product in one call"),
}
IM2COL_RUNGS = {"library": "conv/im2col-cublas"}  # the rung that an order shows, if it is not our kernel
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
    part, rung = part_of(inputs.shape, inputs.planes()[0]), find("conv/im2col-gemm")
    sizes = rung.default_tiles | dict(tiles)
    draw = partial(im2col_scene, tile=0 if order == "library" else sizes["TILE"], block=sizes["BLOCK"])
    if order == "library":
        return _drawn(inputs, part, draw), ""
    return _in_order(order, inputs, part, draw, rung, sizes, im2col_warps)


@cached(MAX_CACHED_SCENES)
def direct(inputs: Inputs, order: str, every_step: bool = False, tiles: Tiles = ()) -> Ordered:
    """Returns the scene in one of DIRECT_ORDERS. It folds many products, unless `every_step`."""
    sizes, reason = find(ORDERS[order]).default_tiles | dict(tiles), ""
    try:
        scene = direct_scene(inputs, order, sizes, every_step)
    except RuleError as error:
        scene, reason = direct(inputs, "explaining", every_step)[0], str(error)
    return scene, reason or smaller(inputs.shape, shown(inputs.shape, order))


def _in_order(
    order: str,
    inputs: Inputs,
    part: Part,
    draw: Callable[..., Scene],
    rung: Rung,
    tiles: Mapping[str, int],
    warps: ModuleType,
) -> Ordered:
    """Returns the scene that `draw` makes of a part, or its scene in the order of the rung's warps. `tiles`: all of them."""
    shape, explained = inputs.shape, _drawn(inputs, part, draw)
    if order == "explaining":
        return explained, ""
    if reason := warps.why_not(shape, part, tiles["BLOCK"]):
        return explained, reason
    program = rung.build(shape, tiles)
    trace, counters = emulator.trace_launch(program, 0, {"x": inputs.x(), "w": inputs.w()})
    return warps.in_warp_order(explained, shape, trace, counters, program.launch().grid[0]), ""


def _drawn(inputs: Inputs, part: Part, draw: Callable[..., Scene]) -> Scene:
    """Returns the scene that `draw` makes of a part."""
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    return draw(inputs.shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
