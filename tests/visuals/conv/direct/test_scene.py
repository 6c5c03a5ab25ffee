"""The scenes of direct convolution: they end with what the kernels stored, and their figures are the emulator's."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.ladders import find
from kernels.runner import compare
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes
from visuals.conv.direct import notes
from visuals.conv.direct.scene import CHANNELS, MANY_TERMS, ORDERS, arrays, direct_scene, shown
from visuals.conv.inputs import Inputs
from visuals.scene.payload import payload
from visuals.scene.scene import number

TOY = CONV_PRESETS["toy"].shape
HARD = ConvShape(
    1, 2, 6, 7, 3, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), mode="convolution"
)  # all options at once


def integers(s: ConvShape, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, s.x_shape).astype("f4"), rng.integers(-2, 3, s.w_shape).astype("f4")


def scene_of(s: ConvShape, order: str = "explaining", every_step: bool = False, **tiles: int):
    return direct_scene(Inputs(s, "numbers", "sobel-x"), order, find(ORDERS[order]).default_tiles | tiles, every_step)


# -- cells -----------------------------------------------------------------------------------------
@settings(max_examples=5)
@given(conv_shapes())
@pytest.mark.parametrize("order", ORDERS)
def test_a_scene_ends_with_the_output_of_what_it_shows(order, s):
    part, inputs = shown(s, order), Inputs(s, "numbers", "sobel-x")
    if any(find(ORDERS[order]).rules(part, find(ORDERS[order]).default_tiles)):
        return
    scene = scene_of(s, order)
    y = compare(["conv/direct"], part, arrays(inputs, part), engine="cpu", measure=False)[0].output
    np.testing.assert_array_equal(scene.cells("y"), y.ravel())
    payload(scene)


@settings(max_examples=5)
@given(conv_shapes())
def test_seven_loop_variables_address_the_pixel_and_the_tap(s):
    """h and w of conv.cuh, computed here from the loop variables of a caption, address exactly what is read."""
    s = shown(s)
    scene = scene_of(s, every_step=True)
    x, w = scene.cells("x").reshape(s.C, s.H, s.W), scene.cells("w").reshape(s.K, s.C, s.R, s.S)
    term = 0
    for t in range(scene.steps):
        if not (found := re.match(r"c = (\d+), r = (\d+), s = (\d+): ", scene.caption(t))):
            continue
        c, r, tap = map(int, found.groups())
        assert (c * s.R + r) * s.S + tap == term
        down, right = (s.R - 1 - r, s.S - 1 - tap) if s.mode == "convolution" else (r, tap)
        h, at = down * s.dilation_h - s.pad_h, right * s.dilation_w - s.pad_w
        inside = 0 <= h < s.H and 0 <= at < s.W
        assert f"= {number(h)}, w" in scene.caption(t) and f"= {number(at)}." in scene.caption(t)
        assert ("address" in scene.caption(t)) == inside and ("padding" in scene.caption(t)) != inside
        if inside:
            text = f"address {(c * s.H + h) * s.W + at} is {number(x[c, h, at])}. Its tap is {number(w[0, c, r, tap])}."
            assert text in scene.caption(t)
        term += 1
    assert term == s.CRS


@settings(max_examples=20)
@given(conv_shapes())
def test_hovered_output_equals_the_sum_over_its_receptive_field(s):
    s = shown(s)
    scene = scene_of(s)
    x, w, y = (scene.cells(name) for name in "xwy")
    (terms,) = scene.sums
    for i in range(y.size):
        span = slice(terms.start[i], terms.start[i + 1])
        assert len(set(terms.cells[span])) == len(terms.cells[span])  # no pixel twice
        np.testing.assert_allclose((w[terms.factors[span]] * x[terms.cells[span]]).sum(), y[i], atol=1e-4)
    for annotation in scene.annotations:
        if annotation.tensor == "x":  # read once per output whose field contains it, and once per filter
            counted = np.bincount(terms.cells, minlength=x.size)
            np.testing.assert_array_equal(annotation.captions.args[:, 2], counted)


def test_many_products_are_folded_unless_every_step_is_wanted():
    for s in (TOY, TOY.with_(C=2)):
        brief, whole = scene_of(s), scene_of(s, every_step=True)
        assert (brief.steps < whole.steps) == (s.CRS > MANY_TERMS)
        np.testing.assert_array_equal(brief.cells("y"), whole.cells("y"))
    assert brief.caption(3).startswith("Products 3 to 8: ")


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_has_a_small_scene(key):
    s = CONV_PRESETS[key].shape
    scene, part = scene_of(s), shown(s)
    meta, block = payload(scene)
    assert len(block) + len(json.dumps(meta)) < 230_000 and scene.steps < 1_200
    for name in ("R", "S", "stride", "pad", "dilation", "mode"):
        assert getattr(part, name) == getattr(s, name)
    assert min(s.maps, CHANNELS) == part.C and part.N == 1


def test_captions_count_the_zeros_of_a_window():
    scene = scene_of(ConvShape(1, 1, 3, 3, 1, 2, 2, pad=1))
    texts = [scene.caption(t) for t in range(scene.steps) if "Its window starts" in scene.caption(t)][1:]
    zeros = ["1 of these values is a zero" in t for t in texts], ["2 of these values are zeros" in t for t in texts]
    # Of 4 x 4 windows those at the edges have two zeros each, those at the corners three.
    assert sum(zeros[0]) == 0 and sum(zeros[1]) == 8
    assert sum("3 of these values are zeros of the padding." in t for t in texts) == 3


def test_annotations_name_pixels_and_taps_that_no_thread_uses():
    scene = scene_of(ConvShape(1, 1, 4, 4, 2, 1, 1, stride=3))
    pixels, taps = scene.annotations
    text = [pixels.captions.templates[kind] for kind in pixels.captions.kind]
    assert "in no window. No thread loads it." in text[1]
    assert "in 1 window. {2} threads load it: 1 window × 2 filters." in text[0]
    assert "multiplies the {5} outlined" in taps.captions.templates[taps.captions.kind[0]]
    far = scene_of(ConvShape(1, 1, 1, 1, 1, 2, 2, pad=1, stride=2))  # one window: three of its taps are on the padding
    used = [far.annotations[1].captions.templates[kind] for kind in far.annotations[1].captions.kind]
    assert ["only zeros of the padding" in text for text in used] == [True, True, True, False]
    assert "the outlined [pixel](input)." in used[3]


# -- counts --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("s", [TOY, HARD], ids=["toy", "hard"])
@pytest.mark.parametrize("order", ["explaining", "warps"])
def test_loads_are_those_that_the_emulator_counts(order, s):
    scene = scene_of(s, order)
    program = find("conv/direct").build(s, find("conv/direct").default_tiles)
    session = emulator.Session(program, dict(zip("xw", integers(s), strict=True)), emulator.Options())
    session.verify_run()
    last = {r.label: int(r.values[-1]) for r in scene.readings}
    assert session.counters is not None
    assert 4 * (last["pixels loaded"] + last["taps loaded"]) == session.counters.total["bytes_ld"]
    assert last["taps loaded"] == s.macs


def test_a_tiled_block_loads_each_pixel_and_tap_once():
    last = {r.label: int(r.values[-1]) for r in scene_of(TOY, "tiled").readings}
    assert last == {"pixels loaded": TOY.H * TOY.W, "taps loaded": TOY.K * TOY.R * TOY.S}


def test_the_patch_is_the_input_with_zeros_around_it():
    scene = scene_of(HARD, "tiled", TILE=8, TK=4, TP=2, CHUNK=2)
    patch = scene.tensor("patch")
    shown = scene.cells("patch", 1).reshape(patch.planes, patch.rows, patch.cols)
    inside = np.pad(scene.cells("x").reshape(HARD.C, HARD.H, HARD.W), ((0, 0), (1, 10), (2, 1)))
    np.testing.assert_array_equal(shown, inside[:, : patch.rows, : patch.cols])


# -- notes -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("s", [TOY, HARD, HARD.with_(N=2)], ids=str)
def test_values_read_equal_the_emulator_counters(s):
    program = find("conv/direct").build(s, find("conv/direct").default_tiles)
    _, counters = emulator.trace_launch(program, 0, dict(zip("xw", integers(s), strict=True)))
    assert 4 * notes.values_read(s) == counters.total["bytes_ld"]


@pytest.mark.parametrize("s", [TOY, ConvShape(1, 6, 20, 18, 10, 3, 3, pad=1)], ids=str)
def test_values_tiled_equal_the_emulated_shared_stores(s):
    rung, (x, w) = find("conv/direct-tiled"), integers(s)
    program = rung.build(s, rung.default_tiles)
    trace, _ = emulator.trace_launch(program, 0, {"x": x, "w": w})
    names = np.array(trace.buffers)[trace.buffer]
    copied = int((trace.write & (names == "shared")).sum())
    assert copied * np.prod(program.launch().grid) == notes.values_tiled(s)


def row(rung: str, ms: float) -> dict:
    return {"rung": rung, "engine": "cuda", "median_ms": ms, "p20_ms": 0.99 * ms, "p80_ms": 1.01 * ms}


@every(
    ("rows", "says"),
    [
        ([], ""),
        ([("conv/direct", 2.0)], ""),
        ([("conv/direct", 2.0), ("conv/direct-tiled", 1.0)], "faster here: 2× as fast as direct."),
        ([("conv/direct", 1.0), ("conv/direct-tiled", 1.0)], "no measurable difference here: the spreads"),
        ([("conv/direct", 1.0), ("conv/direct-tiled", 4.0)], "slower here: 4× the time of direct."),
        ([("conv/direct", 2.0), ("conv/im2col-cublas", 1.0)], "im2col + cuBLAS, is 2× as fast as our better kernel."),
        (
            [("conv/direct", 1.0), ("conv/im2col-cublas", 2.0)],
            "im2col + cuBLAS takes 2× the time of our better kernel.",
        ),
        ([("conv/direct", 1.0), ("conv/im2col-cublas", 1.005)], "no measurable difference between our better kernel"),
    ],
)
def test_gain_sentence(rows, says):
    text = notes.gain({name: row(name, ms) for name, ms in rows})
    assert text == says if not says else says in text
