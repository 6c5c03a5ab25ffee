"""The fusion ladder on a real GPU: presets and random chains on every rung, memory, parts, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.implicit import IMPLICIT_SETS
from kernels.engines import cuda
from kernels.fusion import ladder as fusion_ladder
from kernels.fusion import library as fusion_library
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import ChainShape
from kernels.machine.timing import Budget
from kernels.model.program import INPUT
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs
from tests.helpers.needs import needs_torch
from tests.helpers.shapes import chain_shapes

pytestmark = pytest.mark.gpu
(TORCH,) = fusion_library.RUNGS
POOL_GRAIN = 512  # bytes: CuPy's pool allocates multiples of this


def verified_session(rung, s: ChainShape, tiles=None):
    """Returns a session whose output agrees with the float64 reference."""
    program = rung.build(s, rung.check(s, tiles))
    inputs = seeded_inputs(program.of_role(INPUT))
    session = cuda.open(program, inputs)
    out = np.array(session.verify_run())
    ref, scale = fusion_ladder.LADDER.reference(s, **inputs)
    scale = rung.scale(s, tiles or {}, inputs) if rung.scale else scale
    assert agrees(out, ref, scale, rung.tolerance), f"{rung.name} {s} {tiles} {relative_error(out, ref)}"
    return session


def supported(s: ChainShape):
    return [rung for rung in fusion_ladder.RUNGS if availability.runs(rung, s, rung.default_tiles)]


@settings(max_examples=50)
@given(chain_shapes(max_extent=40, max_blocks=8), st.sampled_from([128, 256, 512]), st.sampled_from([1, 2, 4]))
def test_every_rung_agrees_for_random_chains(s, block, fours):
    for rung in supported(s):
        tiles = {"BLOCK": block, "FOURS": fours} if "BLOCK" in rung.tiles else {}
        verified_session(rung, s, tiles).close()


@pytest.mark.parametrize("blocks", ["bias bn relu add", "relu maxpool:2", ""])
@pytest.mark.parametrize("tiles", IMPLICIT_SETS, ids=str)
def test_a_product_agrees_at_sets_of_tile_sizes(blocks, tiles):
    rung = fusion_ladder.LADDER.rung("fusion/implicit-gemm")
    for s in (
        ChainShape(2, 35, 23, 21, f"conv:K=130:R=3:stride=2:pad=2 {blocks}"),
        ChainShape(3, 70, 8, 8, f"conv:K=66:R=1 {blocks}"),
    ):
        verified_session(rung, s, tiles).close()


@pytest.mark.parametrize("key", FUSION_PRESETS)
def test_every_preset(key):
    s = FUSION_PRESETS[key].shape
    for rung in supported(s):
        verified_session(rung, s).close()


@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_every_launch_is_timed_by_name(mode):
    s = ChainShape(2, 8, 32, 32, "conv:K=8:R=3 bias bn relu bias relu maxpool:2")
    for rung in supported(s):
        session = verified_session(rung, s)
        (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
        session.close()
        plan = fusion_ladder.PLANS[rung.name](s, rung.default_tiles)
        assert [name for name, _ in timing.parts_ms] == [part.launch.name for part in plan.parts]
        assert min(timing.samples_ms) > 0 and len(dict(timing.parts_ms)) == len(plan.parts)


@pytest.mark.parametrize("rung", fusion_ladder.RUNGS, ids=lambda r: r.name)
def test_memory_equals_prediction(rung):
    s = ChainShape(8, 64, 56, 56, "conv:K=64:R=3 bias bn relu add")
    session = verified_session(rung, s)
    predicted = rung.cost(s, session.program)
    assert session.memory.peak == pytest.approx(session.program.nbytes(), rel=0.02, abs=16 * POOL_GRAIN)
    assert session.memory.workspace == pytest.approx(predicted.workspace_bytes, rel=0.02, abs=8 * POOL_GRAIN)
    session.close()


def test_no_kernel_spills():
    for preset in FUSION_PRESETS.values():
        for rung in supported(preset.shape):
            for step in rung.build(preset.shape, rung.default_tiles).steps:
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, step.source


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@settings(max_examples=50)
@given(chain_shapes(max_extent=40, max_blocks=8))
def test_pytorch_agrees_for_random_chains(s):
    verified_session(TORCH, s).close()


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes_and_its_memory_reported(mode):
    s = ChainShape(4, 32, 56, 56, "bias bn relu add")
    session = verified_session(TORCH, s)
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    assert 0 < session.memory.workspace < 3 * s.bytes
    session.close()
