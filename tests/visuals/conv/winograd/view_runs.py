"""Runs of Winograd in steps in which every step of its view occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.shape import ConvShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.conv.winograd.part import NONFUSED
from visuals.conv.winograd.views import view
from visuals.scene.compiler.program import first_blocks

SHAPE = ConvShape(1, 2, 5, 5, 2, 3, 3, pad=1)


def runs() -> Iterator[ViewRun]:
    tiles = find(NONFUSED).default_tiles | {"M": 2}
    yield seeded(NONFUSED, view(SHAPE, tiles), SHAPE, tiles, blocks=first_blocks(2))
