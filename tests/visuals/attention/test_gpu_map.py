"""The bytes on the GPU map of flash attention: those that the emulator counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.engines import emulator
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs
from visuals.attention.gpu_map import RUNGS, flash_map, predicted_loads, predicted_shared
from visuals.attention.plan import plan_of
from visuals.gpu_map.scene import map_scene

TILES = {"attention/flash": {"Br": 16, "Bc": 16}, "attention/flash-registers": {"Br": 32, "Bc": 8}}


def tiles_of(rung: str) -> dict[str, int]:
    return find(rung).default_tiles | TILES.get(rung, {})


def shape_of(rung: str, heads: int, N: int, causal: int) -> AttentionShape:
    mma = rung == "attention/flash-mma"
    return AttentionShape(1, heads, N, 16, causal=causal, dtype="fp16" if mma else "fp32")


@pytest.mark.parametrize("rung", RUNGS)
@given(st.integers(1, 2), st.integers(1, 70), st.integers(0, 1))
@settings(max_examples=3)
def test_predicted_bytes_are_those_that_the_emulator_counts(rung, heads, N, causal):
    s, tiles = shape_of(rung, heads, N, causal), tiles_of(rung)
    program = find(rung).build(s, tiles)
    session = emulator.open(program, seeded_inputs(program.of_role(INPUT)))
    session.verify_run()
    total = session.counters.total
    plan = plan_of(s, rung, tiles)
    assert predicted_loads(s, plan, tiles) == 32 * total["sectors_ld"]
    assert total["bytes_st"] == s.heads * s.N * s.d * plan.word


@pytest.mark.parametrize(("rung", "causal"), [(RUNGS[0], 1), (RUNGS[1], 0), (RUNGS[1], 1)])
def test_threads_load_the_predicted_bytes_from_shared_memory(rung, causal):
    s, tiles = shape_of(rung, 1, 40, causal), tiles_of(rung)
    program = find(rung).build(s, tiles)
    names = [b.name for b in program.buffers]
    loaded = 0
    for block in range(int(np.prod(program.steps[0].grid))):
        trace, _ = emulator.trace_launch(program, 0, seeded_inputs(program.of_role(INPUT)), block)
        r = trace.requests
        shared = ~np.isin(np.array(trace.buffers)[r.buffer], names)
        lanes = np.array([int(mask).bit_count() for mask in r.mask])
        loaded += int((lanes * r.width)[shared & ~r.write.astype(bool)].sum())
    assert predicted_shared(s, plan_of(s, rung, tiles)) == loaded


def test_a_real_shape_has_its_blocks_and_predicted_bytes():
    s = ATTENTION_PRESETS["attention-2048"].shape
    m = flash_map(s, RUNGS[0], find(RUNGS[0]).default_tiles)
    assert m.kernels[0].blocks.count == 64 * 64
    assert m.total.read[1].kind == "predicted"
    assert m.total.read[0].bytes == 3 * 4 * s.heads * s.N * s.d
    scene = map_scene(m)
    assert "Block 0 first loads its tile of Q" in " ".join(scene.caption(t) for t in range(scene.steps))


def test_a_kernel_that_is_not_compiled_ahead_has_no_map():
    s = ATTENTION_PRESETS["attention-2048"].shape
    assert flash_map(s, RUNGS[0], {"Br": 4, "Bc": 8}) is None
