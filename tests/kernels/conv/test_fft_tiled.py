"""conv/fft-tiled without a GPU: results at any shape, tiles that wrap around an image, parts, and its rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels.conv import fft_tiled, fft_tiled_cpu
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, emulator
from kernels.model.program import WORKSPACE
from kernels.model.verify import agrees, relative_error
from kernels.runner import seeded_inputs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.rung_runs import UNCOUNTED, computed, reference_and_scale, same_in_any_order
from tests.helpers.shapes import conv_shapes

RUNG = fft_tiled.RUNG
SIZES = [{"FFT_TILE": size} for size in RUNG.tiles["FFT_TILE"]]
PERIODIC = ConvShape(5, 6, 7, 7, 9, 3, 3, pad=1)  # 7 + 1 rows: the padding at both ends is the same row of 8
SEVERAL = ConvShape(2, 5, 21, 17, 9, 3, 5, stride=(2, 1), pad=(1, 2), bias=1, relu=1, mode="convolution")


def check(engine, s: ConvShape, tiles: dict, options=None) -> None:
    tiles = RUNG.default_tiles | tiles
    if any(RUNG.rules(s, tiles)):
        return
    out, inputs = computed(engine, RUNG, s, tiles, options=options)
    ref, scale = reference_and_scale(RUNG, s, tiles, inputs)
    assert out.shape == s.y_shape and out.dtype == np.float32
    assert agrees(out, ref, scale, RUNG.tolerance)


@settings(max_examples=20)
@example(s=PERIODIC, tiles=SIZES[1])
@given(s=conv_shapes(max_extent=5), tiles=st.sampled_from(SIZES))
def test_cpu_agrees_with_the_reference_at_any_shape(s, tiles):
    check(cpu, s, tiles)


@needs_nvrtc
@settings(max_examples=3)
@given(s=conv_shapes(max_extent=3), tiles=st.sampled_from(SIZES))
def test_emulator_agrees_with_the_reference_at_any_shape(s, tiles):
    check(emulator, s, tiles)


@needs_nvrtc
@pytest.mark.parametrize(("s", "size"), [(PERIODIC, 8), (SEVERAL, 16), (SEVERAL, 32)], ids=str)
def test_kernel_and_cpu_write_the_same_to_every_buffer(s, size):
    """Compares every buffer, also the zeros that pad a row to a multiple of 4."""
    program = RUNG.build(s, RUNG.check(s, {"FFT_TILE": size, "BN": 32}))
    inputs = seeded_inputs(program.of_role("input"))
    emulated, on_cpu = emulator.Session(program, inputs, UNCOUNTED), cpu.open(program, inputs)
    assert relative_error(emulated.verify_run(), on_cpu.verify_run()) < 2e-6
    for b in program.of_role(WORKSPACE):
        expected = on_cpu.arrays[b.name]
        np.testing.assert_allclose(emulated.memory.array(b.name), expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@needs_nvrtc
def test_warp_order_changes_nothing_and_no_races():
    def run(options):
        out, _ = computed(emulator, RUNG, PERIODIC, RUNG.default_tiles, options=options)
        return out

    same_in_any_order(run)


@pytest.mark.parametrize("size", fft_tiled.SIZES)
def test_stored_frequencies_are_half_of_a_spectrum(size):
    """Every other frequency is the conjugate of one that is stored."""
    rows, columns = fft_tiled_cpu.stored(size)
    assert len(rows) == fft_tiled.frequencies(size)
    points = set(zip(rows.tolist(), columns.tolist(), strict=True))
    mirrored = {(-row % size, -column % size) for row, column in points}
    assert len(points) == len(rows) and len(points | mirrored) == size * size


@pytest.mark.parametrize(
    "stage, size, count", [(2, 16, 512), (3, 16, 128), (4, 16, 32), (5, 8, 32)], ids=lambda n: str(n)
)
def test_each_stage_of_resnet_has_tiles_without_waste(stage, size, count):
    """At res5 an image of 7 x 7 is one tile of 8 x 8, which wraps around."""
    s = CONV_PRESETS[f"resnet50-res{stage}-3x3-n32"].shape
    cut = fft_tiled.cut(s, RUNG.default_tiles)
    assert (cut["rows"], fft_tiled.tile_count(s, cut)) == (size, count)


def test_a_tile_that_does_not_wrap_is_cut_again():
    """With two rows of padding an image of 7 rows needs 9 rows, so 8 rows do not cover it."""
    assert fft_tiled._axis(8, span=3, pad=1, extent=7, outputs=7) == (7, 1)
    assert fft_tiled._axis(8, span=3, pad=2, extent=7, outputs=9) == (6, 2)
    assert fft_tiled._axis(8, span=3, pad=0, extent=8, outputs=6) == (6, 1)
    assert fft_tiled._axis(8, span=3, pad=1, extent=7, outputs=8) == (6, 2)  # more padding below than above


def test_many_channels_are_added_in_parts():
    s = PERIODIC.with_(C=150, N=2)
    (*_, sums) = RUNG.build(s, RUNG.default_tiles).of_role(WORKSPACE)
    assert sums.name == "Z" and sums.shape[0] > 1
    check(cpu, s, {})


def test_rules_name_what_is_too_large():
    def first(s, **tiles):
        return next(RUNG.rules(s, RUNG.default_tiles | tiles), "")

    assert "FFT_TILE (8)" in first(PERIODIC.with_(R=9, H=12), FFT_TILE=8)
    assert "FFT_TILE (32)" in first(PERIODIC.with_(R=33, H=40))
    assert "shared memory" in first(PERIODIC, BM=128, BK=16)
    assert "groups" in first(PERIODIC.with_(groups=3))
    assert "workspace" in first(ConvShape(512, 512, 224, 224, 512, 3, 3, pad=1))
