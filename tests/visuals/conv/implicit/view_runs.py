"""Runs of implicit GEMM in which every step of its view occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.shape import ConvShape
from tests.helpers.view_runs import ViewRun, seeded
from visuals.conv.implicit.plan import RUNGS
from visuals.conv.implicit.views import view
from visuals.scene.compiler.program import first_blocks

SHAPES = ConvShape(1, 8, 4, 4, 3, 3, 3, pad=1), ConvShape(1, 8, 5, 5, 3, 3, 3)
TILES = {"BM": 32, "BN": 32, "BK": 16, "TM": 4, "TN": 4, "STAGES": 4}


def runs() -> Iterator[ViewRun]:
    for rung in RUNGS:
        for shape in SHAPES:
            yield seeded(rung, view(shape, TILES), shape, TILES, blocks=first_blocks(1))
