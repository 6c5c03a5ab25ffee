"""A fully connected layer and its gradients as scenes, compiled from what the kernels did: one block of a product, tile by tile, on the
tensors of the layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.i18n import tr
from kernels.ladders import find
from kernels.linear.ladder import OURS
from kernels.linear.shape import LinearShape
from kernels.model.program import Launch, RuleError
from visuals.linear.views import view
from visuals.scene.compiler.program import every_block, scene_of_rung
from visuals.scene.scene import Scene

MAX_EXTENT = 48  # of M, N and K
SCENES = tuple(rung.name for rungs in OURS.values() for rung in rungs)


def linear_scene(rung: str, s: LinearShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of block (0, 0) of one of our rungs at its inputs by name. Raises RuleError if the rung cannot run the
    shape, or if it is too large to show."""
    if max(s.M, s.N, s.K) > MAX_EXTENT:
        raise RuleError(tr("M, N and K up to {most} are shown, got {shape}", most=MAX_EXTENT, shape=s))
    sizes = find(rung).check(s, dict(tiles))
    return scene_of_rung(rung, s, sizes, inputs, view(rung, sizes), str(s), blocks=followed)


def followed(launch: Launch) -> tuple[int, ...]:
    """Returns the blocks of a launch that are followed: of a product the first one, of sums of parts all."""
    return every_block(launch) if launch.entry == "add_parts" else (0,)
