"""The stage's text on the cell under the mouse, compared with NumPy."""

import itertools
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.helpers.harness import PADDED, TOY_COLUMNS, TOY_STEPS, VGG, query, truth
from tests.helpers.printed import number
from visuals.conv.part import copies_per_pixel

pytestmark = pytest.mark.browser


# -- what a cell says ----------------------------------------------------------------------------
@pytest.mark.parametrize("params", [{}, PADDED], ids=["toy", "padded"])
def test_a_pixel_says_how_often_it_was_copied(watch, page, params):
    expected, t = truth(**params), 7
    stage = watch(query(params | {"step": t}))
    s, max_columns = expected.shape, 0
    for i in np.linspace(0, expected.scene.tensor("x").size - 1, 9).astype(int):
        columns = expected.columns_of(i)
        text = stage.point_at("x", i)
        c, h, w = np.unravel_index(i, (s.C, s.H, s.W))
        assert f"x[{c}, {h}, {w}] = {expected.inputs.x(1)[0, c, h, w]:g}." in text
        noun = "cell" if len(columns) == 1 else "cells"
        columns_so_far = (columns <= t).sum()
        copied = f"Copied to {columns_so_far} of {len(columns)} {noun} of the data matrix so far."
        assert (copied if columns_so_far else "Not yet copied to the data matrix.") in text
        max_columns = max(max_columns, len(columns))
    assert max_columns <= copies_per_pixel(s)
    stage.at_step(t)
    page.mouse.move(2, 2)
    expect(stage.root).to_have_attribute("data-hover", "")  # and the panel explains the step again
    expect(stage.explanation).to_contain_text(f"D[0, {t}]")


def test_after_the_last_step_an_inner_pixel_is_in_nine_columns(watch):
    text = watch(f"step={TOY_STEPS - 1}").point_at("x", 2 * 8 + 2)
    assert "Copied to 9 of 9 cells of the data matrix so far." in text


def test_a_column_cell_names_its_window_and_its_outputs(watch):
    expected = truth(K="3")
    stage = watch("K=3&step=20")
    index = expected.scene.write("D").index.reshape(9, TOY_COLUMNS)
    for row, column in ((0, 0), (4, 20), (8, 21)):
        text = stage.point_at("D", row * TOY_COLUMNS + column)
        pixel = index[row, column]
        copied = "a copy of" if column <= 20 else "not written yet: will be a copy of"
        assert (
            f"D[{row}, {column}] = {expected.scene.cells('x')[pixel]:g}, {copied} x[0, {pixel // 8}, {pixel % 8}]"
            in text
        )
        assert f"Column {column} is one window. It gives C[0, {column}], C[1, {column}], C[2, {column}]." in text


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, PADDED, {"mode": "convolution", "filter": "sobel-y"}])
def test_an_output_cell_is_its_sum_and_the_sum_is_the_convolution(watch, params):
    expected = truth(**params)
    _, P, Q = expected.y.shape
    stage = watch(query(params | {"step": expected.scene.steps - 1}))
    for i in np.linspace(0, expected.y.size - 1, 5).astype(int):
        k, p, q = np.unravel_index(i, expected.y.shape)
        same, name, terms, total = stage.point_at("y", i).split("\n")
        assert same == f"y[{k}, {p}, {q}] is C[{k}, {p * Q + q}]: the same bytes under another index."
        assert name == f"C[{k}, {p * Q + q}]"
        assert total[:2] in ("= ", "≈ ") and number(total[2:]) == expected.y[k, p, q]
        window = expected.scene.cells("D").reshape(-1, P * Q)[:, p * Q + q]
        pairs = re.findall(r"([+−]?) ?([\d.]+)·\(?(−?[\d.]+)", terms.removeprefix("= "))
        numbers = [(number(sign.replace("+", "") + a), number(b)) for sign, a, b in pairs]
        weights = expected.inputs.w()[k].ravel()
        assert numbers == list(zip(weights[:12], window[:12], strict=True))  # the real numbers, in order
        if len(window) <= 12:
            assert sum(a * b for a, b in numbers) == expected.y[k, p, q]
        else:
            assert f"{len(window) - 12} more terms" in terms


def test_a_filter_tap_says_what_it_multiplies(watch):
    text = watch(f"step={TOY_COLUMNS + 4}").point_at("w", 9 + 1)
    assert "w[1, 1] = −2" in text
    assert (
        "It multiplies all of row 1 of the data matrix: one term of 36 cells of the output matrix, 16 so far." in text
    )


def test_an_output_not_yet_computed_says_so(watch):
    text = watch("step=4").point_at("y", 30)
    assert "y[0, 5, 0] is C[0, 30]" in text and "C[0, 30], not computed yet" in text


def test_padding_cells_say_padding(watch):
    expected = truth(**PADDED)
    stage = watch(query(PADDED | {"step": 0}))
    index = expected.scene.write("D").index
    padding, inside = np.flatnonzero(index < 0)[0], np.flatnonzero(index >= 0)[0]
    text = stage.point_at("D", padding)
    assert "= 0, a zero of the padding, not read from anywhere." in text and "copy of" not in text
    assert "padding" not in stage.point_at("D", inside)
    expect(stage.caption).to_contain_text("of them zeros of the padding")


@pytest.mark.slow
def test_a_click_pins_and_escape_unpins(stage, page):
    stage = stage("step=9")
    stage.point_at("x", 18)
    stage.click("x", 18)
    expect(stage.root).to_have_attribute("data-pinned", "")
    assert "D[0, 0]" in stage.point_at("D", 0)  # pointing wins over the pin
    page.mouse.move(2, 2)
    expect(stage.root).to_have_attribute("data-hover", "x:18")  # which returns
    expect(stage.explanation).to_contain_text("x[0, 2, 2]")
    stage.root.press("ArrowRight")
    expect(stage.explanation).to_contain_text("x[0, 2, 2]")  # and the step may change
    page.keyboard.press("Escape")
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    stage.click("y", 3)
    expect(stage.root).to_have_attribute("data-pinned", "")
    stage.click("y", 3)  # once more
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    stage.click("y", 3)
    page.locator("h1").click()  # a click outside the stage keeps the pin
    expect(stage.root).to_have_attribute("data-pinned", "")
    page.locator(".caption").click()  # anywhere else on the stage
    expect(stage.root).not_to_have_attribute("data-pinned", "")


def test_three_channels_are_three_separate_aligned_planes(watch):
    stage = watch("C=3")
    planes = [(stage.cell("x", 64 * plane), stage.cell("x", 64 * plane + 63)) for plane in range(3)]
    for (first, last), (after, _) in itertools.pairwise(planes):
        across = after["y"] == first["y"] and after["x"] > last["x"] + last["width"]
        down = after["x"] == first["x"] and after["y"] > last["y"] + last["height"]
        assert across or down
    assert "x[2, 0, 0]" in stage.point_at("x", 128)


def test_a_large_shape_says_which_part_it_shows(watch):
    expected = truth(**VGG)
    scene = expected.scene
    t = 9
    stage = watch(query(VGG | {"step": t}))
    assert scene.tensor("D").cols == 64 and expected.shape.PQ == 224 * 224
    _, h, w = scene.tensor("x").origin
    assert (h, w) != (0, 0)
    assert f"x[0, {h}, {w}]" in stage.point_at("x", 0)
    assert "Only the part shown is counted." in stage.point_at("x", 0)
    column = scene.tensor("D").col_index[t]
    _, p, q = scene.tensor("y").origin
    p, q = p + t // 8, q + t % 8
    assert column == p * 224 + q == scene.tensor("C").col_index[t]
    expect(stage.caption).to_have_text(scene.caption(t))
    expect(stage.caption).to_contain_text("Only the 3 channels shown are counted.")
    assert f"Column {column} is one window. It gives C[0, {column}]" in stage.point_at("D", t)
    # The sum includes all 64 channels: those not shown are one term.
    text = stage.point_at("y", t)
    assert "from every channel not shown" in text
    assert number(text.split("\n")[-1][2:]) == pytest.approx(expected.y[0, p, q], rel=5e-3)
