"""Runs of the softmax kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.softmax.shape import SoftmaxShape
from tests.helpers.view_runs import ViewRun
from visuals.softmax.views import VIEWS

ROW = np.linspace(-3, 3, 40).astype(np.float32)[None]
TILES = {
    "softmax/unsafe": {"BLOCK": 8},
    "softmax/three-pass": {"BLOCK": 8},
    "softmax/online": {"BLOCK": 8},
    "softmax/warp-shuffle": {"WARPS": 1},
    "softmax/registers": {"BLOCK": 128, "PER": 4},
    "softmax/cluster": {"CLUSTER": 2, "BLOCK": 32, "PER": 4},
    "softmax/split": {"BLOCKS": 4, "BLOCK": 32, "LOADS": 1},
    "softmax/one-launch": {"BLOCKS": 4, "BLOCK": 32, "PER": 4},
}


def runs() -> Iterator[ViewRun]:
    yield from (ViewRun(rung, view, SoftmaxShape(1, 40), TILES[rung], {"x": ROW}) for rung, view in VIEWS.items())
