"""Runs of the kernels of a fully connected layer in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.ladders import find, ladder_of
from kernels.linear.ladder import SMALL
from kernels.runner import inputs_of
from tests.helpers.view_runs import ViewRun
from visuals.linear.scene import SCENES, followed
from visuals.linear.views import view

LINEAR_TILES = SMALL | {"SPLITS": 2, "BLOCK": 8}
# A sum of 40 terms or of 20, of a whole block or of less: tiles that are inside the matrices, before the loop and in it, and others.
LINEAR_SIZES = (
    (32, 32, 40),
    (32, 40, 32),
    (40, 32, 32),
    (3, 4, 36),
    (3, 36, 4),
    (36, 3, 4),
    (36, 36, 36),
    (32, 32, 36),
)


def _linear(rung: str):
    ladder, found = ladder_of(rung), find(rung)
    tiles = {name: size for name, size in LINEAR_TILES.items() if name in found.tiles}
    for size in LINEAR_SIZES if "BM" in tiles else LINEAR_SIZES[:1]:
        shape = ladder.shape(*size)
        yield shape, tiles, inputs_of(ladder, shape, found.build(shape, tiles))


def runs() -> Iterator[ViewRun]:
    for rung in SCENES:
        of_rung = list(_linear(rung))
        yield from (ViewRun(rung, view(rung, of_rung[0][1]), *run, followed) for run in of_rung)
