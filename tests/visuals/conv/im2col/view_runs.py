"""Runs of im2col in which every step of its views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.shape import ConvShape
from tests.helpers.view_runs import ViewRun, seeded
from visuals.conv.im2col.scene import RUNGS, placed
from visuals.conv.im2col.views import VIEWS

SHAPE = ConvShape(1, 2, 5, 5, 3, 3, 3, pad=1)


def runs() -> Iterator[ViewRun]:
    for order, view in VIEWS.items():
        yield seeded(f"{RUNGS.get(order, 'conv/im2col-gemm')} {order}", placed(view, SHAPE, 8), SHAPE, {"TILE": 8})
