"""The ladder of 8-bit products on a real GPU: odd shapes, extreme values, every preset and tile size, spills."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda
from kernels.gemm.eight_bit import ladder as eight_bit
from kernels.gemm.eight_bit.presets import EIGHT_BIT_PRESETS
from kernels.gemm.eight_bit.shape import FP8, INPUT, INT8, EightBitShape
from kernels.model import fp8_sums
from kernels.model.program import Launch
from kernels.records import availability
from kernels.runner import compare, run

pytestmark = pytest.mark.gpu
LADDER = eight_bit.LADDER
FLOAT8 = ml_dtypes.float8_e4m3fn
EXTENTS = ((61, 45, 37), (1, 4, 16), (17, 16, 16), (257, 132, 1040), (300, 520, 464), (130, 264, 4096))


def supported(shape: EightBitShape) -> list[str]:
    return [r.name for r in LADDER.rungs if availability.runs(r, shape, r.default_tiles)]


@pytest.mark.parametrize("dtype", INPUT)
@pytest.mark.parametrize("extents", EXTENTS)
def test_every_rung_agrees_at_odd_shapes(extents, dtype):
    shape = EightBitShape(*extents, dtype)
    if names := supported(shape):
        for result in compare(names, shape, engine="cuda", measure=False):
            assert result.output.shape == extents[:2]  # compare() verified each element


@settings(max_examples=40)
@given(data=st.data())
def test_every_legal_set_of_tile_sizes_runs(data):
    rung = data.draw(st.sampled_from([r for r in LADDER.rungs if r.tiles]))
    dtype = FP8 if "fp8" in rung.name else INT8
    M, N, K = (data.draw(st.integers(1, most)) for most in (400, 100, 40))
    tiles = {name: data.draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    shape = EightBitShape(M, 4 * N, 16 * K, dtype)
    if availability.runs(rung, shape, tiles):
        run(rung.name, shape, engine="cuda", tiles=tiles, measure=False)


def test_int8_at_both_of_its_limits():
    """-128 x -128 in every product, and a sum of 1,040 of them."""
    shape = EightBitShape(70, 80, 1040, INT8)
    rng = np.random.default_rng(3)
    for values in ([-128], [-128, 127], [-128, -1, 0, 1, 127]):
        inputs = {name: rng.choice(values, (n, shape.K)) for name, n in (("A", 70), ("B", 80))}
        for result in compare(supported(shape), shape, inputs, engine="cuda", measure=False):
            assert result.error == 0


def test_fp8_from_its_smallest_to_its_largest_numbers():
    """Subnormals and numbers up to 448, of both signs."""
    shape = EightBitShape(70, 80, 528, FP8)
    bits = np.arange(256, dtype=np.uint8)
    finite = bits[np.isfinite(bits.view(FLOAT8).astype(np.float32))]
    rng = np.random.default_rng(3)
    inputs = {name: rng.choice(finite, (n, shape.K)).view(FLOAT8) for name, n in (("A", 70), ("B", 80))}
    assert len(compare(supported(shape), shape, inputs, engine="cuda", measure=False)) == len(supported(shape))


def test_promotion_keeps_what_long_sums_of_the_tensor_cores_lose():
    """Every product is 1: a sum of 14 bits ends at 2^13, or 16,384; one promoted to FP32 does not."""
    shape = EightBitShape(16, 16, 65_536, FP8)
    ones = {name: np.ones((16, shape.K)) for name in "AB"}
    names = ["gemm-8bit/wgmma-fp8-promoted"]
    (promoted,) = compare(names, shape, ones, engine="cuda", measure=False)
    assert (promoted.output == shape.K).all()


@pytest.mark.parametrize("K", [16, 48, 256, 1040])
@pytest.mark.parametrize("spread", [0, 6])
def test_tensor_cores_add_fp8_as_the_emulator_does(K, spread):
    """Every bit of every sum, of numbers of one size and of many."""
    rng = np.random.default_rng(K)
    shape = EightBitShape(24, 24, K, FP8)
    inputs = {
        name: (rng.standard_normal((24, K)) * 2.0 ** rng.integers(-spread, spread + 1, (24, K))).astype(FLOAT8)
        for name in "AB"
    }
    for name, depth in (("wgmma-fp8", 0), ("wgmma-fp8-turns", 0), ("wgmma-fp8-promoted", eight_bit.ROW)):
        result = run(f"gemm-8bit/{name}", shape, inputs, engine="cuda", measure=False)
        np.testing.assert_array_equal(result.output, fp8_sums.product(*inputs.values(), depth))


@pytest.mark.parametrize("key", [key for key in EIGHT_BIT_PRESETS if "8192" not in key])
def test_every_preset(key):
    shape = EIGHT_BIT_PRESETS[key].shape
    for result in compare(supported(shape), shape, engine="cuda", measure=False):
        assert result.error <= (0 if shape.dtype == INT8 else 1e-2), result.rung


@pytest.mark.parametrize("dtype", INPUT)
def test_no_kernel_spills(dtype):
    shape = EightBitShape(64, 64, 64, dtype)
    for rung in map(LADDER.rung, supported(shape)):
        for step in rung.build(shape, rung.default_tiles).steps:
            if isinstance(step, Launch):
                kernel = cuda.compile_kernel(step.source, step.entry, step.defines)
                assert kernel.local_size_bytes == 0, rung.name
