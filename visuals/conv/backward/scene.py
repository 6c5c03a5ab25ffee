"""The scenes of convolution's gradients and of transposed convolution, by rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels.conv.backward.dinput import phase_count
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import Launch, Tiles
from visuals.conv.backward import cells, implicit_views, views, winograd_cells, winograd_views
from visuals.conv.backward.links import Links
from visuals.conv.backward.spread import with_spread
from visuals.scene.compiler.program import every_block, first_blocks, scene_of_rung
from visuals.scene.compiler.view import Buffer, View, unfolded
from visuals.scene.parts import Tensor
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene
from visuals.scene.why_not import broken_rule

Shape = ConvShape | TransposeShape


@dataclass(frozen=True)
class Compiled:
    """A scene that is compiled: the view of a convolution with tile sizes, of its gradient (False) or transposed (True), and what its
    cells are made of."""

    view: Callable[[ConvShape, Tiles, bool], View]
    cells: Callable[[Links, Tiles, bool], Mapping[str, Any]]
    blocks: Callable[[Launch], tuple[int, ...]] = every_block


def _direct(links: Links, _: Tiles, transposed: bool) -> Mapping[str, Any]:
    return {"sums": (cells.of_pixels(links),), "annotations": (cells.outputs(links, transposed),)}


def _atomics(links: Links, _: Tiles, transposed: bool) -> Mapping[str, Any]:
    notes = cells.additions(links, transposed), cells.columns(links, transposed)
    return {"sums": (cells.of_columns(links),), "annotations": notes}


def _gather(links: Links, _: Tiles, transposed: bool) -> Mapping[str, Any]:
    sums = cells.of_columns(links), cells.of_windows(links)
    return {"sums": sums, "annotations": (cells.columns(links, transposed),)}


def _filters(links: Links, _: Tiles, transposed: bool) -> Mapping[str, Any]:
    return {"annotations": (cells.taps(links),)}


def _phases(links: Links, _: Tiles, transposed: bool) -> Mapping[str, Any]:
    notes = cells.outputs(links, transposed), cells.phases(links, transposed)
    return {"sums": (cells.of_pixels(links),), "annotations": notes}


def _winograd_input(links: Links, tiles: Tiles, transposed: bool) -> Mapping[str, Any]:
    return {"sums": winograd_cells.of_input(links.s, tiles["M"])}


def _winograd_filters(links: Links, tiles: Tiles, transposed: bool) -> Mapping[str, Any]:
    parts = winograd_views.parts_of(links.s, tiles)
    return {"sums": winograd_cells.of_filters(links.s, tiles["M"], parts)}


OF_INPUT = {
    "direct": Compiled(lambda _, __, transposed: views.dinput_direct(transposed), _direct),
    "gemm-atomics": Compiled(lambda s, _, transposed: views.col2im_atomics(s, transposed), _atomics),
    "gemm-gather": Compiled(lambda s, _, transposed: views.col2im_gather(s, transposed), _gather),
    "implicit-gemm": Compiled(implicit_views.phases, _phases),
}
SCENES: Mapping[str, Compiled] = {
    **{f"{ladder}/{name}": scene for ladder in ("conv-dinput", "conv-transpose") for name, scene in OF_INPUT.items()},
    "conv-dweight/direct": Compiled(lambda *_: views.DWEIGHT_DIRECT, _filters),
    "conv-dweight/im2col-gemm": Compiled(lambda s, *_: views.dweight_gemm(s), _filters),
    "conv-dweight/implicit-gemm": Compiled(lambda s, tiles, _: implicit_views.parts(s, tiles), _filters),
    "conv-dweight/implicit-gemm-atomics": Compiled(
        lambda s, tiles, _: implicit_views.parts(s, tiles, atomics=True), _filters
    ),
    "conv-dinput/winograd": Compiled(
        lambda s, tiles, _: winograd_views.dinput(s, tiles), _winograd_input, first_blocks(1)
    ),
    "conv-dweight/winograd": Compiled(
        lambda s, tiles, _: winograd_views.dweight(s, tiles), _winograd_filters, first_blocks(1)
    ),
}
MAX_PHASES = 9  # of more the picture is too long


def folds(rung: str) -> bool:
    """Returns whether the stage folds repeated steps of a rung."""
    return rung in ("conv-dweight/direct", "conv-dweight/im2col-gemm", "conv-dinput/winograd", "conv-dweight/winograd")


def why_not(s: Shape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape (of visuals.conv.watched); "" if it has one."""
    conv = s.conv if isinstance(s, TransposeShape) else s
    if (rule := broken_rule(rung, s, tiles)) or rung not in (
        "conv-dinput/implicit-gemm",
        "conv-transpose/implicit-gemm",
    ):
        return rule
    if (count := phase_count(conv)) <= MAX_PHASES:
        return ""
    return tr(
        "A stride of {u} × {v} makes {n} phases. The stage shows at most {limit}.",
        u=conv.u,
        v=conv.v,
        n=count,
        limit=MAX_PHASES,
    )


def backward_scene(
    rung: str, s: Shape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray], every_step: bool = False
) -> Scene:
    """Returns the scene of a rung at a small shape with one group. Repeated steps are folded, unless `every_step`.

    `inputs` are the rung's, float32, by name. RuleError if it cannot run the shape.
    """
    conv, transposed = (s.conv, True) if isinstance(s, TransposeShape) else (s, False)
    links, sizes = Links(conv), find(rung).check(s, tiles)
    view = SCENES[rung].view(conv, sizes, transposed)
    if every_step:
        view = unfolded(view)
    key = f"{every_step} " + ",".join(f"{name}={value}" for name, value in s.params().items())
    of_cells = SCENES[rung].cells(links, sizes, transposed)
    scene = scene_of_rung(rung, s, sizes, inputs, view, key, blocks=SCENES[rung].blocks, **of_cells)
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
