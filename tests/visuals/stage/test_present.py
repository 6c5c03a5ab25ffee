"""The stage alone: in a lecture hall (?present=1) and in a slide (?embed=true&view=watch)."""

from functools import partial

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, settled

pytestmark = pytest.mark.browser
LECTURE_HALL = {"width": 1920, "height": 1080}
SLIDE = {"width": 960, "height": 540}


def check_stage_alone(page, size):
    """Check that only the stage is visible, that it fills the frame, and that nothing scrolls."""
    for selector in (".st-key-nav", ".st-key-chips", ".st-key-params", ".st-key-cards", ".kt-title", ".st-key-below"):
        expect(page.locator(selector)).to_have_count(0)
    for bar in ("stHeader", "stToolbar"):
        expect(page.get_by_test_id(bar).locator("visible=true")).to_have_count(0)
    scrolls = page.evaluate(
        """() => [...document.querySelectorAll('*')].filter(e => {
            const how = getComputedStyle(e);
            return ['auto', 'scroll'].includes(how.overflowY) && e.scrollHeight > e.clientHeight + 1
                || ['auto', 'scroll'].includes(how.overflowX) && e.scrollWidth > e.clientWidth + 1;
        }).map(e => e.dataset.testid || e.tagName)"""
    )
    assert scrolls == []
    box = page.locator(".stage").bounding_box()
    assert (box["x"], box["y"], box["width"]) == (0, 0, size["width"])
    assert size["height"] - 8 <= box["height"] <= size["height"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_presented_stage_fills_the_window(stage, page, scheme):
    page.set_viewport_size(LECTURE_HALL)
    page.emulate_media(color_scheme=scheme)
    stage = stage("present=1&C=3&step=7")
    stage.at_step(7)
    check_stage_alone(page, LECTURE_HALL)
    page.keyboard.press("Tab")
    stage.root.press("ArrowRight")
    stage.at_step(8)
    check_stage_alone(page, LECTURE_HALL)


def test_presented_stage_follows_a_change_of_window_size(stage, page):
    page.set_viewport_size(LECTURE_HALL)
    stage("present=1")
    page.set_viewport_size({"width": 1280, "height": 720})
    expect(page.locator("[data-testid=stMain]")).to_have_css("height", "720px")
    page.wait_for_function("() => document.querySelector('[data-testid=stMain]').scrollHeight <= 720")
    page.get_by_test_id("stMain").hover()
    page.mouse.wheel(0, 400)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0


def test_a_note_does_not_make_the_page_scroll(stage, page):
    page.set_viewport_size(LECTURE_HALL)
    stage("present=1&H=abc")
    expect(page.locator(".kt-note")).to_be_visible()
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight") == LECTURE_HALL["height"]


def test_embedded_stage_is_alone(stage, page):
    page.set_viewport_size(SLIDE)
    stage("embed=true&view=watch&step=3").at_step(3)
    check_stage_alone(page, SLIDE)


def test_presented_home_page_is_its_stage(page, server):
    page.set_viewport_size(LECTURE_HALL)
    page.goto(server + "/?present=1")
    expect(page.locator(".stage")).to_have_attribute("data-playing", "true")
    expect(page.locator(".stage")).to_have_count(1)
    check_stage_alone(page, LECTURE_HALL)


@pytest.mark.slow
@pytest.mark.parametrize("value", ["0", "true", "11", "", "%3Cb%3E"])
def test_another_value_of_present_is_ignored(stage, page, value):
    stage(f"present={value}")
    expect(page.locator(".st-key-nav")).to_be_visible()
    expect(page.locator(".kt-title")).to_be_visible()
    expect(page.locator(".st-key-card_why")).to_be_visible()


@pytest.mark.slow
def test_a_slide_takes_keys_without_a_click_and_shows_what_the_answer_says(page, server):
    page.set_viewport_size(LECTURE_HALL)
    page.goto(f"{server}/tiling?view=story&chapter=3&present=1")
    stage = page.locator(".stage")
    expect(stage).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(stage).to_have_attribute("data-step", "2")
    page.keyboard.press("g")
    reveal = page.locator(".reveal")
    expect(reveal).to_contain_text("Shared tile takes")
    way = page.locator(".chapter-way")
    page.wait_for_function(
        "([a, b]) => a.getBoundingClientRect().bottom <= b.getBoundingClientRect().top",
        arg=[reveal.element_handle(), way.element_handle()],
    )


AREA = """root => { const box = root.querySelector(".canvas-box").getBoundingClientRect(); return box.width * box.height; }"""
WINDOWS = [(1920, 1080), (1440, 900), (1280, 720)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "chapter", ["im2col?chapter=3", "threads?chapter=1", "implicit?chapter=2", "tiling?chapter=3", "train?chapter=7"]
)
def test_a_presented_picture_is_at_least_as_large_as_on_the_page(page, server, chapter):
    areas = {}
    for query in ("", "&present=1"):
        page.goto(f"{server}/{chapter}&view=story{query}")
        root = Stage(page).ready().root
        expect(page.locator(".strip-bars li").first).to_be_attached()
        for guess in ("asked", "answered"):
            if guess == "answered":
                root.press("g")
            for width, height in WINDOWS:
                page.set_viewport_size({"width": width, "height": height})
                areas[query, guess, width] = settled(page, partial(root.evaluate, AREA))
            if query and guess == "asked":
                expect(page.locator(".strip")).to_be_hidden()
    smaller = [key for key, area in areas.items() if key[0] and area < areas["", *key[1:]]]
    assert smaller == []
