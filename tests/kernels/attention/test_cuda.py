"""The attention ladder on a real GPU: every rung at any shape and tile size, hard scores, presets, memory, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import common, hopper
from kernels.attention import ladder as attention_ladder
from kernels.attention import library as attention_library
from kernels.attention import tensor_cores as attention_tensor_cores
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.engines import cuda
from kernels.libraries import torch as torch_library
from kernels.machine.timing import Budget
from kernels.model.program import INPUT, Launch, UnsupportedError
from kernels.model.verify import agrees, relative_error
from kernels.records import availability
from kernels.runner import seeded_inputs
from tests.helpers.needs import needs_torch
from tests.helpers.shapes import attention_shapes

pytestmark = pytest.mark.gpu
RUNGS = {rung.name: rung for rung in (*attention_ladder.RUNGS, attention_ladder.CUBLAS)}
FLASH = ("attention/flash", "attention/flash-registers")
(TENSOR,) = attention_tensor_cores.RUNGS
ON_HOPPER = {rung.name: rung for rung in hopper.RUNGS}
HALVES = {"attention/flash-mma": TENSOR, "attention/cublas": attention_ladder.CUBLAS} | ON_HOPPER
LIBRARY, *LIBRARY_16_BITS = attention_library.RUNGS
PLAIN = {key: p.shape for key, p in ATTENTION_PRESETS.items() if not p.shape.variants}
POOL_GRAIN = 512  # bytes: CuPy's pool allocates multiples of this


def open_session(rung, s: AttentionShape, tiles=None, inputs=None):
    """Returns (session, its output, its inputs)."""
    program = rung.build(s, rung.check(s, tiles))
    inputs = inputs or seeded_inputs(program.of_role(INPUT))
    session = cuda.open(program, inputs)
    return session, np.array(session.verify_run()), inputs


def fitting(name: str, s: AttentionShape) -> AttentionShape:
    """Returns a shape whose rows the rung can load. Skips the test on a GPU that lacks Hopper's instructions."""
    if name not in ON_HOPPER:
        return s
    if cuda.refusal(HALVES[name], s, HALVES[name].default_tiles):
        pytest.skip("this GPU does not run it")
    return s.with_(d=-(-s.d // 8) * 8)


def run_and_verify(rung, s: AttentionShape, tiles=None, inputs=None) -> float:
    """Returns the relative error of a rung, with every element compared with the float64 reference."""
    session, out, inputs = open_session(rung, s, tiles, inputs)
    session.close()
    ref, scale = attention_ladder.reference(s, **inputs)
    assert agrees(out, ref, scale, rung.tolerance), f"{rung.name} {s} {tiles} {relative_error(out, ref)}"
    return relative_error(out, ref)


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=60)
@given(shape=attention_shapes(max_extent=400, max_d=128, max_heads=5))
def test_every_rung_agrees_at_any_shape(name, shape):
    run_and_verify(RUNGS[name], shape)


@pytest.mark.parametrize("name", HALVES)
@settings(max_examples=60)
@given(shape=attention_shapes(max_extent=400, max_d=128, max_heads=5), dtype=st.sampled_from(common.HALVES))
def test_16_bit_types_agree_with_reference(name, shape, dtype):
    run_and_verify(HALVES[name], fitting(name, shape.with_(dtype=dtype)))


@settings(max_examples=80)
@given(data=st.data())
def test_every_legal_set_of_tile_sizes_runs(data):
    rung = data.draw(st.sampled_from((*attention_ladder.RUNGS, TENSOR, *hopper.RUNGS)))
    shape = data.draw(attention_shapes(max_extent=300, max_d=128))
    if rung is TENSOR or rung in hopper.RUNGS:
        shape = shape.with_(dtype=data.draw(st.sampled_from(common.HALVES)))
    if rung in hopper.RUNGS:
        shape = shape.with_(d=-(-shape.d // 8) * 8)
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        run_and_verify(rung, shape, tiles)


def hard_inputs(kind: str, s: AttentionShape) -> dict[str, np.ndarray]:
    """Returns inputs in the shape's type. "far" scores are about 1e9, where neighbouring floats differ by 64."""
    seeded = seeded_inputs([b for b in common.buffers(s) if b.role == INPUT], 4)
    inputs = {name: x.astype("f4") for name, x in seeded.items()}
    Q, K = inputs["Q"], inputs["K"]
    if kind == "far":
        Q[...], K[...] = 30_000 * Q.clip(-2, 2), 30_000 * K.clip(-2, 2)
    elif kind == "logits of 1e4":
        Q[...], K[...] = 100 * np.sign(Q), 100 * np.sign(K) / s.d**0.5
    elif kind == "all equal":
        Q[...] = 0
    elif kind == "one hot":
        Q[...], K[...] = 0, 0
        for i in range(s.N):
            Q[:, :, i, i % s.d] = K[:, :, i, i % s.d] = 100
    elif kind == "rising":
        Q[...], K[...] = 1, np.arange(s.N)[:, None] / s.d
    elif kind == "falling":
        Q[...], K[...] = 1, -1e4 * np.arange(s.N)[:, None] / s.d
    return {name: x.astype(seeded[name].dtype) for name, x in inputs.items()}


@pytest.mark.parametrize("kind", ["logits of 1e4", "all equal", "one hot", "rising", "falling"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("name", RUNGS)
def test_hard_scores_stay_finite_and_right(name, kind, causal):
    shape = AttentionShape(2, 2, 333, 64, causal=causal, scale=1)
    run_and_verify(RUNGS[name], shape, inputs=hard_inputs(kind, shape))


@pytest.mark.parametrize("dtype", common.HALVES)
@pytest.mark.parametrize("kind", ["logits of 1e4", "far", "all equal", "one hot", "rising", "falling"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("scale", [1, -1])
@pytest.mark.parametrize("name", HALVES)
def test_hard_scores_of_16_bit_types_stay_finite_and_right(name, scale, kind, causal, dtype):
    """N is below 256, so that every "falling" key is finite in FP16."""
    shape = fitting(name, AttentionShape(2, 2, 250, 64, causal=causal, scale=scale, dtype=dtype))
    run_and_verify(HALVES[name], shape, inputs=hard_inputs(kind, shape))


@pytest.mark.parametrize(
    "name, dtype", [*((n, "fp32") for n in RUNGS), *((n, t) for n in HALVES for t in common.HALVES)]
)
@pytest.mark.parametrize("keys", [slice(0, 130), slice(40, 41), slice(None)])
@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_infinities_and_nans_give_what_the_reference_gives(name, dtype, keys, value):
    shape = fitting(name, AttentionShape(1, 2, 200, 64, dtype=dtype))
    inputs = seeded_inputs([b for b in common.buffers(shape) if b.role == INPUT])
    Q = inputs["Q"]
    Q[..., 0] = np.abs(Q[..., 0]) + np.ones((), Q.dtype)
    inputs["K"][:, :, keys, 0] = value
    session, out, _ = open_session((RUNGS | HALVES)[name], shape, inputs=inputs)
    session.close()
    ref, _ = attention_ladder.reference(shape, **inputs)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(ref))
    tolerance = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}[dtype]
    np.testing.assert_allclose(out.astype("f8"), ref, rtol=max(1e-3, tolerance), atol=tolerance)


@pytest.mark.parametrize("key", [k for k, s in PLAIN.items() if s.dtype == "fp32"])
def test_every_preset(key):
    shape = ATTENTION_PRESETS[key].shape
    for rung in RUNGS.values():
        assert run_and_verify(rung, shape) < 5e-6, rung.name


def test_memory_of_naive_and_flash_at_8192_equals_prediction():
    shape = AttentionShape(1, 2, 8192, 64)
    peaks = {}
    for name in ("attention/naive", *FLASH):
        rung = RUNGS[name]
        session, _, _ = open_session(rung, shape)
        program = session.program
        assert session.memory.peak == pytest.approx(program.nbytes(), rel=0.02, abs=8 * POOL_GRAIN)
        workspace = rung.cost(shape, program).workspace_bytes
        assert session.memory.workspace == pytest.approx(workspace, rel=0.02, abs=4 * POOL_GRAIN)
        peaks[name] = session.memory.peak
        session.close()
    assert all(peaks["attention/naive"] > 50 * peaks[name] for name in FLASH)


def test_memory_of_16_bit_types_at_8192_equals_prediction():
    """cuBLAS needs S in FP32 and P in 16 bits, flash attention nothing."""
    shape = AttentionShape(1, 2, 8192, 64, dtype="fp16")
    for rung in HALVES.values():
        session, _, _ = open_session(rung, shape)
        assert session.memory.peak == pytest.approx(session.program.nbytes(), rel=0.02, abs=8 * POOL_GRAIN)
        session.close()


@pytest.mark.parametrize("key", [k for k, s in PLAIN.items() if s.dtype in common.HALVES])
def test_every_preset_of_16_bits(key):
    shape = ATTENTION_PRESETS[key].shape
    for rung in HALVES.values():
        assert run_and_verify(rung, shape) < {"fp16": 1e-3, "bf16": 1e-2}[shape.dtype], rung.name


@pytest.mark.parametrize("d", [8, 64, 96, 128])
def test_no_kernel_spills(d):
    for rung in (*attention_ladder.RUNGS, TENSOR):
        shape = AttentionShape(1, 1, 256, d, dtype="fp16" if rung is TENSOR else "fp32")
        for tiles in rung.tile_sets(shape):
            for step in rung.build(shape, tiles).steps:
                if isinstance(step, Launch):
                    kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                    assert kernel.local_size_bytes == 0, (rung.name, tiles)


@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_cublas_is_timed_in_both_modes_step_by_step(mode):
    session, _, _ = open_session(attention_ladder.CUBLAS, AttentionShape(1, 4, 512, 64))
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    session.close()
    assert [name for name, _ in timing.parts_ms] == ["cublas_scores", "softmax", "cublas_values"]
    assert min(timing.samples_ms) > 0


# -- PyTorch ------------------------------------------------------------------------------------------
@needs_torch
@settings(max_examples=40)
@given(shape=attention_shapes(max_extent=300, max_d=128))
def test_pytorch_fp32_agrees_or_is_unsupported(shape):
    try:
        run_and_verify(LIBRARY, shape)
    except UnsupportedError as e:
        assert "does not support EFFICIENT_ATTENTION" in str(e)


@needs_torch
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("rung", attention_library.RUNGS, ids=lambda r: r.name)
def test_pytorch_16_bit_types_agree(rung, causal, dtype):
    run_and_verify(rung, AttentionShape(2, 4, 257, 64, causal=causal, dtype=dtype))


@needs_torch
@pytest.mark.parametrize("rung", LIBRARY_16_BITS, ids=lambda r: r.name)
def test_backend_without_fp32_is_reported(rung):
    with pytest.raises(UnsupportedError, match=r"PyTorch [\d.]+.* does not support \w+_ATTENTION for this shape"):
        run_and_verify(rung, AttentionShape(1, 1, 64, 64))


@needs_torch
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_pytorch_is_timed_in_both_modes_and_its_memory_reported(mode):
    """Hot samples are captured graphs. After them the output is still right."""
    shape = AttentionShape(2, 8, 1024, 64)
    session, _, inputs = open_session(LIBRARY, shape)
    (timing,) = cuda.sample([session], mode, Budget(samples=20, seconds=1))
    assert min(timing.samples_ms) > 0
    out = np.array(session.verify_run())
    ref, scale = attention_ladder.reference(shape, **inputs)
    assert agrees(out, ref, scale, LIBRARY.tolerance)
    assert 0 <= session.memory.workspace < shape.bytes
    session.close()


@needs_torch
def test_conditions_include_the_pytorch_version():
    assert cuda.conditions()["torch"] == torch_library.version()
