"""Attention with L on a real GPU: every rung at any shape and tile size, hard scores, presets, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.lse.ladder import LADDER, RUNGS
from kernels.attention.lse.library import LIBRARY
from kernels.attention.lse.shape import LseShape
from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import Launch
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import inputs_of
from tests.helpers.hard_scores import adversarial
from tests.helpers.needs import needs_torch
from tests.helpers.shapes import attention_shapes

pytestmark = pytest.mark.gpu
shapes = attention_shapes(max_extent=300, max_d=128).map(lambda s: LseShape(**s.params()))
by_name = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)


def run_and_verify(rung, s: LseShape, tiles=None, inputs=None) -> None:
    program = rung.build(s, rung.check(s, tiles))
    inputs = inputs or inputs_of(LADDER, s, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    outputs = {b.name: np.array(session.fetch(b.name)) for b in program.outputs}
    session.close()
    for name, (ref, scale) in LADDER.reference(s, **inputs).items():
        error = relative_error(outputs[name], ref)
        assert agrees(outputs[name], ref, scale, rung.tolerance), f"{name} {rung.name} {s} {tiles} {error}"


@by_name
@settings(max_examples=25)
@given(shape=shapes)
def test_every_rung_agrees_at_any_shape(rung, shape):
    run_and_verify(rung, shape)


@settings(max_examples=50)
@given(data=st.data())
def test_every_legal_set_of_tile_sizes_runs(data):
    rung, shape = data.draw(st.sampled_from(RUNGS)), data.draw(shapes)
    tiles = {key: data.draw(st.sampled_from(choices)) for key, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        run_and_verify(rung, shape, tiles)


@by_name
@pytest.mark.parametrize("kind", ["logits of 1e4", "all equal", "one hot", "rising", "falling"])
@pytest.mark.parametrize("causal", [0, 1])
def test_hard_scores_stay_finite_and_right(rung, kind, causal):
    s = LseShape(1, 2, 250, 64, causal=causal, scale=1)
    run_and_verify(rung, s, inputs=adversarial(kind, s))


@pytest.mark.parametrize("key", LADDER.presets)
def test_every_preset(key):
    """At most two heads: each is computed by other blocks, and the float64 reference of 64 heads takes long."""
    s = LADDER.presets[key].shape
    s = s.with_(B=1, H=min(s.H, 2))
    for rung in RUNGS:
        run_and_verify(rung, s)


@pytest.mark.parametrize("d", [8, 64, 128])
def test_no_kernel_keeps_its_numbers_in_local_memory(d):
    """Some compilers keep an address or two there."""
    s = LseShape(1, 1, 256, d)
    for rung in RUNGS:
        for tiles in rung.tile_sets(s):
            for step in rung.build(s, tiles).steps:
                if isinstance(step, Launch):
                    kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                    assert kernel.local_size_bytes <= 16, (rung.name, tiles)


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("N", "d"), [(257, 64), (31, 40)])
def test_pytorch_agrees(N, d, causal):
    run_and_verify(LIBRARY, LseShape(2, 4, N, d, causal=causal))


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes_and_its_memory_reported(mode):
    """Hot samples are captured graphs. After them the result is still right."""
    s = LseShape(2, 8, 1024, 64)
    program = LIBRARY.build(s, {})
    inputs = inputs_of(LADDER, s, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    session.verify_run()
    for name, (ref, scale) in LADDER.reference(s, **inputs).items():
        assert agrees(np.array(session.fetch(name)), ref, scale, LIBRARY.tolerance), name
    assert 0 <= session.memory.workspace < 4 * s.bytes
    session.close()
