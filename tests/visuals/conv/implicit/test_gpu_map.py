"""The bytes on the GPU map of implicit GEMM: those that the emulator counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs
from visuals.conv.implicit.gpu_map import implicit_map, predicted_loads
from visuals.conv.implicit.plan import RUNGS, Plan
from visuals.gpu_map.scene import map_scene


def counted(rung: str, s: ConvShape, tiles: dict[str, int]) -> dict[str, int]:
    program = find(rung).build(s, tiles)
    session = emulator.open(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    return session.counters.total


@pytest.mark.parametrize("rung", RUNGS)
@given(
    st.integers(1, 2),
    st.integers(2, 9),
    st.integers(3, 9),
    st.integers(3, 9),
    st.integers(1, 66),
    st.integers(1, 2),
    st.integers(0, 1),
    st.booleans(),
)
@settings(max_examples=2)
def test_predicted_bytes_are_those_that_the_emulator_counts(rung, n, c, h, w, k, u, pad, flip):
    s = ConvShape(
        n, c, h, w, k, 3, 3, u=u, v=1, pad_h=pad, pad_w=pad, mode="convolution" if flip else "cross-correlation"
    )
    tiles = find(rung).default_tiles
    total = counted(rung, s, tiles)
    assert predicted_loads(Plan(s, rung, tiles)) == 32 * total["sectors_ld"]
    assert total["bytes_st"] == 4 * s.N * s.K * s.P * s.Q


def test_threads_load_the_predicted_bytes_from_shared_memory():
    rung, s = RUNGS[1], CONV_PRESETS["one-tile"].shape
    tiles = find(rung).default_tiles
    program = find(rung).build(s, tiles)
    trace, _ = emulator.trace_launch(program, 0, seeded_inputs(program.of_role(INPUT)))
    r = trace.requests
    shared = ~np.isin(np.array(trace.buffers)[r.buffer], [b.name for b in program.buffers])
    lanes = np.array([int(mask).bit_count() for mask in r.mask])
    m = implicit_map(s, rung, tiles, count=False)
    loaded = (lanes * r.width)[shared & ~r.write.astype(bool)].sum()
    assert m.total.read[2].bytes == loaded * m.kernels[0].blocks.count
    assert m.kernels[0].tile.read[2].bytes * m.kernels[0].tiles == loaded


def test_a_tile_s_bytes_add_up():
    """Of one block, without padding: each tile of whole channels loads as much as the first."""
    s = ConvShape(1, 32, 8, 8, 64, 1, 1)
    m = implicit_map(s, RUNGS[1], find(RUNGS[1]).default_tiles)
    assert m.kernels[0].blocks.count == 1
    assert m.kernels[0].tiles * m.kernels[0].tile.read[1].bytes == m.total.read[1].bytes
    assert m.total.read[1].kind == "counted"


def test_a_small_shape_is_counted_and_a_real_one_predicted():
    small = implicit_map(CONV_PRESETS["one-tile"].shape, RUNGS[1], find(RUNGS[1]).default_tiles)
    assert small.total.read[1].kind == "counted"
    s = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
    real = implicit_map(s, RUNGS[1], find(RUNGS[1]).default_tiles)
    assert real.total.read[1].kind == "predicted"
    scene = map_scene(real)
    assert "data matrix" in [t.title for t in scene.tensors]
    assert np.isnan(scene.cells("D")).all(), "it is never stored"


def test_what_a_bias_adds_is_not_predicted():
    s = CONV_PRESETS["one-tile"].shape.with_(bias=1)
    assert predicted_loads(Plan(s, RUNGS[1], find(RUNGS[1]).default_tiles)) is None
