"""Runs of the optimisers' kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.optimizer.ladder import LADDERS
from tests.helpers.view_runs import ViewRun
from visuals.optimizer.views import view_of
from visuals.scene.inputs import rounded_inputs


def runs() -> Iterator[ViewRun]:
    for ladder in LADDERS:
        for rung in (rung for rung in ladder.rungs if not rung.library):
            shape = ladder.shape("5 3 12 200")  # of the first three the second warp of 64 threads is idle
            tiles = rung.check(shape, {"BLOCK": 64})
            program = rung.build(shape, tiles)
            inputs = rounded_inputs(ladder, shape, program, 0, 2)
            yield ViewRun(rung.name, view_of(program, shape, ladder.name), shape, tiles, inputs)
