"""Attention's backward pass on a real GPU: every rung at any shape and tile size, hard scores, presets, memory, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.backward.ladder import LADDER
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import Launch, UnsupportedError
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import inputs_of
from tests.helpers.hard_scores import adversarial
from tests.helpers.needs import needs_torch
from tests.helpers.shapes import attention_shapes

pytestmark = pytest.mark.gpu
RUNGS = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs if not rung.library}
LIBRARY = {rung.name.partition("/")[2]: rung for rung in LADDER.rungs if rung.library}
MMA, HOPPER = "flash-mma", "flash-wgmma"
HALVES = ("fp16", "bf16")
POOL_GRAIN = 512  # bytes: CuPy's pool allocates multiples of this
backward_shapes = attention_shapes(max_extent=300, max_d=128).map(lambda s: AttentionBackwardShape(**s.params()))


def of_rung(name: str, s: AttentionBackwardShape, dtype: str = "fp16") -> AttentionBackwardShape:
    if name == HOPPER:
        s = s.with_(d=min(-(-s.d // 8) * 8, 64))
    return s.with_(dtype=dtype) if name in (MMA, HOPPER) else s


def run_and_verify(rung, s: AttentionBackwardShape, tiles=None, inputs=None) -> float:
    """Returns the largest relative error, with every element of each gradient compared with the float64 reference."""
    program = rung.build(s, rung.check(s, tiles))
    inputs = inputs or inputs_of(LADDER, s, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    outputs = {b.name: np.array(session.fetch(b.name)) for b in program.outputs}
    session.close()
    errors = []
    for name, (ref, scale) in LADDER.reference(s, **inputs).items():
        errors.append(relative_error(outputs[name], ref))
        assert agrees(outputs[name], ref, scale, rung.tolerance), f"{name} {rung.name} {s} {tiles} {errors[-1]}"
    return max(errors)


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=25)
@given(shape=backward_shapes, dtype=st.sampled_from(HALVES))
def test_every_rung_agrees_at_any_shape(name, shape, dtype):
    run_and_verify(RUNGS[name], of_rung(name, shape, dtype))


@settings(max_examples=60)
@given(data=st.data())
def test_every_legal_set_of_tile_sizes_runs(data):
    name = data.draw(st.sampled_from(list(RUNGS)))
    rung, shape = RUNGS[name], of_rung(name, data.draw(backward_shapes), data.draw(st.sampled_from(HALVES)))
    tiles = {key: data.draw(st.sampled_from(choices)) for key, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        run_and_verify(rung, shape, tiles)


@pytest.mark.parametrize("kind", ["logits of 1e4", "all equal", "one hot", "rising", "falling"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("name", RUNGS)
def test_hard_scores_stay_finite_and_right(name, kind, causal):
    s = of_rung(name, AttentionBackwardShape(1, 2, 250, 64, causal=causal, scale=1))
    program = RUNGS[name].build(s, RUNGS[name].default_tiles)
    inputs = {"dO": inputs_of(LADDER, s, program)["dO"]} | adversarial(kind, s)
    run_and_verify(RUNGS[name], s, inputs=inputs | LADDER.derive(s, inputs))


@pytest.mark.parametrize("key", [key for key in LADDER.presets if "8192" not in key])
def test_every_preset(key):
    """At most two heads: each is computed by other blocks, and the float64 reference of 64 heads takes long."""
    s = LADDER.presets[key].shape
    s = s.with_(B=1, H=min(s.H, 2))
    limit = {"fp32": 5e-6, "fp16": 2e-3, "bf16": 2e-2}[s.dtype]
    for rung in RUNGS.values():
        if not any(rung.rules(s, rung.default_tiles)):
            assert run_and_verify(rung, s) < limit, rung.name


def test_memory_at_8192_equals_prediction():
    s = AttentionBackwardShape(1, 2, 8192, 64)
    peaks = {}
    for name in ("naive", "recompute", "flash", "flash-two-kernels"):
        program = RUNGS[name].build(s, RUNGS[name].default_tiles)
        inputs = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role("input")}
        session = cuda.open(program, inputs)
        session.verify_run()
        assert session.memory.peak == pytest.approx(program.nbytes(), rel=0.02, abs=16 * POOL_GRAIN)
        peaks[name] = session.memory.peak
        session.close()
    assert all(peaks["naive"] > 25 * peak for name, peak in peaks.items() if name != "naive")


@pytest.mark.parametrize("d", [8, 64, 128])
def test_no_kernel_keeps_its_numbers_in_local_memory(d):
    """Some compilers keep an address or two there."""
    for name, rung in RUNGS.items():
        s = of_rung(name, AttentionBackwardShape(1, 1, 256, d))
        for tiles in rung.tile_sets(s):
            for step in rung.build(s, tiles).steps:
                if isinstance(step, Launch):
                    kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                    assert kernel.local_size_bytes <= 16, (name, tiles)


def test_two_kernels_give_the_same_bits_every_time():
    s = AttentionBackwardShape(2, 4, 500, 64)
    for name in ("flash-two-kernels", MMA, HOPPER):
        rung, shape = RUNGS[name], of_rung(name, s)
        program = rung.build(shape, rung.default_tiles)
        session = cuda.open(program, inputs_of(LADDER, shape, program))
        first = None
        for _ in range(3):
            session.verify_run()
            outputs = np.stack([np.array(session.fetch(b.name)) for b in program.outputs])
            assert first is None or (outputs == first).all()
            first = outputs
        session.close()


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("dtype", ["fp32", *HALVES])
def test_pytorch_agrees_or_is_unsupported(name, dtype, causal):
    s = AttentionBackwardShape(2, 4, 257, 64, causal=causal, dtype=dtype)
    if dtype == "fp32" and name != "library":
        with pytest.raises(UnsupportedError, match="does not support the backward pass of"):
            run_and_verify(LIBRARY[name], s)
    else:
        run_and_verify(LIBRARY[name], s)


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
@pytest.mark.parametrize("name", LIBRARY)
def test_pytorch_is_timed_in_both_modes_and_its_memory_reported(name, mode):
    """Hot samples are captured graphs. After them the gradients are still right."""
    s, rung = AttentionBackwardShape(2, 8, 1024, 64, dtype="fp16"), LIBRARY[name]
    program = rung.build(s, {})
    inputs = inputs_of(LADDER, s, program)
    session = cuda.open(program, inputs)
    session.verify_run()
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    session.verify_run()
    for key, (ref, scale) in LADDER.reference(s, **inputs).items():
        assert agrees(np.array(session.fetch(key)), ref, scale, rung.tolerance), key
    assert 0 <= session.memory.workspace < 4 * s.bytes
    session.close()
