"""Decoding in one launch on a real GPU: any shape and tile size, several launches, presets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import ladder as attention_ladder
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.engines import cuda
from kernels.model.program import INPUT
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs
from tests.kernels.attention.test_decode_ring import RUNG, SHAPES, shapes

pytestmark = pytest.mark.gpu
PRESETS = {key: p.shape for key, p in ATTENTION_PRESETS.items() if not any(RUNG.rules(p.shape, RUNG.default_tiles))}


def run_and_verify(s: AttentionShape, tiles=None) -> None:
    """Compares every element of three launches with the float64 reference."""
    program = RUNG.build(s, RUNG.check(s, tiles))
    inputs = seeded_inputs(program.of_role(INPUT))
    ref, scale = attention_ladder.reference(s, **inputs)
    session = cuda.open(program, inputs)
    for _ in range(3):
        out = np.array(session.verify_run())
        assert agrees(out, ref, scale, RUNG.tolerance), f"{s} {tiles} {relative_error(out, ref)}"
    session.close()


@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_shapes(s):
    for tiles in RUNG.tile_sets(s):
        run_and_verify(s, tiles)


@settings(max_examples=25, deadline=None)
@given(s=shapes(), keys=st.integers(1, 3000), data=st.data())
def test_any_shape_and_tile_size(s, keys, data):
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in RUNG.tiles.items()}
    s = s.with_(M=keys)
    if not any(RUNG.rules(s, tiles)):
        run_and_verify(s, tiles)


@pytest.mark.parametrize("key", PRESETS)
def test_presets(key):
    run_and_verify(PRESETS[key])
