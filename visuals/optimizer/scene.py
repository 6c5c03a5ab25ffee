"""An optimiser's step as a scene, compiled from what the kernel did: which block of which launch updates which elements of which tensor."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import decimal, tr
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.optimizer.shape import OptimizerShape
from visuals.optimizer.views import view_of
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.inputs import rounded_inputs
from visuals.scene.scene import Scene

MAX_ELEMENTS, MAX_TENSORS = 1024, 12
DECIMALS = 2  # of the numbers shown


def optimizer_scene(rung: str, s: OptimizerShape, tiles: Mapping[str, int], seed: int = 0) -> Scene:
    """Returns the scene of one of our rungs at a list of tensors. RuleError above MAX_ELEMENTS elements or MAX_TENSORS."""
    if s.elements > MAX_ELEMENTS or len(s.counts) > MAX_TENSORS:
        raise RuleError(
            tr(
                "at most {most} elements of {tensors} tensors are shown, there are {count} of {number}",
                most=decimal(f"{MAX_ELEMENTS:,}"),
                tensors=MAX_TENSORS,
                count=decimal(f"{s.elements:,}"),
                number=len(s.counts),
            )
        )
    found, ladder = find(rung), ladder_of(rung)
    sizes = found.check(s, dict(tiles))
    program = found.build(s, sizes)
    inputs = rounded_inputs(ladder, s, program, seed, DECIMALS)
    return scene_of_rung(rung, s, sizes, inputs, view_of(program, s, ladder.name), f"{s.params()} {seed}")
