"""Runs of the FFT's kernels in which every step of their views occurs (tests.visuals.scene.compiler.test_views)."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv import fft, fft_tiled
from kernels.conv.shape import ConvShape
from tests.helpers.view_runs import ViewRun, seeded
from visuals.conv.fft.scene import IN_TILES, WHOLE, watched_blocks
from visuals.conv.fft.views import tiled_view, whole_view

SHAPE = ConvShape(1, 2, 9, 9, 1, 3, 3, pad=1)


def runs() -> Iterator[ViewRun]:
    whole = whole_view(SHAPE, fft.cut(SHAPE, {"FFT_TILE": 0}))
    yield seeded(WHOLE, whole, SHAPE, {}, blocks=watched_blocks)
    cut = fft_tiled.cut(SHAPE, {"FFT_TILE": 8})
    yield seeded(IN_TILES, tiled_view(SHAPE, cut), SHAPE, {"FFT_TILE": 8}, blocks=watched_blocks)
