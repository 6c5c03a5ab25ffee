"""Softmax as a scene: one row in one kernel, compiled from what its threads did. Infinities and NaN are shown."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from kernels.i18n import trn
from kernels.softmax.shape import SoftmaxShape
from visuals.scene.compiler.program import scene_of_rung
from visuals.scene.scene import Scene
from visuals.softmax.views import VIEWS

MAX_COLUMNS = 1024  # shown of a row
MAX_THREADS = 1024  # shown of a row in several blocks


def visible_columns(N: int) -> int:
    """Returns how many columns of a row are shown."""
    return min(N, MAX_COLUMNS)


def softmax_scene(rung: str, tiles: Mapping[str, int], row: np.ndarray, row_note: str = "") -> Scene:
    """Returns the scene of one of our rungs at a row, float32 [n]; NaN and infinities are allowed. `row_note`: which row
    this is. Raises RuleError if the rung cannot run the row."""
    x = np.ascontiguousarray(row, np.float32)
    digest = blake2b(x.tobytes(), digest_size=6).hexdigest()
    note = row_note or trn("{n} number", "{n} numbers", x.size)
    return scene_of_rung(
        rung,
        SoftmaxShape(1, x.size),
        tiles,
        {"x": x[None]},
        VIEWS.get(rung),
        f"{x.size}:{digest} {row_note}",
        {"x": note},
    )
