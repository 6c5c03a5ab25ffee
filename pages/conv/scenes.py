"""The scenes of the lessons, cached: built once for equal inputs and shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from kernels.engines import emulator
from kernels.i18n import cached, mark
from kernels.ladders import find
from visuals.conv.direct import warps as direct_warps
from visuals.conv.direct.scene import direct_scene, folded_scene, part_shown
from visuals.conv.im2col import warps as im2col_warps
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import Part, part_of
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
    "warps": mark("each step is one memory request of block 0, in the order of the emulated CUDA kernel"),
}


@cached(MAX_CACHED_SCENES)
def im2col(inputs: Inputs, order: str) -> Ordered:
    """Returns the scene in one of IM2COL_ORDERS."""
    part = part_of(inputs.shape, inputs.planes()[0])
    if order == "library":
        return _drawn(inputs, part, partial(im2col_scene, tile=0)), ""
    return _in_order(order, inputs, part, im2col_scene, "conv/im2col-gemm", im2col_warps)


@cached(MAX_CACHED_SCENES)
def direct(inputs: Inputs, order: str, every_step: bool = False) -> Ordered:
    """Returns the scene in one of DIRECT_ORDERS. The explaining order folds many products, unless `every_step`."""
    part = part_shown(inputs.shape, inputs.planes()[0])
    scene, reason = _in_order(order, inputs, part, direct_scene, "conv/direct", direct_warps)
    return (scene if every_step or order != "explaining" else folded_scene(scene)), reason


def _in_order(
    order: str, inputs: Inputs, part: Part, draw: Callable[..., Scene], name: str, warps: ModuleType
) -> Ordered:
    """Returns the scene that `draw` makes of a part, or its scene in the order of the rung's warps."""
    shape, explained = inputs.shape, _drawn(inputs, part, draw)
    if order == "explaining":
        return explained, ""
    if reason := warps.why_not(shape, part):
        return explained, reason
    rung = find(name)
    program = rung.build(shape, rung.default_tiles)
    trace, counters = emulator.trace_launch(program, 0, {"x": inputs.x(), "w": inputs.w()})
    return warps.in_warp_order(explained, shape, trace, counters, program.steps[0].grid[0]), ""


def _drawn(inputs: Inputs, part: Part, draw: Callable[..., Scene]) -> Scene:
    """Returns the scene that `draw` makes of a part."""
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    return draw(inputs.shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
