"""Elementwise layers as scenes, compiled from what the kernels did. A backward scene has the same tensors at the same places as the
forward scene, and its arrows run the other way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels.elementwise import ladder
from kernels.elementwise.shape import (
    BiasBackwardShape,
    BiasShape,
    GeluBackwardShape,
    MapsShape,
    ReluBackwardShape,
    ResidualBackwardShape,
    ResidualShape,
)
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from visuals.elementwise.views import view_of
from visuals.scene.compiler.program import every_block, first_blocks, scene_of_rung
from visuals.scene.inputs import Given, rounded_inputs
from visuals.scene.parts import Annotation, Captions
from visuals.scene.scene import Scene

MAX_ELEMENTS = 2048
ADDED = mark("The sum of the lit cells: all elements of channel {0}.")


def elementwise_scene(
    rung: str, s: MapsShape, tiles: Mapping[str, int], seed: int = 0, given: Given | None = None
) -> Scene:
    """Returns the scene of one of our rungs at a shape, at seeded inputs or at those of `given` (as_forward). RuleError above
    MAX_ELEMENTS elements. Of blocks that add up the first is shown in full."""
    if s.elements > MAX_ELEMENTS:
        raise RuleError(
            tr(
                "at most {most} elements are shown, {shape} has {count}",
                most=decimal(f"{MAX_ELEMENTS:,}"),
                shape=s,
                count=decimal(f"{s.elements:,}"),
            )
        )
    found = find(rung)
    sizes = found.check(s, dict(tiles))
    program = found.build(s, sizes)
    view, inputs = view_of(program, s), rounded_inputs(ladder_of(rung), s, program, seed, 0)
    blocks = every_block if view.group else first_blocks(1)
    key = f"{s} {given.__name__ if given else seed}"
    scene = scene_of_rung(rung, s, sizes, given(s, inputs) if given else inputs, view, key, blocks=blocks)
    return replace(scene, annotations=(_added(s),)) if isinstance(s, BiasBackwardShape) else scene


def as_forward(s: MapsShape, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the inputs of a backward pass with what the forward pass keeps, and dy last first. Both are of seed 0.

    The first seeded numbers are those of x in the forward pass. Other passes keep their inputs."""
    if isinstance(s, ReluBackwardShape):
        dy = inputs["dy"].ravel()[::-1].reshape(s.maps)
        return inputs | {"dy": dy} | ladder.kept_of(s, {"dy": dy})  # it takes x to be dy, last first
    if isinstance(s, GeluBackwardShape):
        return inputs | {"dy": inputs["dy"].ravel()[::-1].reshape(s.maps), "x": inputs["dy"]}
    if isinstance(s, ResidualBackwardShape):
        shape, rung = ResidualShape(**s.params()), ladder.RESIDUAL.rungs[0]
        seeded = rounded_inputs(ladder.RESIDUAL, shape, rung.build(shape, rung.default_tiles), 0, 0)
        y = np.maximum(seeded["a"] + seeded["b"], np.float32(0))
        return inputs | {"dy": inputs["dy"].ravel()[::-1].reshape(s.maps), "y": y}
    return inputs


def channels(s: BiasShape) -> np.ndarray:
    """Returns int64 [elements]: the channel of each element, in the order of memory."""
    return np.arange(s.elements) // s.inner % s.C


def _added(s: BiasShape) -> Annotation:
    """Returns the note on a bias gradient, with the elements of each channel."""
    per_channel = np.stack([np.flatnonzero(channels(s) == c) for c in range(s.C)])
    return Annotation("db", Captions((tr(ADDED),), np.zeros(s.C, int), np.arange(s.C)[:, None]), {"dy": per_channel})
