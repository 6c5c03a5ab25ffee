"""Runs of the norms' kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.ladders import ladder_of
from tests.helpers.view_runs import ViewRun, seeded
from visuals.norm.scene import view_of
from visuals.norm.views import VIEWS


def runs() -> Iterator[ViewRun]:
    for rung in VIEWS:
        extents = (2, 3, 8, 24, "nhwc" if "nhwc" in rung else "nchw") if rung.startswith("batch") else (20, 44)
        tiles = {"BLOCK": 32, "BLOCKS": 12, "WARPS": 8 if "one-sum" in rung else 1, "PER": 4}
        run = seeded(rung, VIEWS[rung], ladder_of(rung).shape(*extents), tiles)
        yield ViewRun(rung, view_of(rung, run.shape, run.inputs), run.shape, run.tiles, run.inputs)
