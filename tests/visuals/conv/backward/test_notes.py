"""The sentences about the figures of convolution's gradients: their numbers are those of the programs and the links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kernels.conv.backward.presets import BACKWARD_PRESETS
from kernels.conv.backward.transpose import PRESETS as TRANSPOSE_PRESETS
from kernels.conv.shape import ConvShape
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes
from visuals import units
from visuals.conv.backward import notes
from visuals.conv.backward.links import Links

ROW = {"engine": "cuda", "device": "a GPU", "p20_ms": 0.0, "p80_ms": 0.0}


def row(rung: str, ms: float) -> dict:
    return ROW | {"rung": rung, "median_ms": ms, "p20_ms": 0.99 * ms, "p80_ms": 1.01 * ms}


@settings(max_examples=20)
@given(conv_shapes(max_extent=4))
def test_links_are_those_of_the_plan(s):
    assert notes.links(s) * s.C == Links(s).additions.sum() == int((Links(s).pixel >= 0).sum())


@settings(max_examples=20)
@given(conv_shapes(max_extent=4))
def test_the_most_additions_to_a_pixel_are_those_of_the_plan(s):
    assert notes.most_additions(s) == Links(s).additions.max()


@pytest.mark.parametrize("key", TRANSPOSE_PRESETS)
def test_every_transposed_preset_has_sentences(key):
    text = notes.transpose_cost(TRANSPOSE_PRESETS[key].shape)
    assert text.endswith(".") and "{" not in text and "gradient" not in text


def test_additions_of_a_transposed_convolution():
    t = TRANSPOSE_PRESETS["transpose-toy"].shape
    text = notes.transpose_cost(t)
    assert f"By atomics, {Links(t.conv).additions.sum()} additions go to 72 outputs." in text
    assert "The 4 phases of the implicit product" in text


def test_transposed_kernels_are_compared():
    gather, atomics = (f"conv-transpose/gemm-{name}" for name in ("gather", "atomics"))
    text = notes.transpose_gain({gather: row(gather, 1.0), atomics: row(atomics, 2.0)})
    assert text == "“our GEMM + col2im by gather” is 2× as fast as “our GEMM + col2im by atomics”."


@every("key", BACKWARD_PRESETS)
def test_every_preset_has_sentences(key):
    s = BACKWARD_PRESETS[key].shape
    for text in (notes.dinput_cost(s), notes.dweight_cost(s)):
        assert text.endswith(".") and "{" not in text


def test_additions_and_pixels():
    text = notes.dinput_cost(BACKWARD_PRESETS["backward-stride-toy"].shape)
    added = Links(BACKWARD_PRESETS["backward-stride-toy"].shape).additions.sum()
    assert f"By atomics, {added} additions go to 36 pixels." in text
    assert "The 4 phases of the implicit product" in text


def test_parts_of_a_layer():
    text = notes.dweight_cost(BACKWARD_PRESETS["backward-resnet50-res2-3x3-n32"].shape)
    assert "Each of the 36,864 taps is a sum of 100,352 products" in text
    assert "The gradient has only 9 tiles of 64 × 64. Cut into 44 parts" in text
    assert f"the parts take {units.bytes_(4 * 44 * 36_864)}" in text
    assert "one part" in notes.dweight_cost(ConvShape(1, 1, 4, 4, 1, 3, 3))


def test_gain_compares_the_pairs_that_were_measured():
    rows = {name: row(name, ms) for name, ms in ((notes.GATHER, 1.0), (notes.ATOMICS, 2.0), (notes.PHASES, 0.5))}
    text = notes.dinput_gain(rows)
    assert text == "“our GEMM + col2im by gather” is 2× as fast as “our GEMM + col2im by atomics”."
    rows["conv-dinput/cudnn-algo-1"] = row("conv-dinput/cudnn-algo-1", 0.4)
    assert notes.dinput_gain(rows).endswith("“implicit GEMM by phases” takes 1.25× the time of “cuDNN ALGO_1”.")
    same = {name: row(name, 1.0) for name in (notes.PARTS, notes.PARTS_ATOMICS)}
    assert "their spreads overlap" in notes.dweight_gain(same)
    assert notes.dweight_gain({}) == ""
