"""Fused FP16 convolutions on a GPU: presets, ragged chains, every set of tile sizes, PyTorch eager and compiled."""

from __future__ import annotations

import pytest

from kernels.fusion.half import hopper
from kernels.fusion.half.ladder import LADDER
from kernels.fusion.half.shape import HalfChainShape
from kernels.records import availability
from kernels.runner import compare, run

pytestmark = pytest.mark.gpu
RUNG = hopper.RUNG


def available(shape: HalfChainShape) -> list[str]:
    return [r.name for r in availability.supported_rungs(LADDER, "cuda", shape)]


@pytest.mark.parametrize("key", LADDER.presets)
def test_every_preset(key):
    """compare() verifies each element, PyTorch's too."""
    shape = LADDER.presets[key].shape
    results = compare(available(shape), shape, engine="cuda", measure=False)
    assert [r.rung for r in results] == available(shape)


@pytest.mark.parametrize("blocks", ["", " bias add relu add", " bn relu", " relu add bias bn:eps=0.1"])
def test_every_set_of_tile_sizes_at_a_ragged_chain(blocks):
    shape = HalfChainShape(3, 136, 19, 17, f"conv:K=200:R=3:stride=2{blocks}")
    if RUNG.name in available(shape):
        for tiles in RUNG.tile_sets(shape):
            run(RUNG.name, shape, engine="cuda", tiles=tiles, measure=False)
