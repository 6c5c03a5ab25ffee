"""The scene of direct convolution: its cells, indices and counts are equal to the kernel's."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.ladders import find
from kernels.runner import compare
from tests.helpers.shapes import conv_shapes
from visuals.conv.direct import notes
from visuals.conv.direct import scene as scene_module
from visuals.conv.direct import warps as direct_warps
from visuals.conv.direct.scene import MANY_TERMS, PIXEL, STORE, TERM, ZERO, direct_scene, folded_scene, part_shown
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import gather_index
from visuals.scene.payload import payload
from visuals.scene.scene import number

RUNG = find("conv/direct")
HARD = ConvShape(
    1, 2, 6, 7, 3, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), mode="convolution"
)  # all options at once


def integers(s: ConvShape, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, s.x_shape).astype("f4"), rng.integers(-2, 3, s.w_shape).astype("f4")


def scene_of(s: ConvShape):
    x, w = integers(s)
    y = compare(["conv/direct"], s, {"x": x, "w": w}, engine="cpu", measure=False)[0].output
    part = part_shown(s)
    shown = y[0, : part.K, part.p : part.p + part.P, part.q : part.q + part.Q]
    return direct_scene(s, part, x, w, shown), part, x, w, shown


def traced(s: ConvShape, x, w):
    """Returns (trace of block 0, counters of the whole launch, blocks)."""
    program = RUNG.build(s, RUNG.default_tiles)
    return *emulator.trace_launch(program, 0, {"x": x, "w": w}), program.steps[0].grid[0]


# -- folded steps ----------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes())
def test_a_folded_scene_ends_its_products_with_the_same_values(s):
    scene = scene_of(s)[0]
    brief = folded_scene(scene)
    stored, new = (int(np.flatnonzero(found.captions.kind == STORE)[0]) for found in (scene, brief))
    assert new == (4 if stored > MANY_TERMS else stored)
    if new < stored:
        assert brief.caption(2).startswith(f"Products 3 to {stored - 1}: ") and brief.key != scene.key
    after = [(t, t) for t in range(2)] + [(2, stored - 2)] * (new < stored)
    after += [(new + t, stored + t) for t in range(-1, scene.steps - stored)]
    for t, old in after if stored > 3 else ():
        for name in ("win", "tap", "prod", "sum", "y"):
            np.testing.assert_array_equal(brief.cells(name, t), scene.cells(name, old))


# -- cells -----------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes())
def test_every_output_is_the_sum_of_the_visible_products(s):
    scene, part, _, _, y = scene_of(s)
    np.testing.assert_array_equal(scene.cells("y"), y.ravel())
    for t in np.flatnonzero(scene.captions.kind >= STORE):
        (pixel,) = (c for c, when in zip(scene.write("y").cells, scene.write("y").steps, strict=True) if when == t)
        rest = y.ravel()[pixel] - scene.cells("prod", t).sum()  # of channels that are not visible
        assert scene.cells("sum", t) == y.ravel()[pixel] and (rest == 0 or part.C < s.C)
        np.testing.assert_array_equal(scene.cells("prod", t), scene.cells("win", t) * scene.cells("tap", t))


@settings(max_examples=20)
@given(conv_shapes())
def test_seven_loop_variables_address_the_pixel_and_the_tap(s):
    """h and w of conv.cuh, computed here from the loop variables on the stage, address exactly what is copied."""
    scene, _, x, w, _ = scene_of(s)
    loops = {r.label: r.values for r in scene.readings}
    term = 0
    for t, kind in enumerate(scene.captions.kind):
        if kind not in (TERM, ZERO):
            continue
        k, p, q, c, r, tap = (int(loops[name][t]) for name in "kpqcrs")
        assert (c * s.R + r) * s.S + tap == term
        down, right = (s.R - 1 - r, s.S - 1 - tap) if s.mode == "convolution" else (r, tap)
        h, at = p * s.u - s.pad_h + down * s.dilation_h, q * s.v - s.pad_w + right * s.dilation_w
        inside = 0 <= h < s.H and 0 <= at < s.W
        assert (kind == TERM) == inside
        assert scene.cells("win", t)[term] == (x[0, c, h, at] if inside else 0)
        assert scene.cells("tap", t)[term] == w[k, c, r, tap]
        assert f"= {number(h)}, w" in scene.caption(t) and f"= {number(at)}" in scene.caption(t)
        assert ("address" in scene.caption(t)) == inside and ("padding" in scene.caption(t)) != inside
        if inside:
            assert f"address {(c * s.H + h) * s.W + at} is {number(x[0, c, h, at])}" in scene.caption(t)
        term += 1
    assert term == scene.tensor("win").size


@settings(max_examples=20)
@given(conv_shapes())
def test_hovered_output_equals_the_sum_over_its_receptive_field(s):
    scene, part, *_ = scene_of(s)
    x, w, y = (scene.cells(name) for name in "xwy")
    (terms,) = scene.sums
    for i in range(y.size):
        span = slice(terms.start[i], terms.start[i + 1])
        assert len(set(terms.cells[span])) == len(terms.cells[span])  # no pixel twice
        if part.C == s.C:
            assert (w[terms.factors[span]] * x[terms.cells[span]]).sum() == y[i]
    for annotation in scene.annotations:
        if annotation.tensor == "x":  # read once per output whose field contains it, and once per filter
            counted = np.bincount(terms.cells, minlength=x.size)
            np.testing.assert_array_equal(annotation.captions.args[:, 1] * part.K, counted)
            np.testing.assert_array_equal(annotation.captions.args[:, 2] * part.K, counted * s.K)


def test_missing_filter_flip_is_detected(monkeypatch):
    """The test above must detect a scene that reads a flipped window forwards."""
    straight = scene_module.gather_index
    monkeypatch.setattr(scene_module, "gather_index", lambda s, part: straight(s.with_(mode="cross-correlation"), part))
    scene, part, _, _, y = scene_of(HARD)
    stored = int(np.flatnonzero(scene.captions.kind == STORE)[0])
    products = scene.cells("win", stored) * scene.cells("tap", stored)
    assert part.C == HARD.C and products.sum() != y.ravel()[0]


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_has_a_small_scene_that_names_its_part(key):
    s = CONV_PRESETS[key].shape
    inputs = Inputs(s, "digit", "sobel-x")
    part = part_shown(s, inputs.planes()[0])
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    scene = direct_scene(s, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
    meta, block = payload(scene)
    assert len(block) + len(json.dumps(meta)) < 230_000 and scene.steps < 1_200
    whole = (s.C, s.K, s.P, s.Q) == (part.C, part.K, part.P, part.Q)
    assert any("part" in t.note or "filters 0" in t.note for t in scene.tensors) != whole


def test_dilation_leaves_gaps_and_captions_say_so():
    s = ConvShape(1, 1, 8, 8, 1, 3, 3, dilation=2)
    scene, *_ = scene_of(s)
    (terms,) = scene.sums
    rows, cols = np.divmod(terms.cells[:9], 8)
    assert sorted(set(rows)) == [0, 2, 4] == sorted(set(cols))
    assert "Dilation sets its taps 2 × 2 pixels apart." in scene.caption(
        int(np.flatnonzero(scene.captions.kind == PIXEL)[0])
    )


def test_captions_count_the_zeros_of_a_window():
    s = ConvShape(1, 1, 3, 3, 1, 2, 2, pad=1)
    scene, part, *_ = scene_of(s)
    zeros = (gather_index(s, part) < 0).sum(axis=0)
    for t in np.flatnonzero(scene.captions.kind >= PIXEL):
        count, caption = int(zeros[scene.write("y").cells[scene.write("y").steps == t][0]]), scene.caption(t)
        assert ("1 of these values is a zero of the padding." in caption) == (count == 1)
        assert (f"{count} of these values are zeros of the padding." in caption) == (count > 1)
        assert "multiplies 4 values of the window by their taps." in caption


def test_annotations_name_pixels_and_taps_that_no_thread_uses():
    s = ConvShape(1, 1, 4, 4, 2, 1, 1, stride=3)
    scene, *_ = scene_of(s)
    pixels, taps = scene.annotations
    text = [pixels.captions.templates[kind] for kind in pixels.captions.kind]
    assert "in no window. No thread loads it." in text[1]
    assert "in 1 window. {2} threads load it: 1 window × 2 filters." in text[0]
    assert "multiplies the {5} outlined" in taps.captions.templates[taps.captions.kind[0]]
    far, *_ = scene_of(
        ConvShape(1, 1, 1, 1, 1, 2, 2, pad=1, stride=2)
    )  # one window: three of its taps are on the padding
    used = [far.annotations[1].captions.templates[kind] for kind in far.annotations[1].captions.kind]
    assert ["only zeros of the padding" in text for text in used] == [True, True, True, False]
    assert "the outlined [pixel](input)." in used[3]


# -- in warp order -----------------------------------------------------------------------------------
@pytest.mark.parametrize("s", [CONV_PRESETS["toy"].shape, HARD], ids=["toy", "hard"])
def test_first_steps_equal_the_trace_of_the_first_thread(s):
    scene, _, x, w, y = scene_of(s)
    trace, *_ = traced(s, x, w)
    names = np.array(trace.buffers)[trace.buffer]
    reads = (trace.thread == 0) & ~trace.write
    expected = [
        scene.write("win").index[t]
        for t, kind in enumerate(scene.captions.kind[: scene.tensor("win").size])
        if kind == TERM
    ]
    assert trace.element[reads & (names == "x")].tolist() == expected
    assert trace.element[reads & (names == "w")].tolist() == list(range(s.CRS))
    stored = (trace.thread == 0) & trace.write
    assert trace.element[stored].tolist() == [0] and trace.value[stored] == y.ravel()[0]


@pytest.mark.parametrize("s", [CONV_PRESETS["toy"].shape, HARD], ids=["toy", "hard"])
def test_sectors_in_warp_order_equal_the_counters(s):
    scene, part, x, w, y = scene_of(s)
    assert direct_warps.why_not(s, part) == ""
    trace, counters, blocks = traced(s, x, w)
    warps = direct_warps.in_warp_order(scene, s, trace, counters, blocks)
    np.testing.assert_array_equal(warps.cells("y"), y.ravel())
    last = {r.label: int(r.values[-1]) for r in warps.readings}
    if blocks == 1:
        assert last["sectors of x"] + last["sectors of w"] == counters.total["sectors_ld"]
        assert last["sectors stored"] == counters.total["sectors_st"]
        assert last["requests"] == len(trace.requests)
    for read in warps.reads:
        cells = {c for t in range(warps.steps) for c in read.cells[read.start[t] : read.start[t + 1]]}
        names = np.array(trace.buffers)[trace.buffer]
        assert cells == set(trace.element[(names == read.source) & ~trace.write])
    # A lane over the padding loads nothing: fewer active lanes than the warp has.
    pixels = warps.captions.args[np.isin(warps.captions.kind, (direct_warps.PIXELS, direct_warps.ONE_PIXEL))]
    assert (pixels[:, 1] < pixels[:, 11]).any() == (s is HARD)


@given(conv_shapes())
@settings(max_examples=20)
def test_why_not_names_shapes_that_are_too_large(s):
    part = part_shown(s)
    reason = direct_warps.why_not(s, part)
    whole = s.N == 1 and (s.C, s.K, s.P, s.Q) == (part.C, part.K, part.P, part.Q)
    assert bool(reason) == (not whole or direct_warps.max_requests(s) > direct_warps.MAX_REQUESTS)


# -- notes -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("s", [CONV_PRESETS["toy"].shape, HARD, HARD.with_(N=2)], ids=str)
def test_values_read_equal_the_emulator_counters(s):
    x, w = integers(s)
    _, counters, _ = traced(s, x, w)
    assert 4 * notes.values_read(s) == counters.total["bytes_ld"]


@pytest.mark.parametrize("s", [CONV_PRESETS["toy"].shape, ConvShape(1, 6, 20, 18, 10, 3, 3, pad=1)], ids=str)
def test_values_tiled_equal_the_emulated_shared_stores(s):
    rung, (x, w) = find("conv/direct-tiled"), integers(s)
    program = rung.build(s, rung.default_tiles)
    trace, _ = emulator.trace_launch(program, 0, {"x": x, "w": w})
    names = np.array(trace.buffers)[trace.buffer]
    copied = int((trace.write & (names == "shared")).sum())
    assert copied * np.prod(program.steps[0].grid) == notes.values_tiled(s)


def row(rung: str, ms: float) -> dict:
    return {"rung": rung, "engine": "cuda", "median_ms": ms, "p20_ms": 0.99 * ms, "p80_ms": 1.01 * ms}


@pytest.mark.parametrize(
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
