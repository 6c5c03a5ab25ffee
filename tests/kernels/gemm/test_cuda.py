"""The GEMM ladder on a real GPU, every rung and type: odd shapes, hard values, large offsets, presets, tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.gemm import ladder as gemm_ladder
from kernels.gemm import reference as gemm_reference
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.program import INPUT, Buffer, Launch
from kernels.model.verify import agrees
from kernels.records import availability
from kernels.runner import compare, run, seeded_inputs
from tests.helpers.shapes import gemm_shapes

pytestmark = pytest.mark.gpu
DTYPES = tuple(ELEMENT_BYTES)


def supported(shape: GemmShape) -> list[str]:
    rungs = [r.name for r in gemm_ladder.LADDER.rungs if availability.runs(r, shape, r.default_tiles)]
    assert rungs, shape
    return rungs


def inputs_of(shape: GemmShape) -> list[Buffer]:
    return [b for b in gemm_ladder.common.buffers(shape) if b.role == INPUT]


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=100)
@given(data=st.data())
def test_every_rung_agrees_at_any_shape(dtype, data):
    shape = data.draw(gemm_shapes(max_extent=300, max_k=300, dtype=dtype))
    for result in compare(supported(shape), shape, engine="cuda", measure=False):
        assert result.output.shape == (shape.M, shape.N)  # compare() verified each element


@settings(max_examples=60)
@given(data=st.data())
def test_every_legal_set_of_tile_sizes_runs(data):
    rung = data.draw(st.sampled_from([r for r in gemm_ladder.LADDER.rungs if r.tiles]))
    shape = data.draw(gemm_shapes(max_extent=300, max_k=100, dtype=data.draw(st.sampled_from(DTYPES))))
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    if availability.runs(rung, shape, tiles):
        run(rung.name, shape, engine="cuda", tiles=tiles, measure=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("M", "N", "K"), [(61, 45, 37), (257, 129, 65), (128, 128, 128), (1, 515, 1000)])
def test_values_of_every_size_and_sign(dtype, M, N, K):
    """Values from 1e-4 to 1e4, both signs, zeros; INT8 at both of its limits.

    C is poisoned before it is computed: with beta = 0, a kernel that read C would give NaN.
    """
    rng = np.random.default_rng(5)
    for alpha, beta in ((1, 0), (-3, 2)):
        shape = GemmShape(M, N, K, alpha, beta, dtype)
        inputs = {}
        for b in inputs_of(shape):
            value = 10.0 ** rng.uniform(-4, 4, b.shape) * rng.choice([-1, 0, 1], b.shape)
            ends = rng.choice([-128, -1, 0, 1, 127], b.shape)
            inputs[b.name] = ends if dtype == "int8" else value
        compare(supported(shape), shape, inputs, engine="cuda", measure=False)


def max_error(rung: str, K: int) -> float:
    """Returns at least twice the error measured on an H200.

    The error of a sum grows with the root of its length. Tensor cores truncate sums, and TF32 truncates the factors. By
    wgmma it was 4.9e-6 for K = 4,096.
    """
    if "tf32" in rung:
        return 1e-3
    if "wgmma" in rung:
        return 1e-5
    return 5e-5 if rung in ("gemm/wmma", "gemm/mma-sync", "gemm/cublas-fp16") else max(5e-7, 4e-8 * K**0.5)


@pytest.mark.parametrize("key", [key for key in GEMM_PRESETS if "8192" not in key])
def test_every_preset(key):
    shape = GEMM_PRESETS[key].shape
    for result in compare(supported(shape), shape, engine="cuda", measure=False):
        assert result.error < max_error(result.rung, shape.K), result.rung


@pytest.mark.parametrize(("M", "N", "K"), [(40_000, 60_000, 5), (60_000, 5, 40_000), (5, 40_000, 60_000)])
def test_offsets_beyond_two_to_the_31(M, N, K):
    """Each matrix in turn has 2.4e9 elements. Checks the last rows and columns, on every rung."""
    shape = GemmShape(M, N, K)
    assert max(shape.elements.values()) > 2**31
    rungs = [gemm_ladder.LADDER.rung(name) for name in supported(shape)]
    inputs = seeded_inputs(inputs_of(shape))
    last = GemmShape(min(M, 100), min(N, 100), K)
    ref, scale = gemm_reference.gemm(last, inputs["A"][-last.M :], inputs["B"][:, -last.N :])
    for rung in rungs:
        session = cuda.open(rung.build(shape, rung.default_tiles), inputs)
        out = session.verify_run()[-last.M :, -last.N :]
        session.close()
        assert agrees(out, ref, scale, rung.tolerance), rung.name


def test_copy_of_c0_is_a_separate_step():
    shape = GemmShape(512, 512, 64, beta=1)
    m = run("gemm/cublas", shape, engine="cuda").measurement
    assert [name for name, _ in m.parts_ms] == ["copy", "cublas_gemm"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_kernel_spills(dtype):
    shape = GemmShape(64, 64, 64, dtype=dtype)
    for rung in map(gemm_ladder.LADDER.rung, supported(shape)):
        for step in rung.build(shape, rung.default_tiles).steps:
            if isinstance(step, Launch):
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, rung.name
