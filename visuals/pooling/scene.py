"""Pooling as a scene: forward and backward on the same stage, over the same links, compiled from what the threads did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import Tiles
from kernels.pooling import reference
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, PoolShape
from visuals.pooling.links import Links, kept, windows
from visuals.pooling.views import PIXEL, VIEWS, WINDOW
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.parts import Annotation, Captions, Sum
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene


def pool_scene(rung: str, s: PoolShape | GlobalShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name, float32 (index: int32), finite. RuleError if the rung
    cannot run the shape."""
    found, view = find(rung), VIEWS.get(rung)
    tiles = found.check(s, tiles)
    if view and isinstance(s, GlobalShape) and view.threads:
        view = replace(view, threads=min(view.threads, s.planes, tiles.get("BLOCK", s.planes)))
    if view and isinstance(s, PoolShape):
        of_plane = {WINDOW: s.P * s.Q, PIXEL: s.H * s.W}
        view = replace(view, alone=min(view.alone, of_plane.get(view.step_name, view.alone)))
    tensors = {b.name: _of_planes(b.shape, s, b.name) for b in found.build(s, tiles).buffers}
    digest = blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in inputs.values()), digest_size=6).hexdigest()
    parts: dict[str, Any] = {"sums": (_sum(rung, s, inputs),)}
    if rung.endswith("/scatter") and isinstance(s, PoolShape):
        parts = {"annotations": (_outputs_of_pixels(rung, s, inputs),)}
    return scene_of_rung(rung, s, tiles, inputs, view, f"{s} {digest}", tensors=tensors, **parts)


def _of_planes(shape: tuple[int, ...], s: PoolShape | GlobalShape, name: str) -> dict[str, Any]:
    """Returns what a tensor says of its planes. Only the padding of an average is zeros, so only it is drawn."""
    planes, rows, cols = (1, *shape) if len(shape) == 2 else (shape[0] * shape[1], *shape[2:])
    note = part_note(*((0, size, size) for size in (planes, rows, cols)), plane="plane")
    pad = _padding(s) if name == "x" and isinstance(s, AvgPoolShape) else (0, 0, 0, 0)
    return {"note": note, "plane_name": "plane" if planes > 1 else "", "pad": pad}


def _padding(s: PoolShape) -> tuple[int, int, int, int]:
    """Returns the padding that is drawn round x: top, left, bottom, right, as far as the windows reach."""
    below = (s.P - 1) * s.u + s.dilation_h * (s.R - 1) + 1 - s.pad_h - s.H
    right = (s.Q - 1) * s.v + s.dilation_w * (s.S - 1) + 1 - s.pad_w - s.W
    return s.pad_h, s.pad_w, max(0, below), max(0, right)


# -- links -------------------------------------------------------------------------------------------
def _sum(rung: str, s, inputs: Mapping[str, np.ndarray]) -> Sum:
    """Returns what each result is the sum of: the links, forward or from the other end."""
    links, factors = links_of(rung, s, inputs)
    if "x" in inputs:
        owner = np.repeat(np.arange(len(links.start) - 1), links.counts)
        return Sum("y", "x", links.start, links.cells, factors[owner])
    back = links.reversed(s.pixels)
    return Sum("dx", "dy", back.start, back.cells, factors[back.cells])


def _outputs_of_pixels(rung: str, s: PoolShape, inputs: Mapping[str, np.ndarray]) -> Annotation:
    """Returns notes on dx while it grows: which outputs add to each pixel."""
    back = links_of(rung, s, inputs)[0].reversed(s.pixels)
    most = max(1, int(back.counts.max()))
    cells = np.full((s.pixels, most), -1)
    for pixel in range(s.pixels):
        cells[pixel, : back.counts[pixel]] = back.of(pixel)
    texts = (
        tr("No output adds to this pixel."),
        tr("One output adds to this pixel."),
        tr("Outputs that add to this pixel: {0}."),
    )
    captions = Captions(texts, np.minimum(back.counts, 2), back.counts[:, None])
    return Annotation("dx", captions, {"dy": cells})


def links_of(rung: str, s, inputs: Mapping[str, np.ndarray]) -> tuple[Links, np.ndarray]:
    """Returns (the pixels that each output reads or took, the factor of each output), the same forward and backward."""
    if isinstance(s, GlobalShape):
        links = Links(np.arange(s.planes + 1) * s.area, np.arange(s.pixels))
        return links, np.full(s.planes, 1 / s.area, np.float32)
    if isinstance(s, MaxPoolShape):
        index = inputs["index"] if "index" in inputs else reference.maxima(s, inputs["x"])[1]
        return kept(s, index), np.ones(s.outputs, np.float32)
    assert isinstance(s, AvgPoolShape)
    return windows(s), (1 / np.tile(reference.divisors(s).ravel(), s.planes)).astype(np.float32)
