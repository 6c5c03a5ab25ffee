"""An embedding and its gradient as scenes, compiled from what the kernels did: rows of a table that are copied, and rows that are added
back over the same links."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.embedding.shape import EmbeddingShape
from kernels.i18n import decimal, tr
from kernels.model.program import RuleError
from visuals.embedding.views import VIEWS
from visuals.scene.compiler.program import every_block, first_blocks, scene_of_rung
from visuals.scene.scene import Scene

MAX_CELLS = 2048  # of the table and of y, shown
BLOCKS = 8  # of a launch that are followed
ATOMICS = "embedding-backward/atomics"  # its blocks add to the same elements: all are followed


def embedding_scene(rung: str, s: EmbeddingShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name. Raises RuleError if the rung cannot run the shape, or if it
    is too large to show."""
    if max(s.M, s.V) * s.d > MAX_CELLS or max(s.M, s.V) > MAX_CELLS // 4:
        raise RuleError(
            tr("at most {most} elements of a tensor are shown, got {shape}", most=decimal(f"{MAX_CELLS:,}"), shape=s)
        )
    tokens = ",".join(map(str, np.asarray(inputs["tokens"])[:16]))  # they decide the steps
    blocks = every_block if rung == ATOMICS else first_blocks(BLOCKS)
    return scene_of_rung(rung, s, tiles, inputs, VIEWS[rung], f"{s} {tokens}", blocks=blocks)
