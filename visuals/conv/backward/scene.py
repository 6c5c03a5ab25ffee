"""The scenes of convolution's gradients, by rung. transpose.py has those of transposed convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from visuals.conv.backward import col2im, dinput, dweight, parts, phases, winograd
from visuals.conv.backward.links import Links
from visuals.scene.scene import Scene
from visuals.scene.why_not import broken_rule

Build = Callable[[ConvShape, Mapping[str, int], Mapping[str, np.ndarray]], Scene]
SCENES: dict[str, Build] = {
    dinput.RUNG: dinput.dinput_scene,
    col2im.ATOMICS: col2im.atomics_scene,
    col2im.GATHER: col2im.gather_scene,
    phases.RUNG: phases.phases_scene,
    winograd.DINPUT: winograd.dinput_scene,
    winograd.DWEIGHT: winograd.dweight_scene,
    dweight.DIRECT: dweight.direct_scene,
    dweight.GEMM: dweight.gemm_scene,
    parts.ATOMICS: partial(parts.parts_scene, rung=parts.ATOMICS),
    parts.SPLIT: parts.parts_scene,
}
FOLDED: dict[str, Callable[[Scene], Scene]] = {  # a shorter scene: repeated steps are one
    dweight.DIRECT: dweight.folded_direct_scene,
    dweight.GEMM: dweight.folded_gemm_scene,
    parts.ATOMICS: parts.folded_parts_scene,
    parts.SPLIT: parts.folded_parts_scene,
    winograd.DINPUT: winograd.folded_scene,
    winograd.DWEIGHT: winograd.folded_scene,
}


def why_not(s: ConvShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape (of links.watched); "" if it has one."""
    if rung == phases.RUNG and (count := len(phases.phases_of(Links(s)))) > phases.MAX_PHASES:
        return tr(
            "A stride of {u} × {v} makes {n} phases. The stage shows at most {limit}.",
            u=s.u,
            v=s.v,
            n=count,
            limit=phases.MAX_PHASES,
        )
    return broken_rule(rung, s, tiles)


def backward_scene(rung: str, s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of a rung of conv-dinput or conv-dweight at a small shape with one group.

    `inputs` are the rung's, float32, by name. RuleError if it cannot run the shape.
    """
    return SCENES[rung](s, tiles, inputs)
