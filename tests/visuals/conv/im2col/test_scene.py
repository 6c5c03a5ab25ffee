"""The scene of im2col: the kernels run on the part that is shown, and its cells are the convolution of that part."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from tests.helpers.shapes import conv_shapes
from visuals import units
from visuals.conv.im2col.notes import im2col_cost
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.im2col.views import VIEWS
from visuals.conv.part import Part, _block, copies_per_pixel, gather_index, part_of
from visuals.scene.payload import payload

TOY = CONV_PRESETS["toy"].shape


def integers(s: ConvShape, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, s.x_shape).astype("f4"), rng.integers(-2, 3, s.w_shape).astype("f4")


def scene_of(s: ConvShape, order: str = "explaining", part: Part | None = None, **tiles: int):
    x, w = integers(s)
    return im2col_scene(s, part or part_of(s, x[0, 0]), x, w, order, tiles)


def parts_of(s: ConvShape):
    """Returns the whole, and every block of 2 x 2 outputs."""
    C, K, P, Q = min(s.C, 3), min(s.K, 4), min(s.P, 2), min(s.Q, 2)
    blocks = [_block(s, C, K, P, Q, p, q) for p in range(0, s.P - P + 1, P) for q in range(0, s.Q - Q + 1, Q)]
    return [part_of(s), *blocks]


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(tuple(VIEWS)), st.sampled_from((8, 16, 32)), st.data())
def test_the_last_step_shows_the_convolution_of_the_part(s, order, tile, data):
    x, w = integers(s)
    part = data.draw(st.sampled_from(parts_of(s)))
    scene = scene_of(s, order, part, TILE=tile)
    y = reference.conv2d(s.with_(C=part.C), x[:, : part.C].astype(float), w[:, : part.C].astype(float))[0]
    visible = y[: part.K, part.p : part.p + part.P, part.q : part.q + part.Q]
    for name in ("C", "y"):  # the same bytes
        np.testing.assert_array_equal(scene.cells(name), visible.ravel())
    assert scene.write("y").reshapes
    left = scene.cells("w").reshape(part.K, -1)  # the browser's sum for a hovered output: these are whole numbers
    np.testing.assert_array_equal((left @ scene.cells("D").reshape(left.shape[1], -1)).ravel(), visible.ravel())


@settings(max_examples=20)
@given(conv_shapes())
def test_the_data_matrix_has_copies_of_the_pixels(s):
    scene, part = scene_of(s), part_of(s, integers(s)[0][0, 0])
    pixels = np.append(scene.cells("x"), np.float32(0))
    np.testing.assert_array_equal(scene.cells("D"), pixels[gather_index(s, part)].ravel())
    assert scene.tensor("x").pad == (*part.shape(s).pad, *part.shape(s).after)


def test_each_step_copies_a_window_then_blocks_compute_their_tiles_one_after_another():
    scene = scene_of(TOY)
    assert scene.steps == 36 + 3 * 5
    matrix = scene.cells("D", 13).reshape(9, 36)
    assert np.isfinite(matrix[:, :14]).all() and np.isnan(matrix[:, 14:]).all()
    assert "output row 2, column 1 from the input. It becomes column 13 of the data matrix." in scene.caption(13)
    assert scene.caption(36).startswith("Block (0, 0) loads two tiles into shared memory: columns 0 to 8")
    assert "waits until both tiles are complete" in scene.caption(37)
    assert "waits until all threads have read both tiles" in scene.caption(39)
    assert "block (0, 0) have all 9 terms" in scene.caption(40) and "32 of 256" in scene.caption(40)
    assert np.isnan(scene.cells("y", 39)).all() and np.isfinite(scene.cells("sum", 39).reshape(2, 36)[:, :16]).all()
    stored = scene.cells("y", 40).reshape(2, 36)
    assert np.isfinite(stored[:, :16]).all() and np.isnan(stored[:, 16:]).all()
    lit = map(scene.source_at, (5, 36, 37, 38, 40))
    lines = [source.text.splitlines()[line - source.first] for source, line in lit]
    for line, text in zip(lines, ("column[", "tile_a[thread_row]", "__syncthreads", "sum +=", "*C = sum"), strict=True):
        assert text in line


def test_bytes_are_those_that_both_kernels_move():
    assert {r.label: int(r.values[-1]) for r in scene_of(TOY).readings} == {
        "bytes read from global memory": 4
        * (9 * 36 + 9 * 36 + 3 * 18),  # pixels, tiles of the data matrix, of the filters
        "bytes written to global memory": 4 * (9 * 36 + 2 * 36),
    }


def test_a_library_s_product_is_one_step_without_its_inside():
    scene = scene_of(TOY, "library")
    assert scene.steps == 36 + 1 and "sum" not in {tensor.name for tensor in scene.tensors}
    assert "One call of cuBLAS" in scene.caption(36) and "not public" in scene.source_at(36)[0].text


def test_in_warp_order_a_step_is_a_store_of_a_warp():
    scene = scene_of(TOY, "warps")
    assert np.flatnonzero(np.isfinite(scene.cells("D", 0))).tolist() == list(range(32))
    assert scene.caption(0).startswith(
        "Warp 0 stores row 0, columns 0 to 31 of the data matrix. Active lanes: 32. Sectors (32 bytes) touched: 4, minimum 4."
    )
    assert scene.lanes.mask[0] == 0xFFFFFFFF and sorted(set(scene.lanes.mask[:18].tolist())) == [0xF, 0xFFFFFFFF]


def test_sectors_in_warp_order_are_those_that_are_counted():
    scene = scene_of(TOY, "warps")
    said = sum(int(scene.caption(t).partition("touched: ")[2].partition(",")[0]) for t in range(18))
    line = scene.source_at(0)[1]
    assert f"st {said} sect" in scene.source.notes[line]


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_has_a_small_scene_that_names_its_part(key):
    s = CONV_PRESETS[key].shape
    part = part_of(s)
    scene = im2col_scene(s, part, np.ones((1, part.C, s.H, s.W), "f4"), np.ones((part.K, part.C, s.R, s.S), "f4"))
    meta, block = payload(scene)
    assert len(block) + len(json.dumps(meta)) < 100_000
    whole = (s.C, s.K, s.P, s.Q) == (part.C, part.K, part.P, part.Q)
    assert any("part" in t.note for t in scene.tensors) != whole
    assert f"{s.CRS:,} × {s.PQ:,}" in scene.tensor("D").note


def test_large_picture_shows_the_part_that_varies_most():
    s = CONV_PRESETS["vgg-conv1_2"].shape
    picture = np.zeros((s.H, s.W), "f4")
    picture[100:103, 50:53] = 9
    part = part_of(s, picture)
    assert part.h <= 100 < part.h + part.H and part.w <= 50 < part.w + part.W
    scene = im2col_scene(s, part, np.ones((1, 3, s.H, s.W), "f4"), np.ones((4, 3, 3, 3), "f4"))
    assert f"part 0–3, {part.p}–{part.p + 7}, {part.q}–{part.q + 7} of 64 × 224 × 224" in scene.tensor("y").note
    assert scene.tensor("x").pad == (0, 0, 0, 0)


def test_the_cudnn_paper_figure():
    """The figure of arXiv 1410.0759: the first column reads D4 D3 D1 D0 of each channel."""
    s = CONV_PRESETS["cudnn-paper"].shape
    x, w = np.arange(27, dtype="f4").reshape(s.x_shape), np.ones(s.w_shape, "f4")
    columns = im2col_scene(s, part_of(s), x, w).cells("D").reshape(12, 4)
    assert columns[:, 0].tolist() == [4, 3, 1, 0, 13, 12, 10, 9, 22, 21, 19, 18]
    assert columns[0].tolist() == [4, 5, 7, 8]


@settings(max_examples=20)
@given(conv_shapes())
def test_copies_per_pixel_equals_the_count(s):
    index = gather_index(s, Part(1, 1, s.P, s.Q, s.H, s.W))
    counted = np.bincount(index[index >= 0]).max() if (index >= 0).any() else 0
    assert copies_per_pixel(s) == counted <= s.R * s.S


def test_the_cost_is_the_data_matrix_of_all_images():
    s = ConvShape(5, 2, 9, 8, 3, 3, 2)
    matrix = 4 * 5 * (2 * 3 * 2) * (7 * 7)
    text = im2col_cost(s)
    assert units.bytes_(matrix) in text and units.bytes_(4 * 5 * 2 * 9 * 8) in text
    assert f"{units.ratio(matrix / (4 * 5 * 2 * 9 * 8))}×" in text
