"""conv/fft without a GPU: results at any shape, whole and tiled, and its rules, workspace and tolerance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import fft as conv_fft
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.engines.emulator.compiler.compile import ptxas_log
from kernels.model.program import WORKSPACE, RuleError
from kernels.model.verify import agrees, relative_error
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.helpers.rung_runs import computed, reference_and_scale, same_in_any_order
from tests.helpers.shapes import conv_shapes

RUNG = conv_fft.RUNGS[0]
MOST_ERROR = 2e-6  # relative L2, at any shape
TILES = [{"FFT_TILE": t, "SPECTRA": n} for t in RUNG.tiles["FFT_TILE"] for n in RUNG.tiles["SPECTRA"]]
ONLY_PADDING = ConvShape(1, 1, 1, 1, 1, 1, 1, stride=2, pad=1)  # the only pixel is under no window
some_shapes = st.builds(
    lambda s, bias, relu: s.with_(bias=bias, relu=relu), conv_shapes(max_extent=3), st.integers(0, 1), st.integers(0, 1)
)


def output(engine, s: ConvShape, tiles: dict, options=None):
    """Returns (output, reference, scale, inputs) of a run with all buffers poisoned before."""
    out, inputs = computed(engine, RUNG, s, tiles, options=options)
    return out, *reference_and_scale(RUNG, s, tiles, inputs), inputs


def check(engine, s: ConvShape, tiles: dict) -> None:
    out, ref, scale, _ = output(engine, s, tiles)
    assert out.shape == s.y_shape and out.dtype == np.float32
    assert agrees(out, ref, scale, RUNG.tolerance)
    if np.linalg.norm(ref) > 0.1 * np.linalg.norm(np.broadcast_to(scale, ref.shape)) / math.sqrt(s.CRS):
        assert relative_error(out, ref) < MOST_ERROR


# -- results at any shape ---------------------------------------------------------------------------
@settings(max_examples=5)
@example(s=ONLY_PADDING, tiles=TILES[0])
@given(s=some_shapes, tiles=st.sampled_from(TILES))
def test_emulator_agrees_with_the_reference_at_any_shape(s, tiles):
    check(emulator, s, tiles)


@settings(max_examples=20)
@example(s=ONLY_PADDING, tiles=TILES[0])
@given(s=some_shapes, tiles=st.sampled_from(TILES))
def test_cpu_agrees_with_the_reference_at_any_shape(s, tiles):
    check(cpu, s, tiles)


@pytest.mark.parametrize("tiles", [TILES[0], TILES[3], TILES[4]], ids=str)
def test_more_filters_maps_and_images_than_a_block_has(tiles):
    """Covers several blocks in each direction, none of them full, and several transforms over an image."""
    check(emulator, ConvShape(3, 5, 21, 34, 34, 3, 5, stride=(2, 1), pad=(1, 2), bias=1), tiles)


@settings(max_examples=12)
@given(
    H=st.integers(1, 70),
    W=st.integers(1, 70),
    R=st.integers(1, 7),
    S=st.integers(1, 7),
    u=st.integers(1, 4),
    pad=st.integers(0, 8),
    dilation=st.integers(1, 2),
)
def test_parts_of_an_image_equal_the_whole(H, W, R, S, u, pad, dilation):
    H, W = (max(n, dilation * (taps - 1) + 1 - 2 * pad) for n, taps in ((H, R), (W, S)))
    s = ConvShape(1, 2, H, W, 2, R, S, stride=(u, 1), pad=pad, dilation=dilation)
    whole, _, scale, _ = output(cpu, s, {"FFT_TILE": 0})
    for tile in (16, 32):
        assert np.all(np.abs(output(cpu, s, {"FFT_TILE": tile})[0] - whole) <= RUNG.tolerance * scale)


@pytest.mark.parametrize("shape", [CONV_PRESETS["lenet-conv1"].shape, ConvShape(1, 512, 7, 7, 8, 3, 3, pad=1)])
def test_layers_on_the_cpu(shape):
    for tile in RUNG.tiles["FFT_TILE"]:
        out, ref, scale, _ = output(cpu, shape, {"FFT_TILE": tile})
        assert agrees(out, ref, scale, RUNG.tolerance)
        assert relative_error(out, ref) < MOST_ERROR


def test_warp_order_changes_nothing_and_no_races():
    s, tiles = ConvShape(2, 9, 11, 12, 33, 3, 3, pad=1), {"FFT_TILE": 16}
    same_in_any_order(lambda options: output(emulator, s, tiles, options)[0], ("forward", 1))


# -- faults ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("tile", [0, 16])
def test_array_gives_no_more_outputs_than_its_size_minus_the_span(monkeypatch, tile):
    """With one output more per transform, its window wraps around: the argument of fft's docstring does not hold."""
    s = ConvShape(
        1, 2, 16, 18, 2, 3, 3
    )  # the whole array is 16 x 18: both products of 2, 3, 5 and 7, without extra rows
    check(cpu, s, {"FFT_TILE": tile})
    original_cut = conv_fft.cut

    def too_large_step(s, tiles):
        cut_struct = original_cut(s, tiles).copy()
        cut_struct["step_h"] += 1
        return cut_struct

    shape = s.with_(H=s.H + 1) if not tile else s.with_(H=31)
    monkeypatch.setattr(conv_fft, "good_size", lambda n: n - 1 if n == shape.H else n)
    check(cpu, shape, {"FFT_TILE": tile})  # an array that is too small by one is cut in two, with right results
    monkeypatch.setattr(conv_fft, "cut", too_large_step)
    out, ref, scale, _ = output(cpu, shape, {"FFT_TILE": tile})
    assert not agrees(out, ref, scale, RUNG.tolerance)


@pytest.mark.parametrize("C", [1, 64, 512])
def test_lost_product_is_detected(C):
    """The scale is larger than the definition's, but one typical lost product still exceeds the tolerance."""
    s = ConvShape(1, C, 12, 12, 3, 3, 3)
    out, ref, scale, inputs = output(cpu, s, {"FFT_TILE": 0})
    assert agrees(out, ref, scale, RUNG.tolerance)
    products = np.abs(inputs["x"][0, :, 4:7, 5:8] * inputs["w"][1])
    out[0, 1, 4, 5] -= np.median(products)
    assert not agrees(out, ref, scale, RUNG.tolerance)


# -- sizes, rules, workspace -----------------------------------------------------------------------
@settings(max_examples=20)
@given(st.integers(1, 4000))
def test_good_sizes_are_the_smallest(n):
    def smooth(m):
        for p in (2, 3, 5, 7):
            while m % p == 0:
                m //= p
        return m == 1

    assert conv_fft.good_size(n) == next(m for m in range(n, 2 * n + 1) if smooth(m))


@settings(max_examples=20)
@given(s=conv_shapes(max_extent=4), tiles=st.sampled_from(TILES))
def test_transforms_cover_every_output(s, tiles):
    cut_struct = conv_fft.cut(s, tiles)
    assert (
        cut_struct["down"] * cut_struct["step_h"] > (s.P - 1) * s.u >= (cut_struct["down"] - 1) * cut_struct["step_h"]
    )
    assert (
        cut_struct["across"] * cut_struct["step_w"]
        > (s.Q - 1) * s.v
        >= (cut_struct["across"] - 1) * cut_struct["step_w"]
    )
    assert tiles["FFT_TILE"] or (cut_struct["down"], cut_struct["across"]) == (1, 1)
    assert tiles["FFT_TILE"] or (
        cut_struct["rows"] >= s.H + s.pad_h + s.after[0] and cut_struct["columns"] >= s.W + s.pad_w + s.after[1]
    )


@every(
    ("shape", "tiles", "message"),
    [
        (ConvShape(1, 4, 8, 8, 4, 3, 3, groups=2), {}, "groups must be 1, got 2"),
        (ConvShape(1, 1, 40, 8, 1, 17, 3), {"FFT_TILE": 16}, r"dilation_h\*\(R-1\)\+1 <= FFT_TILE \(16\), got 17"),
        (
            ConvShape(1, 1, 8, 80, 1, 3, 9, dilation=(1, 4)),
            {"FFT_TILE": 32},
            r"dilation_w\*\(S-1\)\+1 <= FFT_TILE \(32\), got 33",
        ),
        (ConvShape(1, 1, 32_767, 8, 1, 3, 3, pad=1), {}, r"H\+2\*pad_h <= 32768, got 32769"),
        (ConvShape(65_536, 1, 3, 3, 1, 3, 3), {}, r"N <= 65535 \(grid.y\), got 65536"),
        (ConvShape(1, 1, 3, 3, 65_536, 3, 3), {}, r"K <= 65535 \(grid.y\), got 65536"),
        (ConvShape(2000, 1, 90, 90, 1, 3, 3), {"FFT_TILE": 16}, r"N\*down\*across <= 65535 \(grid.y\), got 98000"),
        (ConvShape(1, 2**17, 126, 126, 1, 3, 3, pad=1), {}, r"C\*rows\*columns must stay below 2\^31 - 256, got"),
    ],
)
def test_rules_are_named_with_their_values(shape, tiles, message):
    with pytest.raises(RuleError, match=message):
        RUNG.check(shape, tiles)


def test_workspace_limit_names_its_bytes_and_tiles_reduce_it():
    """512 x 512 filters of 3 x 3, padded to 224 x 224, and their spectra need more than a hundred gigabytes."""
    s = ConvShape(1, 512, 224, 224, 512, 3, 3)
    filters = 4 * 512 * 512 * (224 * 224 + 2 * 224 * 113)
    images = 2 * 4 * 512 * (224 * 224 + 2 * 224 * 113)
    with pytest.raises(RuleError) as error:
        RUNG.check(s, {"FFT_TILE": 0})
    assert f"must not exceed {16 * 2**30:,} bytes, got {filters + images:,}" in str(error.value)
    assert f"{filters:,}" in str(error.value)
    tiles = RUNG.check(s, {"FFT_TILE": 32})
    assert RUNG.build(s, tiles).nbytes(WORKSPACE) == 4 * (512 * 512 + 2 * 64 * 512) * (32 * 32 + 2 * 32 * 17)


def test_predicted_workspace_equals_allocated():
    s = CONV_PRESETS["lenet-conv1"].shape
    program = RUNG.build(s, RUNG.default_tiles)
    predicted = RUNG.cost(s, program).workspace_bytes
    assert predicted == 4 * (1 + 6 + 6) * (32 * 32 + 2 * 32 * 17)
    assert {b.name for b in program.of_role(WORKSPACE)} == {f"{a}_{k}" for a in "xwy" for k in ("padded", "spectra")}


def test_strides_do_not_reduce_executed_flops():
    """The transforms are the same at stride 1 and 2. Direct convolution has a quarter of its FLOPs at stride 2."""
    s = ConvShape(1, 8, 64, 64, 8, 3, 3, pad=1)
    stride_1, stride_2 = (conv_fft.executed_flops(s.with_(u=n, v=n), RUNG.default_tiles) for n in (1, 2))
    assert stride_1 == RUNG.cost(s, RUNG.build(s, RUNG.default_tiles)).flops
    assert stride_1 == stride_2 and s.with_(u=2, v=2).flops * 3.9 < s.flops
    products = 8 * 8 * 8 * 70 * 36  # 66 x 66 becomes 70 x 70: complex products of 70 x 36 frequencies
    assert stride_2 - products == round(2.5 * 70 * 70 * math.log2(70 * 70) * (8 + 64 + 8))


@needs_nvrtc
def test_no_kernel_spills():
    program = RUNG.build(ConvShape(1, 1, 8, 8, 2, 3, 3), RUNG.default_tiles)
    for step in program.steps:
        for spectra in RUNG.tiles["SPECTRA"]:
            if hasattr(step, "source"):
                log = ptxas_log(sources.translation_unit(step.source), step.source, (("SPECTRA", spectra),))
                assert "0 bytes spill stores" in log, step.name
