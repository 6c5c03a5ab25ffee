"""Tests of the lesson on implicit GEMM in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from kernels.model.fast_division import magic
from pages.conv.implicit import address
from tests.helpers.harness import tile_size
from visuals.conv.inputs import Inputs

pytestmark = pytest.mark.browser
LESSON = "implicit"


def scene(**params):
    query, watched = address.read(params)
    inputs = Inputs(query.shape, query.picture, query.filter, query.seed)
    return address.scene(inputs, watched.rung.name, tuple(watched.tiles.items()))[0]


def test_tiles_are_loaded_and_released(watch):
    stage, expected = watch("step=9"), scene()
    expect(stage.caption).to_contain_text("Iteration 1: tile 1 is in buffer 0.")
    expect(stage.caption).to_contain_text("Meanwhile, tiles 2 to 3 are being copied.")
    stage.root.press("End")
    stage.at_step(expected.steps - 1)
    expect(stage.caption).to_contain_text("The data matrix was never in global memory.")


def test_hover_on_a_virtual_cell_shows_address_and_divisions(watch):
    text = watch("step=9").point_at("D", 17 * 64 + 12)
    assert "D[17, 12] is never stored." in text
    assert "c = 17 / 9 = 1, remainder 8; r = 8 / 3 = 2, s = 2" in text and "p = 12 / 8 = 1, q = 4" in text
    assert "The address is ((0·6 + 1)·8 + 2)·8 + 5 = 85" in text
    nine = magic(9)
    assert f"/ 9: 2·17·{nine.multiplier} >> 32 = {2 * 17 * nine.multiplier >> 32}, >> {nine.shift} = 1" in text


def test_hover_on_a_tile_cell_names_its_pixel_and_matrix_cell(watch):
    expected, stage = scene(), watch("step=9")
    text = stage.point_at("Bs", 16 * 64 + 64 + 12)
    value = expected.cells("Bs", 9)[16 * 64 + 64 + 12]
    assert f"tile_b[1, 1, 12] = {value:g}, a copy of x[1, 2, 5]. It replaces D[17, 12], which is never stored." in text


@pytest.mark.slow
def test_tile_size_changes_url_and_scene(stage, page):
    stage = stage()
    expect(stage.root).to_have_attribute("data-scene", re.compile("STAGES=3"))
    tile_size(page, "STAGES").get_by_role("button").click()
    page.get_by_role("option", name="2", exact=True).click()
    expect(page).to_have_url(re.compile("STAGES=2"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("STAGES=2"))
    page.get_by_role("button", name="kernel 2").click()
    page.get_by_role("link", name="1 implicit GEMM, plain divisions", exact=True).click()
    expect(page).to_have_url(re.compile("rung=implicit-gemm-plain"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("implicit-gemm-plain .*STAGES=2"))
    expect(page.get_by_role("tab", name="05_implicit_gemm_plain.cu")).to_have_attribute("aria-selected", "true")


@pytest.mark.slow
@pytest.mark.parametrize("width", [800, 390])
def test_narrow_page_does_not_scroll_sideways_or_clip(stage, page, width):
    page.set_viewport_size({"width": width, "height": 900})
    stage = stage("step=9")
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
    for name, cell in (("y", 63), ("Bs", 3 * 16 * 64 - 1), ("use", 4)):
        at = stage.cell(name, cell)
        assert at["x"] + at["width"] <= width - 16, name
    assert stage.cell("fly", 0)["width"] >= (12 if width == 800 else 4)
