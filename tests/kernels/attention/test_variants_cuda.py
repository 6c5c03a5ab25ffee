"""The variants of attention on a real GPU: every rung at any shape and tile size, presets, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import ladder as attention_ladder
from kernels.attention import library, reference, variants
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.engines import cuda
from kernels.model.program import INPUT, UnsupportedError
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs
from tests.helpers.needs import needs_torch
from tests.kernels.attention.test_variants import KINDS, RUNGS, WIDE, of, shapes

pytestmark = pytest.mark.gpu
PRESETS = {key: p.shape for key, p in ATTENTION_PRESETS.items() if p.shape.variants}


def run_and_verify(rung, s: AttentionShape, tiles=None) -> None:
    """Compares every element with the float64 reference."""
    program = rung.build(s, rung.check(s, tiles))
    inputs = seeded_inputs(program.of_role(INPUT))
    session = cuda.open(program, inputs)
    out = np.array(session.verify_run())
    session.close()
    ref, scale = attention_ladder.reference(s, **inputs)
    assert agrees(out, ref, scale, rung.tolerance), f"{rung.name} {s} {tiles} {relative_error(out, ref)}"


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=25)
@given(s=shapes(most=300, d=128), data=st.data())
def test_any_shape_and_tile_size(name, s, data):
    rung, s = RUNGS[name], of(name, s)
    sets = [tiles for tiles in rung.tile_sets(s) if not any(rung.rules(s, tiles))]
    if sets:
        run_and_verify(rung, s, data.draw(st.sampled_from(sets)))


@pytest.mark.parametrize("key", PRESETS)
def test_presets(key):
    for rung in variants.RUNGS:
        if not any(rung.rules(PRESETS[key], rung.default_tiles)):
            run_and_verify(rung, PRESETS[key])


@pytest.mark.parametrize("s", (*KINDS, *WIDE, AttentionShape(2, 3, 90, 16, causal=1)), ids=str)
def test_the_reference_of_a_gpu_is_that_of_numpy(s, monkeypatch):
    """O and its error scale, in float64, for parts of several queries and of a whole head."""
    program = RUNGS["flash-variants"].build(s.with_(dtype="fp32"), RUNGS["flash-variants"].default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT))
    q, k, v = (inputs[name].reshape(-1, *inputs[name].shape[2:]) for name in "QKV")
    monkeypatch.setattr(reference, "CHUNK", 1000)
    for chunk in (1000, reference.GPU_CHUNK):
        monkeypatch.setattr(reference, "GPU_CHUNK", chunk)
        on_gpu = reference._on_gpu(cuda.load(), s, q, k, v, inputs.get("mask"))
        for one, other in zip(on_gpu, reference._on_host(s, q, k, v, inputs.get("mask")), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("s", WIDE, ids=str)
def test_several_tiles_by_wgmma(s):
    rung = RUNGS["flash-wgmma-variants"]
    for tiles in ({}, *rung.sets):
        run_and_verify(rung, s, tiles)


@needs_torch
@pytest.mark.parametrize("rung", library.RUNGS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("s", [s for s in (*KINDS[:2], *KINDS[3:4]) if not s.softcap], ids=str)
def test_pytorch_computes_the_same_or_says_why_not(rung, s):
    for dtype in ("fp32", "fp16"):
        try:
            run_and_verify(rung, s.with_(dtype=dtype, d=32))
        except UnsupportedError as error:
            assert rung.name.startswith("attention/library") and "does not support" in str(error)
