"""The scene of im2col: its cells are equal to the kernels' data matrix and output."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import cpu
from kernels.conv.common import struct
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.runner import compare
from tests.helpers.shapes import conv_shapes
from visuals import units
from visuals.conv.im2col.notes import im2col_cost
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.part import Part, _block, copies_per_pixel, gather_index, part_of
from visuals.scene.payload import payload


@settings(max_examples=20)
@given(conv_shapes())
def test_the_padding_is_drawn_at_its_ends(s):
    scene = scene_of(s)[0]
    assert scene.tensor("x").pad == (s.pad_h, s.pad_w, s.pad_h + s.extra_h, s.pad_w + s.extra_w)


def test_the_cost_is_the_data_matrix_of_all_images():
    s = ConvShape(5, 2, 9, 8, 3, 3, 2)
    matrix = 4 * 5 * (2 * 3 * 2) * (7 * 7)
    text = im2col_cost(s)
    assert units.bytes_(matrix) in text and units.bytes_(4 * 5 * 2 * 9 * 8) in text
    assert f"{units.ratio(matrix / (4 * 5 * 2 * 9 * 8))}×" in text


def integers(s: ConvShape, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, s.x_shape).astype("f4"), rng.integers(-2, 3, s.w_shape).astype("f4")


def scene_of(s: ConvShape):
    x, w = integers(s)
    result = compare(["conv/im2col-gemm"], s, {"x": x, "w": w}, engine="cpu", measure=False)[0]
    return scene_at(s, part_of(s, x[0, 0]), x, w, result.output), x, w, result.output


def scene_at(s, part, x, w, y):
    """Returns the scene of a part, cut out of the whole output."""
    return im2col_scene(s, part, x, w, y[0, : part.K, part.p : part.p + part.P, part.q : part.q + part.Q])


@settings(max_examples=20)
@given(conv_shapes(), st.data())
def test_last_step_shows_the_kernel_output(s, data):
    _, x, w, y = scene_of(s)
    part = data.draw(st.sampled_from(parts_of(s)))
    scene = scene_at(s, part, x, w, y)
    rows, cols = slice(part.p, part.p + part.P), slice(part.q, part.q + part.Q)
    col = np.empty((s.N, s.CRS, s.PQ), "f4")
    cpu.im2col(x, col, struct(s))
    shown = col[0].reshape(s.C, s.R * s.S, s.P, s.Q)[: part.C, :, rows, cols]
    np.testing.assert_array_equal(scene.cells("D"), shown.ravel())
    np.testing.assert_array_equal(scene.cells("y"), y[0, : part.K, rows, cols].ravel())
    # The browser's sum for a hovered output cell equals that cell exactly: these are whole numbers.
    product = scene.matmuls[0]
    left = scene.cells("w").reshape(part.K, -1)
    total = left @ scene.cells("D").reshape(left.shape[1], -1)
    if product.rest is not None:
        total = total + product.rest.reshape(total.shape)
    np.testing.assert_array_equal(total.ravel(), scene.cells("y"))


def parts_of(s):
    """Returns the whole, and every block of 2 x 2 outputs."""
    C, K, P, Q = min(s.C, 3), min(s.K, 4), min(s.P, 2), min(s.Q, 2)
    blocks = [_block(s, C, K, P, Q, p, q) for p in range(0, s.P - P + 1, P) for q in range(0, s.Q - Q + 1, Q)]
    return [part_of(s), *blocks]


def test_large_picture_shows_the_part_that_varies_most():
    s = CONV_PRESETS["vgg-conv1_2"].shape
    picture = np.zeros((s.H, s.W), "f4")
    picture[100:103, 50:53] = 9
    part = part_of(s, picture)
    assert part.h <= 100 < part.h + part.H and part.w <= 50 < part.w + part.W
    x = np.ones((1, 3, s.H, s.W), "f4")
    scene = im2col_scene(s, part, x, np.ones((4, 3, 3, 3), "f4"), np.ones((4, part.P, part.Q), "f4"))
    assert scene.tensor("x").origin == (0, part.h, part.w)
    assert f"part 0–3, {part.p}–{part.p + 7}, {part.q}–{part.q + 7} of 64 × 224 × 224" in scene.tensor("y").note
    assert scene.tensor("x").pad == (0, 0, 0, 0) and scene.tensor("D").partial


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_has_a_small_scene_that_names_its_part(key):
    s = CONV_PRESETS[key].shape
    part = part_of(s)
    x = np.ones((1, part.C, s.H, s.W), "f4")
    w = np.ones((part.K, part.C, s.R, s.S), "f4")
    y = np.ones((part.K, part.P, part.Q), "f4")
    scene = im2col_scene(s, part, x, w, y)
    meta, block = payload(scene)
    assert len(block) + len(json.dumps(meta)) < 100_000
    whole = (s.N, s.C, s.K, s.P, s.Q) == (1, part.C, part.K, part.P, part.Q)
    assert any("part" in t.note for t in scene.tensors) != whole or s.N > 1
    matrix = scene.tensor("D")
    assert f"{s.CRS:,} × {s.PQ:,}" in matrix.note


def test_the_cudnn_paper_figure():
    """The figure of arXiv 1410.0759: the first column reads D4 D3 D1 D0 of each channel."""
    s = CONV_PRESETS["cudnn-paper"].shape
    x = np.arange(27, dtype="f4").reshape(s.x_shape)
    w = np.ones(s.w_shape, "f4")
    y = np.zeros(s.y_shape[1:], "f4")
    columns = im2col_scene(s, part_of(s), x, w, y).cells("D").reshape(12, 4)
    assert columns[:, 0].tolist() == [4, 3, 1, 0, 13, 12, 10, 9, 22, 21, 19, 18]
    assert columns[0].tolist() == [4, 5, 7, 8]


def test_cells_are_empty_until_their_step():
    scene, *_ = scene_of(ConvShape(1, 1, 8, 8, 2, 3, 3))
    matrix = scene.cells("D", 13).reshape(9, 36)
    assert np.isfinite(matrix[:, :14]).all() and np.isnan(matrix[:, 14:]).all()
    assert np.isnan(scene.cells("C", 39)).all()  # the first tile is added up, but not stored
    output = scene.cells("C", 40).reshape(2, 36)
    assert np.isfinite(output[:, :16]).all() and np.isnan(output[:, 16:]).all()
    assert np.isnan(scene.cells("y", 50)).all() and np.isfinite(scene.cells("y", 51)).all()
    assert np.isfinite(scene.cells("x", 0)).all()


@settings(max_examples=20)
@given(conv_shapes())
def test_captions_describe_each_step(s):
    scene, *_ = scene_of(s)
    part, copies = part_of(s), scene.tensor("D").cols
    matrix = scene.write("D").index.reshape(-1, copies)
    for t in range(scene.steps):
        assert "[" not in scene.caption(t) and "{" not in scene.caption(t)
    for t in range(copies):
        caption, zeros = scene.caption(t), int((matrix[:, t] < 0).sum())
        assert f"the window of output row {t // part.Q}, column {t % part.Q} from the input." in caption
        assert f"It becomes column {t} of the data matrix." in caption
        assert caption.startswith(f"Thread {t} copies") == (s.C == 1)
        assert f"Loads: {len(matrix) - zeros}. Stores: {len(matrix)}" in caption
        assert (f"{zeros} of them zeros of the padding" in caption) == (zeros > 0)


@settings(max_examples=20)
@given(conv_shapes())
def test_copies_per_pixel_equals_the_count(s):
    part = Part(1, 1, s.P, s.Q, s.H, s.W)
    index = gather_index(s, part)
    counted = np.bincount(index[index >= 0]).max() if (index >= 0).any() else 0
    assert copies_per_pixel(s) == counted <= s.R * s.S


def test_part_keeps_the_column_numbers_of_the_whole_matrix():
    s = CONV_PRESETS["resnet50-res2-3x3-n1"].shape
    part = part_of(s)
    x = np.ones((1, part.C, s.H, s.W), "f4")
    w, y = np.ones((part.K, part.C, 3, 3), "f4"), np.ones((part.K, part.P, part.Q), "f4")
    scene = im2col_scene(s, part, x, w, y)
    t = part.Q + 2  # output row 1, column 2
    assert scene.tensor("D").col_index[t] == s.Q + 2 and scene.tensor("D").partial
    assert f"row 1, column 2 from the input. It becomes column {s.Q + 2} of" in scene.caption(t)


def test_highlighted_line_is_the_copy():
    scene, *_ = scene_of(ConvShape(1, 1, 8, 8, 2, 3, 3))
    source = scene.source
    line = source.text.splitlines()[int(source.lines[0]) - source.first]
    assert "column[" in line and "= value" in line
