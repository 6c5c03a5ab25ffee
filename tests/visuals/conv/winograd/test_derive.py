"""The derivation of F(m, 3) on the stage: its matrices are those of the kernels, its outputs a float64 convolution."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from tests.helpers.offenders import every
from tests.visuals.conv.winograd.test_scene import wrong_sums
from visuals.conv.direct.scene import arrays
from visuals.conv.inputs import Inputs
from visuals.conv.winograd import derive
from visuals.conv.winograd.points import fraction, points_of, polynomial, symbolic, total
from visuals.conv.winograd.scene import first_tile, scene_of_tile, shown
from visuals.scene.payload import payload

TILES = winograd_matrices.TILES
tile_sizes = pytest.mark.parametrize("m", TILES)
VALUES = st.floats(-50, 50, width=32)


def rows(m: int):
    return st.tuples(*[st.lists(VALUES, min_size=n, max_size=n) for n in (m + 2, 3)])


@every("m", [*TILES, 1, 3, 8])
def test_derived_matrices_equal_those_of_the_kernels_exactly(m):
    t, points = winograd_matrices.derive(m, 3), points_of(m)
    assert tuple(zip(*(p.column_of_AT for p in points), strict=True)) == t.AT
    assert tuple(p.row_of_G for p in points) == t.G
    assert tuple(p.row_of_BT for p in points) == t.BT


@tile_sizes
def test_a_row_of_BT_is_a_polynomial_that_is_zero_at_the_other_points(m):
    for point in points_of(m):
        values = {a: sum(c * a**k for k, c in enumerate(point.row_of_BT)) for a in point.others}
        assert not any(values.values())
        if point.at is not None:
            assert sum(c * point.at**k for k, c in enumerate(point.row_of_BT)) == point.N > 0


@settings(max_examples=20)
@given(st.sampled_from(TILES).flatmap(lambda m: st.tuples(st.just(m), rows(m))))
def test_stage_ends_with_the_convolution_of_its_rows(case):
    m, (d, g) = case
    scene = derive.scene_of(m, np.array(d), np.array(g))
    expected = [np.dot(d[i : i + 3], g) for i in range(m)]
    scale = 1 + np.abs(d).max() * np.abs(g).sum()
    np.testing.assert_allclose(scene.cells("y"), expected, rtol=0, atol=2e-6 * scale)
    np.testing.assert_allclose(scene.cells("yd"), expected, rtol=0, atol=2e-6 * scale)
    t = winograd_matrices.derive(m, 3)
    for name, X in (("AT", t.AT), ("G", t.G), ("BT", t.BT)):
        exact = np.array(X, object).astype(np.float32).ravel()
        np.testing.assert_array_equal(scene.cells(name), exact)


@tile_sizes
def test_rows_appear_one_by_one_beside_their_row_in_the_file(m):
    """Each step of G and Bᵀ fills one row and lights the row of the file with the same numbers."""
    scene = derive.scene_of(m, np.arange(m + 2.0), np.array([1.0, 2.0, 3.0]))
    lines = sources.text(derive.FILE).splitlines()
    n, first = m + 2, m + 1 + m + 2
    for name, at in (("G", first), ("BT", first + n)):
        cols = scene.tensor(name).cols
        for k in range(n):
            done = np.isfinite(scene.cells(name, at + k)).reshape(n, cols).all(axis=1)
            assert done.tolist() == [row <= k for row in range(n)]
            line = lines[int(scene.source.lines[at + k]) - 1]
            entries = [eval(e.replace(".f", ".0")) for e in re.search(r"{([^{}]+)}", line).group(1).split(",")]
            np.testing.assert_allclose(entries, scene.cells(name).reshape(n, cols)[k], rtol=1e-6)
    last = lines[int(scene.source.lines[-1]) - 1]
    assert last.endswith("};") and "AT" not in last


def test_multiplications_are_those_of_the_algorithms():
    for m in TILES:
        scene = derive.scene_of(m, np.ones(m + 2), np.ones(3))
        assert [int(r.values[-1]) for r in scene.readings] == [3 * m, m + 2]


@tile_sizes
def test_hand_example_in_words(m):
    scene = derive.scene_of(m, np.arange(m + 2.0), np.array([1.0, 2.0, 3.0]))
    captions = " ".join(scene.caption(t) for t in range(scene.steps))
    assert not re.search(r"[{}]|--|\+ −", captions)
    if m == 2:
        assert "x·(x + 1) = x + x² is 2 there and 0 at the other points" in captions
        assert "Row 1 of G is 1/2, 1/2, 1/2. So u1 = 3." in captions
        assert "p0 = u0 · v0 = 1 · (−2) = −2." in captions
        assert "y1 = p1 − p2 + p3 = 14. Direct convolution gave 14." in captions
    assert len(payload(scene)[1]) < 20_000


def test_polynomials_as_text():
    assert polynomial([0, -1, 0, 1]) == "−x + x³" and polynomial([4, 0, -5]) == "4 − 5·x²"
    assert polynomial([1, 0, 0]) == "1" and symbolic("g", 3) == "g0 + g1·x + g2·x²"
    assert total([1, -1], ["d0", "d2"]) == "d0 − d2" and total([0, 0], ["a", "b"]) == "0"
    assert fraction(points_of(6)[5].row_of_G[0]) == "32/45"


# -- two dimensions ------------------------------------------------------------------------------------
@tile_sizes
def test_the_tile_ends_with_the_convolution_and_each_half_follows_from_its_matrix(m):
    rng = np.random.default_rng(m)
    d, g = rng.normal(size=(m + 2, m + 2)).astype("f4"), rng.normal(size=(3, 3)).astype("f4")
    scene = scene_of_tile(m, d, g)
    windows = np.lib.stride_tricks.sliding_window_view(d, (3, 3))
    expected = np.einsum("ijab,ab->ij", windows, g).ravel()
    np.testing.assert_allclose(
        scene.cells("y"), expected, rtol=0, atol=3e-6 * np.abs(d).max() * np.abs(g).sum() * m * m
    )
    assert wrong_sums(scene, 1e-4) == 0
    for product in scene.matmuls:
        left, right, out = (
            scene.cells(name).reshape(-1, scene.tensor(name).cols)
            for name in (product.left, product.right, product.out)
        )
        np.testing.assert_allclose(left @ right, out, rtol=1e-4, atol=1e-4)


@tile_sizes
def test_a_transform_is_finished_in_columns_then_rows(m):
    scene = scene_of_tile(m, np.ones((m + 2, m + 2), "f4"), np.ones((3, 3), "f4"))
    t, T = winograd_matrices.derive(m, 3), m + 2
    for half, whole, X in (("Gg", "U", t.G), ("Bd", "V", t.BT), ("AZ", "y", t.AT)):
        steps, cells, _ = scene._events(half)
        np.testing.assert_array_equal(cells % len(X[0]), steps - steps.min())
        last, cells, _ = scene._events(whole)
        np.testing.assert_array_equal(cells // len(X), last - last.min())
        assert steps.max() < last.min()
        count = winograd_matrices.operations_2d(X)
        said = f"Both halves take {count.additions} additions and {count.multiplications} multiplications."
        assert said in scene.caption(int(last.max()))
    assert f"These are {T * T} multiplications in all; direct convolution takes {9 * m * m}." in " ".join(
        scene.caption(t) for t in range(scene.steps)
    )


def test_a_filter_of_a_convolution_is_turned():
    d, g = np.zeros((4, 4), "f4"), np.arange(9, dtype="f4").reshape(3, 3)
    np.testing.assert_array_equal(scene_of_tile(2, d, g, "convolution").cells("g"), g.ravel()[::-1])


# -- inputs of the page ----------------------------------------------------------------------------------
@tile_sizes
@pytest.mark.parametrize("key", ["toy", "resnet50-res3-3x3-n1"])
def test_numbers_are_those_of_the_page(m, key):
    s = CONV_PRESETS[key].shape
    inputs = Inputs(s, "numbers", "random")
    tile, taps = first_tile(inputs, m)
    given, part = arrays(inputs, shown(s, m)), shown(s, m)
    x = np.pad(given["x"][0, 0], ((s.pad_h, m + 2), (s.pad_w, m + 2)))
    np.testing.assert_array_equal(tile, x[: m + 2, : m + 2])
    assert part.pad == s.pad
    d, g = derive.rows_of(m, tile, taps)
    assert any((d == tile[r]).all() and (g == inputs.w(1, 1)[0, 0, r]).all() for r in range(3))


def test_a_flipped_filter_is_read_backwards():
    tile, taps = np.arange(16.0).reshape(4, 4), np.arange(9.0).reshape(3, 3)
    for flip in (False, True):
        g = derive.derive_scene(2, tile, taps, flip).cells("g")
        read = taps[::-1, ::-1] if flip else taps
        assert any((g == row).all() for row in read)
