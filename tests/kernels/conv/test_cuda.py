"""The CUDA rungs on a real GPU: every shape, every preset, tensors beyond 2^31 elements, memory, time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import ladder as conv_ladder
from kernels.conv import reference
from kernels.conv import winograd as conv_winograd
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.machine.timing import Budget
from kernels.model.program import WORKSPACE
from kernels.model.verify import agrees
from kernels.records import availability
from kernels.runner import compare, run
from tests.helpers.shapes import conv_shapes, layer_shapes

pytestmark = pytest.mark.gpu
RUNGS = [r.name for r in conv_ladder.BASIC_RUNGS]
OUR_RUNGS = [r for r in conv_ladder.LADDER.rungs if r.library != "cuDNN"]
POOL_GRAIN = 512  # bytes: CuPy's pool allocates multiples of this


@st.composite
def three_by_three(draw) -> ConvShape:
    """Draw a shape that Winograd supports, larger than a tile and a block each way."""
    s = draw(layer_shapes(max_extent=5, groups=False))
    return ConvShape(
        s.N,
        draw(st.integers(1, 40)),
        s.H + 5,
        s.W + 5,
        draw(st.integers(1, 70)),
        3,
        3,
        pad=s.pad,
        extra=(s.extra_h, s.extra_w),
        mode=s.mode,
        bias=s.bias,
        relu=s.relu,
    )


@settings(max_examples=25)
@given(s=layer_shapes(max_extent=6))
def test_the_reference_of_a_gpu_is_that_of_numpy(s):
    """The sums of the products and of their absolute values, in float64."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(s.x_shape), rng.standard_normal(s.w_shape)
    for one, other in zip(reference._on_gpu(cuda.load(), s, x, w), reference._sums(s, x, w, np), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def rounding(s: ConvShape, rung: str = "conv/direct") -> float:
    """Returns a bound on the relative L2 errors measured in float32.

    The error of a sum grows with the root of its length, in any order of its terms. Winograd's transforms add an error
    of their own. The error of FFT grows with the image.
    """
    m = {"conv/winograd-2x2": 2, "conv/winograd-4x4": 4, "conv/winograd-nonfused": 4}.get(rung)
    transform_error = conv_winograd.MAX_ERROR[m] if m else 2e-6 if rung == "conv/fft" else 0
    return max(transform_error, 1e-7 + 0.5 * np.finfo("f4").eps * s.CRS**0.5)


@settings(max_examples=200)
@given(
    shape=conv_shapes(max_extent=5), tile=st.sampled_from(conv_ladder.TILES), block=st.sampled_from(conv_ladder.BLOCKS)
)
def test_every_rung_agrees_at_any_shape(shape, tile, block):
    for result in compare(RUNGS, shape, engine="cuda", tiles={"TILE": tile, "BLOCK": block}, measure=False):
        assert result.output.shape == shape.y_shape, result.rung  # compare() verified each element


@settings(max_examples=200)
@given(shape=st.one_of(layer_shapes(max_extent=5), three_by_three()), data=st.data())
def test_every_algorithm_agrees_at_any_supported_shape(shape, data):
    """Uses precompiled tile sizes: others would wait for a compiler."""
    supported = [r for r in OUR_RUNGS if availability.runs(r, shape, r.default_tiles)]
    tiles = {r.name: data.draw(st.sampled_from(list(r.tile_sets(shape))), r.name) for r in supported}
    for result in compare([r.name for r in supported], shape, engine="cuda", tiles=tiles, measure=False):
        assert result.output.shape == shape.y_shape, result.rung


@pytest.mark.parametrize("key", CONV_PRESETS | CONV_LAYER_PRESETS)
def test_every_preset(key):
    """Includes cuDNN's rungs, some of which are refused."""
    shape, refused = (CONV_PRESETS | CONV_LAYER_PRESETS)[key].shape, []
    supported = [rung.name for rung in availability.supported_rungs(conv_ladder.LADDER, "cuda", shape)]
    results = compare(supported, shape, engine="cuda", measure=False, refused=lambda *reason: refused.append(reason))
    assert {r.rung for r in results} | {rung for rung, _ in refused} == set(supported)
    for result in results:
        if "cudnn" not in result.rung:
            assert result.error < rounding(shape, result.rung), result.rung


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_very_small_and_large_values(scale):
    s = ConvShape(2, 5, 19, 23, 7, 3, 5, stride=(2, 1), pad=(1, 3), dilation=(2, 1))
    rng = np.random.default_rng(1)
    x = (scale * rng.standard_normal(s.x_shape)).astype("f4")
    x[0, 0, 0] = 0
    w = (rng.integers(-3, 4, s.w_shape) / scale).astype("f4")
    for result in compare(RUNGS, s, {"x": x, "w": w}, engine="cuda", measure=False):
        assert result.error < 1e-6, result.rung


def test_offsets_beyond_two_to_the_31():
    """Checks the last image of a batch whose data matrix has 2.3e9 elements, on every rung."""
    s = ConvShape(N=11, C=16, H=512, W=512, K=2, R=7, S=7, pad=3)
    assert s.N * s.CRS * s.PQ > 2**31
    rng = np.random.default_rng(2)
    x = rng.standard_normal(s.x_shape, dtype=np.float32)
    w = rng.standard_normal(s.w_shape, dtype=np.float32)
    ref, scale = reference.conv(s.with_(N=1), x[-1:], w)
    for rung in conv_ladder.BASIC_RUNGS:
        session = cuda.open(rung.build(s, rung.default_tiles), {"x": x, "w": w})
        out = session.verify_run()
        session.close()
        assert agrees(out[-1:], ref, scale, rung.tolerance), rung.name


def test_measured_memory_equals_prediction():
    s = CONV_PRESETS["resnet50-res2-3x3-n1"].shape
    for result in compare(RUNGS, s, engine="cuda", budget=Budget(samples=5, seconds=0.5)):
        m, program = result.measurement, conv_ladder.LADDER.rung(result.rung).build(s, result.tiles)
        assert abs(m.workspace_bytes - result.predicted.workspace_bytes) < POOL_GRAIN
        assert abs(m.peak_bytes - program.nbytes()) < POOL_GRAIN * len(program.buffers)
        assert (m.workspace_bytes == 0) == (not program.of_role(WORKSPACE))


@pytest.mark.alone
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("key", ["toy", "resnet50-res2-1x1", "resnet50-res4-3x3-n32"])
def test_cold_and_hot_are_measured_separately(key, rung):
    """Hot is never slower. Neither includes the time that Python needs to launch."""
    budget = Budget(samples=100, seconds=2)
    cold = run(rung, CONV_PRESETS[key].shape, engine="cuda", mode="cold", budget=budget).measurement
    hot = run(rung, CONV_PRESETS[key].shape, engine="cuda", mode="hot", budget=budget).measurement
    assert (cold.mode, hot.mode) == ("cold", "hot")
    assert cold.n == hot.n == 100
    assert 0 < hot.median_ms <= cold.median_ms * 1.05
    assert cold.p20_ms <= cold.median_ms <= cold.p80_ms
