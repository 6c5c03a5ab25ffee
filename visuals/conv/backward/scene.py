"""The scenes of convolution's gradients and of transposed convolution, by rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.ladders import find
from visuals.conv.backward import cells, parts, phases, transpose, views, winograd
from visuals.conv.backward.links import Links
from visuals.conv.backward.spread import with_spread
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.compiler.view import Buffer, View, unfolded
from visuals.scene.parts import Tensor
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene
from visuals.scene.why_not import broken_rule

Shape = ConvShape | TransposeShape


@dataclass(frozen=True)
class Compiled:
    """A scene that is compiled: the view of a convolution, of its gradient (False) or transposed (True), and what its cells are made of."""

    view: Callable[[ConvShape, bool], View]
    cells: Callable[[Links, bool], Mapping[str, Any]]


def _direct(links: Links, transposed: bool) -> Mapping[str, Any]:
    return {"sums": (cells.of_pixels(links),), "annotations": (cells.outputs(links, transposed),)}


def _atomics(links: Links, transposed: bool) -> Mapping[str, Any]:
    notes = cells.additions(links, transposed), cells.columns(links, transposed)
    return {"sums": (cells.of_columns(links),), "annotations": notes}


def _gather(links: Links, transposed: bool) -> Mapping[str, Any]:
    sums = cells.of_columns(links), cells.of_windows(links)
    return {"sums": sums, "annotations": (cells.columns(links, transposed),)}


def _filters(links: Links, transposed: bool) -> Mapping[str, Any]:
    return {"annotations": (cells.taps(links),)}


OF_INPUT = {
    "direct": Compiled(lambda _, transposed: views.dinput_direct(transposed), _direct),
    "gemm-atomics": Compiled(views.col2im_atomics, _atomics),
    "gemm-gather": Compiled(views.col2im_gather, _gather),
}
COMPILED: Mapping[str, Compiled] = {
    **{f"{ladder}/{name}": scene for ladder in ("conv-dinput", "conv-transpose") for name, scene in OF_INPUT.items()},
    "conv-dweight/direct": Compiled(lambda *_: views.DWEIGHT_DIRECT, _filters),
    "conv-dweight/im2col-gemm": Compiled(lambda s, _: views.dweight_gemm(s), _filters),
}
BUILT: Mapping[str, Callable[..., Scene]] = {
    phases.RUNG: phases.phases_scene,
    transpose.PHASES: transpose.phases_scene,
    winograd.DINPUT: winograd.dinput_scene,
    winograd.DWEIGHT: winograd.dweight_scene,
    parts.ATOMICS: partial(parts.parts_scene, rung=parts.ATOMICS),
    parts.SPLIT: parts.parts_scene,
}
SCENES = (*COMPILED, *BUILT)
FOLDED: dict[str, Callable[[Scene], Scene]] = {  # a shorter scene: repeated steps are one
    parts.ATOMICS: parts.folded_parts_scene,
    parts.SPLIT: parts.folded_parts_scene,
    winograd.DINPUT: winograd.folded_scene,
    winograd.DWEIGHT: winograd.folded_scene,
}


def folds(rung: str) -> bool:
    """Returns whether the stage folds repeated steps of a rung."""
    return rung in (*FOLDED, "conv-dweight/direct", "conv-dweight/im2col-gemm")


def why_not(s: Shape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape (of visuals.conv.watched); "" if it has one."""
    conv = s.conv if isinstance(s, TransposeShape) else s
    if (rule := broken_rule(rung, s, tiles)) or rung not in (phases.RUNG, transpose.PHASES):
        return rule
    if (count := len(phases.phases_of(Links(conv)))) <= phases.MAX_PHASES:
        return ""
    return tr(
        "A stride of {u} × {v} makes {n} phases. The stage shows at most {limit}.",
        u=conv.u,
        v=conv.v,
        n=count,
        limit=phases.MAX_PHASES,
    )


def backward_scene(
    rung: str, s: Shape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray], every_step: bool = False
) -> Scene:
    """Returns the scene of a rung at a small shape with one group. Repeated steps are folded, unless `every_step`.

    `inputs` are the rung's, float32, by name. RuleError if it cannot run the shape.
    """
    if rung in BUILT:
        scene = BUILT[rung](s, tiles, inputs)
        return scene if every_step or rung not in FOLDED else FOLDED[rung](scene)
    conv, transposed = (s.conv, True) if isinstance(s, TransposeShape) else (s, False)
    view, links, sizes = COMPILED[rung].view(conv, transposed), Links(conv), find(rung).check(s, tiles)
    if every_step:
        view = unfolded(view)
    key = f"{every_step} " + ",".join(f"{name}={value}" for name, value in s.params().items())
    of_cells = COMPILED[rung].cells(links, transposed)
    scene = scene_of_rung(rung, s, sizes, inputs, view, key, **of_cells)
    scene = replace(
        scene,
        tensors=tuple(
            replace(t, note=t.note or _size(t)) if isinstance(view.shown(t.name), Buffer) else t for t in scene.tensors
        ),
    )
    spread = rung.endswith("/direct") and "dx" in {t.name for t in scene.tensors} and conv.stride != (1, 1)
    return with_spread(scene, conv, transposed) if spread else scene


def _size(t: Tensor) -> str:
    return part_note(*((0, size, size) for size in (t.planes, t.rows, t.cols)), plane="plane")
