"""The derivation of F(m, 3) on the stage: its matrices are those of the kernels, its outputs a float64 convolution."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from tests.helpers.offenders import every
from visuals.conv.inputs import Inputs
from visuals.conv.winograd import derive, nested
from visuals.conv.winograd.part import numbers, part_of
from visuals.conv.winograd.points import fraction, points_of, polynomial, symbolic, total
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
@settings(max_examples=20)
@given(st.sampled_from(TILES), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1e-3, 1e3]))
def test_rows_of_the_tile_end_with_the_convolution(m, seed, size):
    rng = np.random.default_rng(seed)
    d, g = size * rng.normal(size=(m + 2, m + 2)), rng.normal(size=(3, 3))
    scene = nested.scene_of(m, d, g)
    windows = np.lib.stride_tricks.sliding_window_view(d, (3, 3))
    expected = np.einsum("ijab,ab->ij", windows, g).ravel()
    np.testing.assert_allclose(scene.cells("y"), expected, rtol=0, atol=3e-6 * np.abs(d).max() * np.abs(g).sum())


@tile_sizes
def test_operations_of_the_rows_are_those_of_the_kernel(m):
    scene = nested.scene_of(m, np.ones((m + 2, m + 2)), np.ones((3, 3)))
    t = winograd_matrices.derive(m, 3)
    counts = [winograd_matrices.operations_2d(X) for X in (t.G, t.BT, t.AT)]
    product, additions, multiplications = (int(r.values[-1]) for r in scene.readings)
    assert product == winograd_matrices.multiplications_2d(m, 3)[1]
    assert additions == sum(c.additions for c in counts)
    assert multiplications == sum(c.multiplications for c in counts)


@tile_sizes
def test_a_transform_is_finished_in_two_halves(m):
    """(X d) is complete before the first row of (X d) Xᵀ, and lines of transform_2d are lit in that order."""
    scene = nested.scene_of(m, np.ones((m + 2, m + 2)), np.ones((3, 3)))
    text = scene.source.text.splitlines()
    for half, whole in (("Gg", "U"), ("Bd", "V"), ("AZ", "y")):
        starts = [scene._events(name)[0] for name in (half, whole)]
        assert starts[0].max() < starts[1].min()
        lines = [text[int(scene.source.lines[steps[0]]) - 1] for steps in starts]
        assert "X[i][k] * d[k][j]" in lines[0] and "Xd[i][k] * X[j][k]" in lines[1]


# -- inputs of the page ----------------------------------------------------------------------------------
@tile_sizes
@pytest.mark.parametrize("key", ["toy", "resnet50-res3-3x3-n1"])
def test_numbers_are_those_of_the_page(m, key):
    s = CONV_PRESETS[key].shape
    inputs = Inputs(s, "numbers", "random")
    part = part_of(s, m, inputs.planes()[0])
    n = numbers(part, inputs)
    d, g = derive.rows_of(part, n)
    x = np.pad(inputs.planes()[0], ((s.pad_h, m + 2), (s.pad_w, m + 2)))
    h, w = (a + p for a, p in zip(part.corner, s.pad, strict=True))
    tile = x[h : h + m + 2, w : w + m + 2]
    np.testing.assert_array_equal(derive.tile_of(part, n), tile)
    assert any((d == tile[r]).all() and (g == inputs.w(1, 1)[0, 0, r]).all() for r in range(3))


def test_a_flipped_filter_is_read_backwards():
    s = ConvShape(1, 1, 8, 8, 1, 3, 3)
    for shape in (s, replace(s, mode="convolution")):
        inputs = Inputs(shape, "numbers", "custom", custom=np.arange(9.0).reshape(3, 3))
        part = part_of(shape, 2)
        g = derive.filter_of(part, numbers(part, inputs))
        assert g[0, 0] == (8 if shape.flip else 0)
