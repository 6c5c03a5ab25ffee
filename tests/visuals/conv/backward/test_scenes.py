"""The scenes of convolution's gradients: their cells, links and counts are those of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.backward.presets import BACKWARD_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import run, seeded_inputs
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes
from visuals.conv.backward import winograd_cells
from visuals.conv.backward.links import HOLE, OUTSIDE, Links
from visuals.conv.backward.scene import SCENES, backward_scene, folds, why_not
from visuals.conv.watched import watched
from visuals.conv.winograd.part import terms as TERMS
from visuals.scene.payload import payload
from visuals.scene.scene import number

TOY = BACKWARD_PRESETS["backward-stride-toy"].shape
# All options at once, and a sum that is cut into several parts.
HARD = ConvShape(2, 2, 6, 7, 3, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), mode="convolution")
MANY_PARTS = ConvShape(1, 1, 16, 16, 2, 3, 3, pad=1)
DENSE = ConvShape(2, 2, 7, 5, 2, 3, 3, pad=(1, 2), mode="convolution")  # for Winograd's kernels: no stride, 3 x 3
PARTS, PARTS_ATOMICS = "conv-dweight/implicit-gemm", "conv-dweight/implicit-gemm-atomics"
WINOGRAD, WINOGRAD_FILTERS = "conv-dinput/winograd", "conv-dweight/winograd"
OWN = [rung for rung in SCENES if not rung.startswith("conv-transpose")]
DIRECT, ATOMICS, GEMM = "conv-dinput/direct", "conv-dinput/gemm-atomics", "conv-dweight/im2col-gemm"
CASES = [(rung, DENSE if why_not(HARD, rung, {}) else HARD) for rung in OWN]
CASES += [(rung, MANY_PARTS) for rung in OWN if rung.startswith("conv-dweight/implicit")]
RESULT = {"conv-dinput": "dx", "conv-dweight": "dw"}


def inputs_of(rung: str, s: ConvShape, whole: bool = False) -> dict[str, np.ndarray]:
    program = find(rung).build(s, find(rung).default_tiles)
    arrays = seeded_inputs(program.of_role(INPUT))
    return {name: np.round(3 * a) if whole else a for name, a in arrays.items()}


def result(rung: str) -> str:
    return RESULT[rung.partition("/")[0]]


def assert_ends_with_the_result(rung: str, s: ConvShape) -> None:
    """Asserts that the last cells are those that the kernel stored: the build that is measured may round some sums in another order."""
    if result(rung) == "dx":
        s = s.with_(N=1)
    inputs = inputs_of(rung, s)
    scene = backward_scene(rung, s, {}, inputs)
    stored = run(rung, s, inputs, engine="emulator", measure=False).output
    np.testing.assert_allclose(scene.cells(result(rung)), stored.ravel(), rtol=1e-5, atol=1e-5)
    payload(scene)
    for t in range(scene.steps):
        assert scene.caption(t) and scene.source_at(t)[1] > 0


@pytest.mark.parametrize(("rung", "s"), CASES, ids=str)
def test_a_scene_ends_with_what_the_kernel_stored(rung, s):
    assert_ends_with_the_result(rung, s)


@pytest.mark.parametrize("rung", OWN)
@settings(max_examples=2)
@given(s=conv_shapes(max_extent=3))
def test_a_scene_of_any_shape_ends_with_what_the_kernel_stored(rung, s):
    if not why_not(s, rung, {}):
        assert_ends_with_the_result(rung, s)


@pytest.mark.parametrize("rung", [*filter(folds, OWN)])
def test_a_folded_scene_ends_with_the_same_values(rung):
    for s in (TOY, MANY_PARTS):
        if why_not(s, rung, {}):
            continue
        brief, scene = (backward_scene(rung, s, {}, inputs_of(rung, s), every_step) for every_step in (False, True))
        np.testing.assert_array_equal(brief.cells(result(rung)), scene.cells(result(rung)))
        assert brief.steps <= scene.steps
        lit = [
            {(source.file, line) for source, line in map(found.source_at, range(found.steps))}
            for found in (scene, brief)
        ]
        assert lit[0] == lit[1]  # every file and every line is still shown
        assert brief.source_at(brief.steps - 1)[0].file == scene.source_at(scene.steps - 1)[0].file
    assert brief.steps < scene.steps


def test_only_winograd_s_kernels_refuse_a_shape_of_these():
    refused = {rung for rung in OWN for s in (TOY, HARD, MANY_PARTS) if why_not(s, rung, {})}
    assert refused == {WINOGRAD, WINOGRAD_FILTERS}


# -- Winograd ------------------------------------------------------------------------------------------
@st.composite
def dense_shapes(draw):
    """Draws convolutions that Winograd's kernels for both gradients run."""
    pad = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    N, C, K = (draw(st.integers(1, 2)) for _ in range(3))
    H, W = (draw(st.integers(3, 9)) for _ in range(2))
    mode = draw(st.sampled_from(("cross-correlation", "convolution")))
    return ConvShape(N, C, H, W, K, 3, 3, pad=pad, mode=mode)


@pytest.mark.parametrize("rung", [WINOGRAD, WINOGRAD_FILTERS])
@pytest.mark.parametrize("m", [2, 4, 6])
@settings(max_examples=1)
@given(s=dense_shapes())
def test_winograd_s_scene_is_the_kernel_s_and_its_sums_are_its_cells(rung, m, s):
    """Every number of the workspaces and of the result is the sum of the cells that the scene names."""
    s = s.with_(N=1) if rung == WINOGRAD else s
    inputs = inputs_of(rung, s, whole=True)
    scene = backward_scene(rung, s, {"M": m}, inputs)
    stored = run(rung, s, inputs, engine="emulator", tiles={"M": m}, measure=False).output.ravel()
    np.testing.assert_allclose(scene.cells(result(rung)), stored, atol=1e-4 * (1 + np.abs(stored).max()))
    assert {one.out for one in scene.sums} == {"U", "V", "Z", result(rung)}
    for one in scene.sums:
        assert_sums(scene, one)


def assert_sums(scene, one) -> None:
    factors = scene.cells(one.left)[one.factors] if one.left else one.factors
    terms = np.append(factors * scene.cells(one.right)[one.cells].astype(float), 0)
    ends = np.append(0, np.cumsum(terms[:-1]))
    summed = ends[np.asarray(one.start)[1:]] - ends[np.asarray(one.start)[:-1]]
    scale = 1 + np.abs(terms).max()
    np.testing.assert_allclose(scene.cells(one.out), summed, atol=1e-4 * scale)


def test_a_filter_that_is_not_turned_is_detected(monkeypatch):
    s = MANY_PARTS
    inputs = inputs_of(WINOGRAD, s, whole=True)
    assert_sums(*(lambda scene: (scene, scene.sums[0]))(backward_scene(WINOGRAD, s, {}, inputs)))
    monkeypatch.setattr(winograd_cells, "terms", lambda X, flip=False: TERMS(X))
    scene = backward_scene(WINOGRAD, s, {}, inputs)
    with pytest.raises(AssertionError):
        assert_sums(scene, scene.sums[0])


def test_the_turned_taps_are_those_of_the_filter_from_back_to_front():
    inputs = inputs_of(WINOGRAD, MANY_PARTS, whole=True)
    scene = backward_scene(WINOGRAD, MANY_PARTS, {}, inputs)
    np.testing.assert_array_equal(scene.cells("own_g", 1), inputs["w"][0, 0].ravel()[::-1])
    assert "turned by 180°" in scene.caption(1)
    flipped = MANY_PARTS.with_(mode="convolution")
    scene = backward_scene(WINOGRAD, flipped, {}, inputs)
    np.testing.assert_array_equal(scene.cells("own_g", 1), inputs["w"][0, 0].ravel())
    assert "as they are" in scene.caption(1)


def test_the_squares_of_a_tile_are_those_of_the_images():
    s = DENSE.with_(N=1, mode="cross-correlation")
    scene = backward_scene(WINOGRAD_FILTERS, s, {"M": 4}, inputs := inputs_of(WINOGRAD_FILTERS, s, whole=True))
    np.testing.assert_array_equal(scene.cells("own_dy").reshape(4, 4), inputs["dy"][0, 0, :4, :4])
    padded = np.pad(inputs["x"][0, 0], ((1, 6), (2, 6)))
    np.testing.assert_array_equal(scene.cells("own_d").reshape(6, 6), padded[:6, :6])


# -- links ---------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes(max_extent=4))
def test_the_links_of_a_pixel_are_the_forward_links_reversed(s):
    """A tap is in the forward plan of an output if and only if it is in the backward plan of its pixel."""
    links = Links(s)
    rows, outputs = np.nonzero(links.pixel >= 0)
    forward = set(zip(links.pixel[rows, outputs].tolist(), rows.tolist(), outputs.tolist(), strict=True))
    backward = set()
    for pixel in range(s.C * s.H * s.W):
        c, h, w = np.unravel_index(pixel, (s.C, s.H, s.W))
        taps, fed = links.fed(int(h), int(w))
        backward |= {
            (pixel, int(c) * s.R * s.S + tap, output) for tap, output in zip(taps.tolist(), fed.tolist(), strict=True)
        }
    assert forward == backward and len(forward) == links.additions.sum()


def test_holes_are_told_from_positions_outside():
    """Stride 2, padding 1, three taps: row 0 reaches outputs 0 (tap 1); taps 0 and 2 are holes. Row 5 is beyond."""
    rows = Links(TOY).rows
    assert rows[0].tolist() == [HOLE, 0, HOLE] and rows[1].tolist() == [1, HOLE, 0]
    assert rows[5].tolist() == [OUTSIDE, HOLE, 2]


@settings(max_examples=20)
@given(conv_shapes(max_extent=4))
def test_the_taps_of_a_phase_are_those_that_are_no_holes(s):
    links = Links(s)
    for h in range(min(s.u, s.H)):
        for w in range(min(s.v, s.W)):
            assert links.taps_of_phase(h, w) == (links.rows[h] != HOLE).sum() * (links.columns[w] != HOLE).sum()


# -- the picture of the stride -------------------------------------------------------------------------
def test_holes_of_the_stride_are_empty_cells():
    scene = backward_scene(DIRECT, TOY, {}, inputs := inputs_of(DIRECT, TOY))
    spread = scene.cells("spread").reshape(TOY.K, 5, 5)
    np.testing.assert_array_equal(spread[:, ::2, ::2], inputs["dy"][0])
    holes = np.ones((5, 5), bool)
    holes[::2, ::2] = False
    assert np.isnan(spread[:, holes]).all()
    plain = BACKWARD_PRESETS["backward-toy"].shape
    assert "spread" not in [t.name for t in backward_scene(DIRECT, plain, {}, inputs_of(DIRECT, plain)).tensors]


def test_a_hole_and_a_position_outside_are_told_apart():
    """Stride 2, padding 1, three taps: rows 0 and 2 of the filter are holes of pixel (0, 0); at stride 1 row 2 is outside."""
    for s, says in ((TOY, "This is a hole between two outputs."), (TOY.with_(u=1, v=1), "The output has no such row.")):
        scene = backward_scene(DIRECT, s, {}, inputs_of(DIRECT, s))
        (row,) = (scene.caption(t) for t in range(10) if scene.caption(t).startswith("r = 2: "))
        assert row.endswith(says)


def test_the_full_convolution_stays_within_the_spread_gradient_and_its_border():
    scene = backward_scene(DIRECT, TOY, {}, inputs_of(DIRECT, TOY))
    t = scene.tensor("spread")
    top, left, bottom, right = t.pad
    for h in range(TOY.H):
        positions = h + TOY.pad_h - np.arange(TOY.R) * TOY.dilation_h
        assert positions.min() >= -top and positions.max() < t.rows + bottom
    assert (left, right) == (top, bottom)


def test_a_caption_gives_the_gradient_of_its_pixel():
    s = HARD.with_(N=1)
    scene = backward_scene(DIRECT, s, {}, inputs_of(DIRECT, s, whole=True))
    pixels = [scene.caption(t) for t in range(scene.steps) if scene.caption(t).startswith("Channel")]
    assert len(pixels) == s.C * s.H * s.W - 1
    for text, value in zip(pixels, scene.cells("dx")[1:], strict=True):
        assert f"gradient is {number(value)}." in text


# -- where atomics collide -----------------------------------------------------------------------------
@settings(max_examples=5)
@given(conv_shapes(max_extent=3).map(lambda s: s.with_(N=1)))
def test_additions_are_those_that_the_emulator_counts(s):
    inputs = inputs_of(ATOMICS, s)
    scene = backward_scene(ATOMICS, s, {}, inputs)
    program = find(ATOMICS).build(s, find(ATOMICS).default_tiles)
    session = emulator.Session(program, inputs, emulator.Options())
    session.verify_run()
    assert session.counters is not None
    added, collided = (np.asarray(reading.values)[-1] for reading in scene.readings)
    assert session.counters.total["atomics"] == added == Links(s).additions.sum()
    assert collided == np.maximum(Links(s).additions - 1, 0).sum()


def test_every_part_adds_to_every_tap():
    scene = backward_scene(PARTS_ATOMICS, MANY_PARTS, {}, inputs_of(PARTS_ATOMICS, MANY_PARTS))
    added, again = (int(np.asarray(reading.values)[-1]) for reading in scene.readings[1:])
    taps = MANY_PARTS.K * MANY_PARTS.CRS
    assert added % taps == 0 and added > taps and again == added - taps
    assert "the same addresses. Additions to one address collide." in scene.caption(scene.steps - 1)


def test_stored_parts_are_those_of_the_kernel():
    rung = PARTS
    inputs = inputs_of(rung, MANY_PARTS)
    scene = backward_scene(rung, MANY_PARTS, {}, inputs)
    program = find(rung).build(MANY_PARTS, find(rung).default_tiles)
    session = emulator.Session(program, inputs, emulator.Options())
    session.verify_run()
    np.testing.assert_array_equal(scene.cells("parts_of"), session.fetch("parts").ravel())


@pytest.mark.parametrize("rung", ["conv-dweight/direct"])
def test_multiply_adds_are_those_of_the_definition(rung):
    scene = backward_scene(rung, HARD, {}, inputs_of(rung, HARD))
    reading = next(r for r in scene.readings if r.label == "multiply-adds")
    assert np.asarray(reading.values)[-1] == HARD.macs


def test_the_data_matrix_is_im2col_s():
    scene = backward_scene(GEMM, TOY, {}, inputs := inputs_of(GEMM, TOY))
    pixels = np.append(inputs["x"].ravel(), np.float32(0))
    np.testing.assert_array_equal(scene.cells("col"), pixels[Links(TOY).pixel].ravel())
    sums = inputs["dy"].reshape(TOY.K, -1) @ scene.cells("col").reshape(TOY.CRS, -1).T
    np.testing.assert_allclose(scene.cells("sums"), sums.ravel(), rtol=1e-4, atol=1e-4)


# -- what is shown of a large shape --------------------------------------------------------------------
@every("key", BACKWARD_PRESETS)
def test_the_watched_shape_keeps_what_matters(key):
    s = BACKWARD_PRESETS[key].shape
    small = watched(s)
    for name in ("R", "S", "stride", "pad", "dilation", "mode"):
        assert getattr(small, name) == getattr(s, name)
    assert small.groups == 1 and small.C <= 2 and small.K <= 2 and small.N <= 2


@settings(max_examples=20)
@given(st.one_of(conv_shapes(max_extent=5), conv_shapes(max_extent=5).map(lambda s: s.with_(H=s.H + 20, W=s.W + 9))))
def test_any_shape_has_a_watched_shape(s):
    assert max(8, s.span_h) >= watched(s).H


def test_too_many_phases_are_refused_with_their_number():
    s = ConvShape(1, 1, 16, 16, 1, 4, 4, stride=4)
    assert (
        why_not(s, "conv-dinput/implicit-gemm", {}) == "A stride of 4 × 4 makes 16 phases. The stage shows at most 9."
    )
    assert not why_not(s, DIRECT, {})


def test_the_tiles_of_a_phase_hold_all_its_terms():
    """With stride and dilation 2 all taps of an axis belong to one phase."""
    rung, s = "conv-dinput/implicit-gemm", ConvShape(1, 1, 6, 6, 2, 3, 3, stride=2, dilation=2, pad=2)
    scene = backward_scene(rung, s, {}, inputs_of(rung, s))
    rows = sum(t.rows for t in scene.tensors if t.name.startswith("A"))
    assert rows >= s.K * max(Links(s).taps_of_phase(h, w) for h in range(2) for w in range(2)) == s.K * 9
