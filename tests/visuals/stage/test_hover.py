"""What the stage says of the cell one points at, held against NumPy."""

import itertools
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.helpers.harness import PADDED, TOY_STEPS, VGG, frames, number, query, truth
from visuals.conv.part import copies_per_pixel

pytestmark = pytest.mark.browser


# -- what a cell says ----------------------------------------------------------------------------
@pytest.mark.parametrize("params", [{}, PADDED], ids=["toy", "padded"])
def test_a_pixel_tells_how_often_it_was_copied(watch, page, params):
    told, t = truth(**params), 7
    stage = watch(query(params | {"step": t}))
    s, most = told.shape, 0
    for i in np.linspace(0, told.scene.tensor("x").size - 1, 9).astype(int):
        columns = told.columns_of(i)
        said = stage.point_at("x", i)
        c, h, w = np.unravel_index(i, (s.C, s.H, s.W))
        assert f"x[{c}, {h}, {w}] = {told.inputs.x(1)[0, c, h, w]:g}." in said
        noun = "column" if len(columns) == 1 else "columns"
        done = (columns <= t).sum()
        assert f"It stands in {done} of {len(columns)} {noun} of the data matrix so far." in said
        most = max(most, len(columns))
    assert most <= copies_per_pixel(s)
    stage.at_step(t)
    page.mouse.move(2, 2)
    expect(stage.root).to_have_attribute("data-hover", "")  # and the panel is the step's again
    expect(stage.explanation).to_contain_text(f"y[0, {t // s.Q}, {t % s.Q}]")


def test_after_the_last_step_an_inner_pixel_stands_in_nine_columns(watch):
    said = watch(f"step={TOY_STEPS - 1}").point_at("x", 2 * 8 + 2)
    assert "It stands in 9 of 9 columns of the data matrix so far." in said


def test_a_column_cell_names_its_window_and_its_outputs(watch):
    told = truth(K="3")
    stage = watch("K=3&step=20")
    index = told.scene.write("D").index.reshape(9, TOY_STEPS)
    for row, column in ((0, 0), (4, 20), (8, 21)):
        said = stage.point_at("D", row * TOY_STEPS + column)
        pixel = index[row, column]
        p, q = divmod(column, told.shape.Q)
        copied = "a copy of" if column <= 20 else "not written yet: will be a copy of"
        assert (
            f"D[{row}, {column}] = {told.scene.cells('x')[pixel]:g}, {copied} x[0, {pixel // 8}, {pixel % 8}]"
            in said
        )
        assert (
            f"Column {column} is one window; it gives y[0, {p}, {q}], y[1, {p}, {q}], y[2, {p}, {q}]." in said
        )


@pytest.mark.parametrize("params", [{}, PADDED, {"mode": "convolution", "filter": "sobel-y"}])
def test_an_output_cell_is_its_sum_and_the_sum_is_the_convolution(watch, params):
    told = truth(**params)
    _, P, Q = told.y.shape
    stage = watch(query(params | {"step": P * Q - 1}))
    for i in np.linspace(0, told.y.size - 1, 5).astype(int):
        k, p, q = np.unravel_index(i, told.y.shape)
        name, terms, total = stage.point_at("y", i).split("\n")
        assert name == f"y[{k}, {p}, {q}]"
        assert total[:2] in ("= ", "≈ ") and number(total[2:]) == told.y[k, p, q]
        window = told.scene.cells("D").reshape(-1, P * Q)[:, p * Q + q]
        pairs = re.findall(r"([+−]?) ?([\d.]+)·\(?(−?[\d.]+)", terms.removeprefix("= "))
        numbers = [(number(sign.replace("+", "") + a), number(b)) for sign, a, b in pairs]
        weights = told.inputs.w()[k].ravel()
        assert numbers == list(zip(weights[:12], window[:12], strict=True))  # the real ones, in order
        if len(window) <= 12:
            assert sum(a * b for a, b in numbers) == told.y[k, p, q]
        else:
            assert f"{len(window) - 12} more terms" in terms


def test_a_filter_tap_tells_what_it_multiplies(watch):
    said = watch("step=4").point_at("w", 9 + 1)
    assert "w[1, 1] = −2" in said
    assert "It multiplies all of row 1 of the data matrix: one term of 36 outputs, 5 so far." in said


def test_an_output_not_yet_computed_says_so(watch):
    said = watch("step=4").point_at("y", 30)
    assert "y[0, 5, 0], not computed yet" in said


def test_padding_cells_say_padding(watch):
    told = truth(**PADDED)
    stage = watch(query(PADDED | {"step": 0}))
    index = told.scene.write("D").index
    padding, inside = np.flatnonzero(index < 0)[0], np.flatnonzero(index >= 0)[0]
    said = stage.point_at("D", padding)
    assert "= 0, a zero of the padding, not read from anywhere." in said and "copy of" not in said
    assert "padding" not in stage.point_at("D", inside)
    expect(stage.caption).to_contain_text("of them zeros of the padding")


def test_a_click_pins_and_escape_unpins(stage, page):
    stage = stage("step=9")
    stage.point_at("x", 18)
    stage.click("x", 18)
    expect(stage.root).to_have_attribute("data-pinned", "")
    pinned = stage.explanation.inner_text()
    there = stage.cell("D", 0)
    page.mouse.move(there["x"] + 3, there["y"] + 3)
    frames(page, 2)
    assert stage.explanation.inner_text() == pinned  # the mouse may wander
    stage.root.press("ArrowRight")
    expect(stage.explanation).to_contain_text("x[0, 2, 2]")  # and the step may go on
    page.keyboard.press("Escape")
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    stage.click("y", 3)
    expect(stage.root).to_have_attribute("data-pinned", "")
    stage.click("y", 3)  # once more
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    stage.click("y", 3)
    page.locator("h1").click()  # the page about it is another matter
    expect(stage.root).to_have_attribute("data-pinned", "")
    page.locator(".caption").click()  # anywhere else on the stage
    expect(stage.root).not_to_have_attribute("data-pinned", "")


def test_three_channels_are_three_planes_apart_and_in_line(watch):
    stage = watch("C=3")
    planes = [(stage.cell("x", 64 * plane), stage.cell("x", 64 * plane + 63)) for plane in range(3)]
    for (first, last), (after, _) in itertools.pairwise(planes):
        across = after["y"] == first["y"] and after["x"] > last["x"] + last["width"]
        down = after["x"] == first["x"] and after["y"] > last["y"] + last["height"]
        assert across or down
    assert "x[2, 0, 0]" in stage.point_at("x", 128)


def test_a_large_shape_says_which_part_it_shows(watch):
    told = truth(**VGG)
    scene = told.scene
    t = 9
    stage = watch(query(VGG | {"step": t}))
    assert scene.steps == 64 and told.shape.PQ == 224 * 224
    _, h, w = scene.tensor("x").origin
    assert (h, w) != (0, 0)
    assert f"x[0, {h}, {w}]" in stage.point_at("x", 0)
    assert "of the part shown of the data matrix so far." in stage.point_at("x", 0)
    column = scene.tensor("D").col_index[t]
    _, p, q = scene.tensor("y").origin
    p, q = p + t // 8, q + t % 8
    assert column == p * 224 + q
    expect(stage.caption).to_have_text(scene.caption(t))
    expect(stage.caption).to_contain_text("in the 3 channels shown")
    assert f"Column {column} is one window; it gives y[0, {p}, {q}]" in stage.point_at("D", t)
    # The sum is that of all 64 channels: those not shown are one term.
    said = stage.point_at("y", t)
    assert "from the channels not shown" in said
    assert number(said.split("\n")[-1][2:]) == pytest.approx(told.y[0, p, q], rel=5e-3)
