"""Runs of the cross-entropy kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.ladders import ladder_of
from tests.helpers.view_runs import ViewRun, seeded
from visuals.cross_entropy.views import VIEWS

TILES = {"BLOCK": 32, "LOADS": 1, "SPLITS": 2}


def runs() -> Iterator[ViewRun]:
    yield from (seeded(rung, view, ladder_of(rung).shape(4, 131), TILES) for rung, view in VIEWS.items())
