"""Cross-entropy as a scene, compiled from what the kernels do: one row in one block, then the other rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.i18n import decimal, tr
from kernels.ladders import find
from kernels.model.program import RuleError
from visuals.cross_entropy.views import VIEWS
from visuals.scene.compiler.program import first_blocks, scene_of_rung
from visuals.scene.scene import Scene

MAX_LOGITS = 4096  # shown


def cross_entropy_scene(
    rung: str, s: CrossEntropyShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray], note: str = ""
) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name. `note`: which part of a larger matrix they are. Raises
    RuleError if the rung cannot run the shape, or if it has too many logits to show."""
    if s.elements > MAX_LOGITS:
        raise RuleError(
            tr(
                "at most {most} logits are shown, got {count}",
                most=decimal(f"{MAX_LOGITS:,}"),
                count=decimal(f"{s.elements:,}"),
            )
        )
    view = VIEWS.get(rung)
    blocks = first_blocks(2 if view and view.group else 1)  # two blocks that share a row or have elements of several
    return scene_of_rung(rung, s, find(rung).check(s, tiles), inputs, view, f"{s} {note}", {"x": note}, blocks)
