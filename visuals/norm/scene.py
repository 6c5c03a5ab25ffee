"""The norms as scenes: a channel or a row on its way through a kernel, compiled from what the kernel did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from math import prod

import numpy as np

from kernels.i18n import tr
from kernels.ladders import find, ladder_of
from kernels.model.program import Launch
from kernels.model.shape import Shape
from kernels.norm.shape import NHWC, MapsShape, RowsShape
from kernels.runner import inputs_of
from visuals.norm.views import BACK, FRONT, VIEWS
from visuals.scene.compiler.program import first_blocks, scene_of_rung
from visuals.scene.compiler.view import View
from visuals.scene.parts import Annotation, Captions, Group, Tensor
from visuals.scene.scene import Scene

Arrays = Mapping[str, np.ndarray]
MAX_LINKS = 40_000  # of an annotation
SIDES = (*FRONT, *BACK)
MAX_BLOCKS = 12  # of inference, that are shown one by one


def norm_scene(
    rung: str, shape: MapsShape | RowsShape, tiles: Mapping[str, int], inputs: Arrays | None = None
) -> Scene:
    """Returns the scene of one of our rungs at a shape. Missing inputs are seeded. Raises RuleError if the rung cannot run
    the shape."""
    given, all_tiles = inputs or {}, find(rung).check(shape, dict(tiles))
    arrays = inputs_at(rung, shape, all_tiles, given)
    blocks = first_blocks(MAX_BLOCKS) if "inference" in rung else watched
    scene = scene_of_rung(
        rung, shape, all_tiles, arrays, view_of(rung, shape, arrays), f"{shape} {_digest(given)}", blocks=blocks
    )
    return replace(
        scene,
        groups=tuple(map(_named, scene.groups)),
        tensors=tuple(_placed(t, shape) for t in scene.tensors),
        annotations=(*scene.annotations, *_annotations(scene, shape)),
    )


def inputs_at(rung: str, shape: Shape, tiles: Mapping[str, int], given: Arrays) -> dict[str, np.ndarray]:
    """Returns all inputs: those that are not given are seeded, or follow from the others."""
    ladder = ladder_of(rung)
    drawn = inputs_of(ladder, shape, find(rung).build(shape, dict(tiles)))
    derived = dict(ladder.derive(shape, drawn | dict(given))) if given and ladder.derive else {}
    return {
        name: np.asarray((derived | dict(given)).get(name, a), np.float32).reshape(a.shape) for name, a in drawn.items()
    }


def view_of(rung: str, shape: MapsShape | RowsShape, arrays: Arrays) -> View:
    """Returns the view of a rung with the numbers that its sentences compare: how many numbers a mean is of, the
    variance of the first channel or row in float64, and how many pixels an image has."""
    unit = units(shape)[0]
    exact = float(np.var(arrays["x"].ravel()[unit].astype(np.float64)))
    of_map = shape.HW if isinstance(shape, MapsShape) else 1
    return replace(
        VIEWS[rung], names={"elements": str(len(unit)), "exact": repr(float(exact)), "of_map": repr(float(of_map))}
    )


def watched(launch: Launch) -> tuple[int, ...]:
    """Returns the block of a launch that is watched, that of the first channel or row: the last one of the kernels that
    begin with what was read last."""
    reversed_ = launch.source in ("norm/05_bn_apply.cu", "norm/14_bn_backward_apply.cu")
    return (prod(launch.grid) - 1 if reversed_ else 0,)


def _digest(inputs: Arrays) -> str:
    found = blake2b(digest_size=6)
    for name in sorted(inputs):
        found.update(name.encode() + np.ascontiguousarray(inputs[name], np.float32).tobytes())
    return found.hexdigest() if inputs else ""


# -- numbers that belong together ------------------------------------------------------------------------
def units(shape: MapsShape | RowsShape) -> np.ndarray:
    """Returns int64[units, n]: where the numbers of each channel or row are in memory, in the order of the kernels."""
    flat = np.arange(shape.elements)
    if not isinstance(shape, MapsShape):
        return flat.reshape(shape.M, shape.N)
    if shape.layout == NHWC:
        return flat.reshape(shape.count, shape.C).T
    return flat.reshape(shape.N, shape.C, shape.HW).transpose(1, 0, 2).reshape(shape.C, shape.count)


def _placed(tensor: Tensor, shape: MapsShape | RowsShape) -> Tensor:
    """Returns a tensor with its cells in the rows that its numbers belong to: an image of channels, a number for each
    row."""
    if isinstance(shape, RowsShape):
        by_row = tensor.name in ("mean", "invstd", "invrms")
        return replace(tensor, rows=tensor.size, cols=1) if by_row else tensor
    if tensor.name not in SIDES:
        return tensor
    nhwc = shape.layout == NHWC
    rows, cols = (shape.HW, shape.C) if nhwc else (shape.C, shape.HW)
    placed = replace(tensor, planes=shape.N, rows=rows, cols=cols)
    if shape.N == 1:
        return placed
    by_pixel = tr("one plane per image, one row per pixel, one column per channel")
    note = by_pixel if nhwc else tr("one plane per image, one row per channel")
    return replace(placed, note=note, plane_name="image")


def _named(group: Group) -> Group:
    """Returns a place in global memory with the tensors of the size of x that are there."""
    if group.memory_space != "global":
        return group
    names = (name for name in group.rows[0] if name in SIDES)
    return replace(group, title=tr("global memory: {names}", names=", ".join(names)))


def _annotations(scene: Scene, shape: MapsShape | RowsShape) -> Iterator[Annotation]:
    """Yields what each y depends on: every x of its channel or row. And what each dx depends on, over the same links."""
    names = {tensor.name for tensor in scene.tensors}
    source, out = ("x", "y") if "y" in names else ("dy", "dx")
    if "var" in names:  # inference: one x each
        linked, text = np.arange(shape.elements)[:, None], tr("y depends on one x.")
    else:
        linked = np.empty((shape.elements, units(shape).shape[1]), int)
        for cells in units(shape):
            linked[cells] = cells
        of_channel = tr("Depends on every {source} of its channel, {n} numbers.", source=source, n="{0}")
        of_row = tr("Depends on every {source} of its row, {n} numbers.", source=source, n="{0}")
        text = of_channel if isinstance(shape, MapsShape) else of_row
    if linked.size <= MAX_LINKS:
        args = np.full((shape.elements, 1), linked.shape[1])
        captions = Captions((text,), np.zeros(shape.elements, int), args)
        yield Annotation(out, captions, {source: linked})
