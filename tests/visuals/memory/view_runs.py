"""Runs of the kernels of threads and memory in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, StrideShape
from tests.helpers.view_runs import ViewRun, seeded
from visuals.memory.scene import view_of
from visuals.memory.views import VIEWS

SHAPES = {
    "add": AddShape(12, 20),
    "stride": StrideShape(32, 2),
    "banks": BanksShape(32, 3),
    "branch": BranchShape(64, 2),
    "layout": LayoutShape(2, 3, 2, 4),
}


def runs() -> Iterator[ViewRun]:
    for rung in VIEWS:
        shape, tiles = SHAPES[rung.partition("/")[0]], {"BLOCK": 64, "TILE": 8}
        yield seeded(rung, view_of(rung, shape, tiles), shape, tiles)
