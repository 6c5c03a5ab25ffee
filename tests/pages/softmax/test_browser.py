"""Tests of the softmax lesson in a real browser: steps, overflow, custom numbers, Run, narrow page."""

import re

import pytest
from playwright.sync_api import expect

from pages.softmax import address
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
RUN_MS = 60_000


@pytest.fixture
def lesson(page, server):
    def open_(query=""):
        page.goto(f"{server}/softmax?{query or 'view=explore'}")
        return Stage(page).ready()

    return open_


@pytest.mark.slow
def test_each_step_has_the_caption_of_the_scene(lesson):
    stage, scene = lesson("view=watch"), address.card({})
    for step in range(scene.steps):
        stage.at_step(step)
        expect(stage.caption).to_have_text(scene.caption(step))
        stage.do("forward")
    expect(stage.root).to_contain_text("passes over x 2")
    a, b = (float(v) for v in scene.annotations[0].captions.args[8])  # cell 0 after the first level
    assert f"The larger of {a:g} and {b:g}.".replace("-", "−") in stage.point_at("partial_m", 8)


def test_overflow_is_visible_on_the_stage(lesson):
    params = {"rung": "unsafe", "logits": "large", "BLOCK": "8"}
    scene = address.card(params)
    last = scene.steps - 1
    stage = lesson("view=watch&" + "&".join(f"{k}={v}" for k, v in params.items()) + f"&step={last}")
    expect(stage.caption).to_have_text(scene.caption(last))
    wrong = int((scene.cells("y") != scene.cells("y")).argmax())
    assert "= NaN" in stage.point_at("y", wrong)
    assert "= ∞" in stage.point_at("l", 0)
    expect(stage.root).to_contain_text("l so far ∞")


@pytest.mark.slow
def test_custom_numbers_are_played_and_kept_in_the_url(lesson, page):
    stage = lesson("logits=own+numbers&rung=three-pass")
    field = page.get_by_label("your row")
    field.fill("1 2 nonsense")
    field.press("Enter")
    expect(page.locator(".kt-note")).to_contain_text("“nonsense” is not a number")
    field.fill("3 -inf 100")
    field.press("Enter")
    expect(page.locator(".kt-note")).to_have_count(0)
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"softmax/three-pass BLOCK=8 3:"))
    expect(page).to_have_url(re.compile("numbers=3"))
    card = page.locator(".st-key-card_softmax_row")
    expect(card).to_contain_text("NaN in 1 of 3")
    page.reload()
    expect(page.get_by_label("your row")).to_have_value("3 -inf 100")


@pytest.mark.slow
def test_narrow_page_scrolls_only_vertically(lesson, page):
    page.set_viewport_size({"width": 390, "height": 900})
    lesson("rung=warp-shuffle&logits=own+numbers")
    expect(page.locator(".st-key-card_softmax_row")).to_contain_text("a row in registers")
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    box = page.locator(".st-key-card_softmax_row").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 391


@pytest.mark.slow
def test_a_run_measures_the_rungs_on_this_processor(page, server):
    page.goto(f"{server}/softmax?view=run&engine=cpu&M=16&N=64")
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_time")
    expect(card.locator(".kt-badge-measured").first).to_be_visible(timeout=RUN_MS)
    expect(card).to_contain_text("three passes")
