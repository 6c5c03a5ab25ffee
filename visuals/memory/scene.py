"""Scenes of threads and memory, compiled from what the kernels did: who computes what, and what an access costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels.i18n import tr
from kernels.ladders import find
from kernels.memory.shape import TILE_COLS, AddShape, BanksShape, LayoutShape, MemoryShape, StrideShape
from kernels.model.launch import ceil
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs
from visuals.memory.views import VIEWS
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.compiler.view import Shown, View, box
from visuals.scene.parts import Reading
from visuals.scene.requests import BANKS
from visuals.scene.scene import Scene

BLOCK = {"BLOCK": 64}  # two warps, of the rungs whose page has no field for it


def memory_scene(rung: str, shape: MemoryShape, tiles: Mapping[str, int] = BLOCK) -> Scene:
    """Returns the scene of a rung at a shape."""
    tiles = find(rung).check(shape, tiles)
    notes = dict.fromkeys("ABC", f"{shape.M} × {shape.N}") if isinstance(shape, AddShape) else {}
    view = view_of(rung, shape, tiles)
    scene = scene_of_rung(rung, shape, tiles, inputs(rung, shape, tiles), view, str(shape), notes)
    if not isinstance(shape, LayoutShape):
        return scene
    of = "N = {N}, C = {C}, H = {H}, W = {W}".format(**shape.params())
    tensors = (replace(tensor, note=of) if tensor.name == "x" else tensor for tensor in scene.tensors)
    texts = (tr("distance from the previous address, NCHW"), tr("distance from the previous address, NHWC"))
    steps = [np.diff(reading.values, prepend=reading.values[0]) for reading in scene.readings]
    distances = (Reading(text, values) for text, values in zip(texts, steps, strict=True))
    return replace(scene, tensors=tuple(tensors), readings=(*scene.readings, *distances))


def inputs(rung: str, shape: MemoryShape, tiles: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Returns the inputs as small whole numbers, which a cell can print."""
    seeded = seeded_inputs(find(rung).build(shape, dict(tiles)).of_role(INPUT))
    return {name: np.round(2 * values) for name, values in seeded.items()}


def view_of(rung: str, shape: MemoryShape, tiles: Mapping[str, int]) -> View:
    """Returns the view of a rung with the extents that a shape has."""
    view = VIEWS[rung]
    match shape:
        case AddShape():
            return _of_add(view, rung, shape, tiles)
        case StrideShape():
            return _with(view, x={"shape": (shape.stride, shape.n)})
        case BanksShape():
            words = (31 * shape.stride // TILE_COLS + 1) * (TILE_COLS + rung.endswith("padded"))
            return _with(view, m=box(0, ceil(words, BANKS), BANKS, BANKS))
        case LayoutShape():
            N, *image = shape.params().values()
            of_image = {"shape": (N, int(np.prod(image)))}
            return _with(view, a=of_image, b=of_image)
    return view


def _of_add(view: View, rung: str, shape: AddShape, tiles: Mapping[str, int]) -> View:
    across = shape.M if rung.endswith("transposed") else shape.N
    names = {"size": str(tiles.get("BLOCK", 0)), "across": str(ceil(across, tiles.get("TILE", across)))}
    of_c = {"place": (f"C.at // {shape.N}", f"C.at % {shape.N}"), "part": (None, range(shape.N))}
    return replace(_with(view, of_block=of_c, of_warp=of_c, of_lane=of_c), names={**view.names, **names})


def _with(view: View, **fields: Mapping[str, object]) -> View:
    """Returns a view with other fields of some tensors, by name."""
    tensors: list[Shown] = [replace(shown, **fields.get(shown.name, {})) for shown in view.tensors]
    return replace(view, tensors=tuple(tensors))
