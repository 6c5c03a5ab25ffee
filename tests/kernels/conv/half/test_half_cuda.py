"""FP16 convolution on a GPU: presets, any shape, every set of tile sizes, cuDNN."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kernels.conv.half.ladder import LADDER
from kernels.conv.half.shape import HalfShape
from kernels.records import availability
from kernels.runner import compare, run
from tests.helpers.shapes import half_shapes

pytestmark = pytest.mark.gpu
OURS = [rung for rung in LADDER.rungs if not rung.library]


def available(shape: HalfShape) -> list[str]:
    return [r.name for r in availability.supported_rungs(LADDER, "cuda", shape)]


@pytest.mark.parametrize("key", LADDER.presets)
def test_every_preset(key):
    """compare() verifies each element, cuDNN's too."""
    shape = LADDER.presets[key].shape
    results = compare(available(shape), shape, engine="cuda", measure=False)
    assert [r.rung for r in results] == available(shape)


@settings(max_examples=40)
@given(shape=half_shapes(max_extent=5))
def test_every_rung_agrees_at_any_shape(shape):
    compare(available(shape), shape, engine="cuda", measure=False)


@pytest.mark.parametrize("rung", OURS, ids=lambda rung: rung.name)
def test_every_set_of_tile_sizes_at_a_ragged_shape(rung):
    shape = HalfShape(3, 136, 19, 17, 200, 3, 2, pad=(2, 1), dilation=(1, 2), mode="convolution")
    if rung.name in available(shape):
        for tiles in rung.tile_sets(shape):
            run(rung.name, shape, engine="cuda", tiles=tiles, measure=False)
