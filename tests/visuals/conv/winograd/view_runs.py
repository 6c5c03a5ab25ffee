"""Runs of Winograd in which every step of its views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.shape import ConvShape
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun, seeded
from visuals.conv.winograd.fused_views import fused_view
from visuals.conv.winograd.nested_views import nested_view
from visuals.conv.winograd.part import NONFUSED
from visuals.conv.winograd.views import view
from visuals.scene.compiler.program import first_blocks

LARGER = ConvShape(1, 2, 7, 7, 2, 3, 3, pad=1)
SHAPE = ConvShape(1, 2, 5, 5, 2, 3, 3, pad=1)


def runs() -> Iterator[ViewRun]:
    tiles = find(NONFUSED).default_tiles | {"M": 2}
    yield seeded(NONFUSED, view(SHAPE, tiles), SHAPE, tiles, blocks=first_blocks(2))
    one = ConvShape(1, 1, 4, 4, 1, 3, 3)
    yield seeded(f"{NONFUSED} one tile", nested_view(2), one, tiles, blocks=first_blocks(1))
    for m in (2, 4):
        rung = f"conv/winograd-{m}x{m}"
        yield seeded(rung, fused_view(LARGER, m, find(rung).default_tiles), LARGER, {})
