"""Tests of the lesson on direct convolution in a real browser."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from pages.conv import address, scenes

pytestmark = pytest.mark.browser
LESSON = "direct"
RUN_MS = 60_000
GAPS = "pad_h=1&pad_w=1&dilation_h=2&dilation_w=2&picture=numbers"


def scene(**params):
    query, _ = address.read(params)
    return scenes.direct(query.inputs(), params.get("order", "explaining"))[0]


def test_loops_advance_and_the_sum_is_stored(watch):
    stage, expected = watch("step=8"), scene()
    expect(stage.caption).to_contain_text("h = 0·1 − 0 + 2·1 = 2, w = 0·1 − 0 + 2·1 = 2")
    expect(stage.root.locator("[data-part=readings]")).to_contain_text("r 2s 2")
    stage.do("forward")
    stage.at_step(9)
    expect(stage.caption).to_contain_text(f"stores its sum, {expected.cells('y')[0]:g}, in y[0, 0, 0, 0]")
    stage.root.press("End")
    stage.at_step(expected.steps - 1)
    expect(stage.caption).to_contain_text("Thread 71: k = 1, p = 5, q = 5.")


def test_hovered_output_highlights_its_dilated_receptive_field(watch):
    expected = scene(pad_h=1, pad_w=1, dilation_h=2, dilation_w=2, picture="numbers")
    stage, i = watch(GAPS + "&step=40"), 8
    text = stage.point_at("y", i)
    (terms,) = expected.sums
    span = slice(terms.start[i], terms.start[i + 1])
    x, w = expected.cells("x"), expected.cells("w")
    assert f"= {expected.cells('y')[i]:g}".replace("-", "−") in text
    assert (x[terms.cells[span]] * w[terms.factors[span]]).sum() == expected.cells("y")[i]
    rows = np.unique(terms.cells[span] // 8)
    assert (np.diff(rows) == 2).all()
    highlighted = stage.root.evaluate("(root) => root.player.hover && root.player.hover.name")
    assert highlighted == "y"


def test_hover_on_a_pixel_names_how_many_threads_read_it(watch):
    text = watch("step=80").point_at("x", 3 * 8 + 3)
    assert "Its address is 27. It is in 9 windows. 18 threads load it: 9 windows × 2 filters." in text


def test_warp_order_follows_requests(watch, page):
    stage = watch("order=warps&step=3")
    expect(stage.caption).to_contain_text(
        "Warp 0 loads one tap, at address 0. Active lanes: 32 of 32. The GPU loads one sector (32 bytes) for all of them."
    )
    expect(page.locator(".stage .lanes")).to_contain_text("lanes of warp 0: 32 of 32 active")


@pytest.mark.slow
def test_control_changes_the_scene_and_run_measures_the_rungs(stage, page):
    stage = stage("engine=cpu")
    page.get_by_label("K", exact=True).press("ArrowUp")
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=3,"))
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_time")
    expect(card.locator(".kt-badge-measured").first).to_be_visible(timeout=RUN_MS)
    expect(page.locator(".st-key-card_why")).to_contain_text("direct, tiled")


def test_narrow_page_does_not_scroll_sideways_and_cells_are_readable(stage, page):
    page.set_viewport_size({"width": 390, "height": 900})
    stage = stage("step=20")
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    assert stage.cell("x", 0)["width"] >= 12
