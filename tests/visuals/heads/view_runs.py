"""Runs of the kernels of heads in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.heads.shape import HeadsShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.heads.views import VIEWS

SHAPE = HeadsShape(1, 3, 2, 4, 3)


def runs() -> Iterator[ViewRun]:
    for rung, view in VIEWS.items():
        yield seeded(rung, view(SHAPE, rung.partition("/")[0], find(rung).default_tiles), SHAPE, {})
