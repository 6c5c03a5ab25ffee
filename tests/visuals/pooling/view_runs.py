"""Runs of the pooling kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from tests.helpers.view_runs import ViewRun, seeded
from visuals.pooling.views import VIEWS

SHAPES = {
    "max-pool": MaxPoolShape(1, 2, 5, 5, 3, 3, stride=2, pad=1),
    "avg-pool": AvgPoolShape(1, 2, 5, 5, 3, 3, stride=2, pad=1),
    "global-avg-pool": GlobalShape(2, 3, 4, 5),
}


def runs() -> Iterator[ViewRun]:
    for rung, view in VIEWS.items():
        yield seeded(rung, view, SHAPES[rung.partition("/")[0].removesuffix("-backward")], {})
