"""The stage's text on the cell under the mouse, compared with NumPy; pointing and pinning in a browser."""

import json
import re
import subprocess

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.helpers.harness import PADDED, ROOT, TOY_COLUMNS, TOY_STEPS, VGG, truth
from tests.helpers.printed import number
from visuals import stage as stage_module
from visuals.conv.part import copies_per_pixel, part_of


@pytest.fixture
def explained(node, tmp_path):
    """Returns a function of a scene, a step and cells (name, index): the player's text on each."""

    def texts(scene, step, *cells):
        file = tmp_path / "cells.json"
        hovered = [[step, name, int(index)] for name, index in cells]
        file.write_text(json.dumps({"scene": stage_module.message(scene).hex(), "cells": hovered}))
        command = [node, str(ROOT / "tests/node/explained.js"), str(file)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return texts


# -- what a cell says ----------------------------------------------------------------------------
@pytest.mark.parametrize("params", [{}, PADDED], ids=["toy", "padded"])
def test_a_pixel_says_how_often_it_was_copied(explained, params):
    expected, t = truth(**params), 7
    s, max_columns = expected.shape, 0
    pixels = np.linspace(0, expected.scene.tensor("x").size - 1, 9).astype(int)
    for i, text in zip(pixels, explained(expected.scene, t, *(("x", i) for i in pixels)), strict=True):
        steps = expected.steps_of(i)
        c, h, w = np.unravel_index(i, (s.C, s.H, s.W))
        assert f"x[{c}, {h}, {w}] = {expected.inputs.x(1)[0, c, h, w]:g}." in text
        noun = "cell" if len(steps) == 1 else "cells"
        so_far = (steps <= t).sum()
        copied = f"Copied to {so_far} of {len(steps)} {noun} of the data matrix so far."
        assert (copied if so_far else "Not yet copied to the data matrix.") in text
        max_columns = max(max_columns, len(steps))
    assert max_columns <= copies_per_pixel(s)


def test_cells_of_the_toy_at_some_steps(explained):
    scene = truth().scene
    (pixel,) = explained(scene, TOY_STEPS - 1, ("x", 2 * 8 + 2))
    assert "Copied to 9 of 9 cells of the data matrix so far." in pixel
    (tap,) = explained(scene, TOY_COLUMNS + 4, ("w", 9 + 1))
    assert "w[1, 1] = −2" in tap
    assert "It multiplies all of row 1 of the data matrix: one term of 36 cells of the output matrix, 16 so far." in tap
    (output,) = explained(scene, 4, ("y", 30))
    assert "y[0, 5, 0] is C[0, 30]" in output and "C[0, 30], not computed yet" in output


def test_a_column_cell_names_its_window_and_its_outputs(explained):
    expected, cells = truth(K="3"), ((0, 0), (4, 20), (8, 21))
    index = expected.index
    texts = explained(expected.scene, 20, *(("D", row * TOY_COLUMNS + column) for row, column in cells))
    for (row, column), text in zip(cells, texts, strict=True):
        pixel = index[row, column]
        copied = "a copy of" if column <= 20 else "not written yet: will be a copy of"
        assert (
            f"D[{row}, {column}] = {expected.scene.cells('x')[pixel]:g}, {copied} x[0, {pixel // 8}, {pixel % 8}]"
            in text
        )
        assert f"Column {column} is one window. It gives C[0, {column}], C[1, {column}], C[2, {column}]." in text


@pytest.mark.parametrize("params", [{}, PADDED, {"mode": "convolution", "filter": "sobel-y"}])
def test_an_output_cell_is_its_sum_and_the_sum_is_the_convolution(explained, params):
    expected = truth(**params)
    _, P, Q = expected.y.shape
    outputs = np.linspace(0, expected.y.size - 1, 5).astype(int)
    texts = explained(expected.scene, expected.scene.steps - 1, *(("y", i) for i in outputs))
    for i, text in zip(outputs, texts, strict=True):
        k, p, q = np.unravel_index(i, expected.y.shape)
        same, name, terms, total = text.split("\n")
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


def test_padding_cells_say_padding(explained):
    expected = truth(**PADDED)
    scene, index = expected.scene, expected.index
    padding, inside = explained(scene, 0, *(("D", np.flatnonzero(found)[0]) for found in (index < 0, index >= 0)))
    assert "= 0, a zero of the padding, not read from anywhere." in padding and "copy of" not in padding
    assert "padding" not in inside
    assert "of them zeros of the padding" in scene.caption(0)


def test_a_large_shape_says_which_part_it_shows(explained):
    expected = truth(**VGG)
    scene, part = expected.scene, part_of(expected.shape, expected.inputs.planes()[0])
    assert scene.tensor("D").cols == 64 and expected.shape.PQ == 224 * 224
    assert f"{part.h}–{part.h + part.H - 1}" in scene.tensor("x").note
    (pixel,) = explained(scene, 9, ("x", 0))
    assert f"x[0, 0, 0] = {expected.inputs.x(1)[0, 0, part.h, part.w]:g}." in pixel


# -- pointing ------------------------------------------------------------------------------------
@pytest.mark.browser
def test_pointing_explains_a_click_pins_and_escape_unpins(bare, page):
    stage = bare("C=3&step=9")
    planes = [stage.cell("x", 64 * channel) for channel in range(3)]
    assert 1 in (len({plane["x"] for plane in planes}), len({plane["y"] for plane in planes}))  # aligned
    assert "x[2, 0, 0]" in stage.point_at("x", 128)
    page.mouse.move(2, 2)
    expect(stage.root).to_have_attribute("data-hover", "")
    expect(stage.explanation).to_contain_text("D[0, 9]")  # the panel explains the step again
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
