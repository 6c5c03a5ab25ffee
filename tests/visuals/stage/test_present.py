"""The stage alone: in a lecture hall (?present=1) and in a slide (?embed=true&view=watch)."""

import pytest
from playwright.sync_api import expect

from pages.parts.address import is_presented
from tests.helpers.harness import Stage

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


def test_a_presented_stage_fills_its_window(page, server):
    main = page.get_by_test_id("stMain")
    scroll_height = "document.querySelector('[data-testid=stMain]').scrollHeight"
    page.set_viewport_size(LECTURE_HALL)
    page.emulate_media(color_scheme="dark")
    page.goto(f"{server}/im2col?present=1&C=3&step=7&H=abc")
    Stage(page).ready()
    expect(page.locator(".kt-note")).to_be_visible()
    assert page.evaluate(scroll_height) == LECTURE_HALL["height"]  # a note does not make the page scroll
    page.goto(f"{server}/im2col?present=1&C=3&step=7")
    stage = Stage(page).ready()
    stage.at_step(7)
    check_stage_alone(page, LECTURE_HALL)
    page.keyboard.press("Tab")
    stage.root.press("ArrowRight")
    stage.at_step(8)
    check_stage_alone(page, LECTURE_HALL)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 720})
    expect(main).to_have_css("height", "720px")
    page.wait_for_function(f"{scroll_height} <= 720")
    main.hover()
    page.mouse.wheel(0, 400)
    assert main.evaluate("main => main.scrollTop") == 0


def test_an_embedded_stage_and_the_presented_first_screen_are_alone(page, server):
    page.set_viewport_size(SLIDE)
    page.goto(f"{server}/im2col?embed=true&view=watch&C=3&step=3")
    stage = Stage(page).ready()
    stage.at_step(3)
    check_stage_alone(page, SLIDE)
    stage.do("forward")
    stage.at_step(4)
    assert "embed=true&view=watch&C=3" in page.url
    page.set_viewport_size(LECTURE_HALL)
    page.goto(f"{server}/?present=1")
    expect(page.locator(".stage")).to_have_attribute("data-playing", "true")
    expect(page.locator(".stage")).to_have_count(1)
    check_stage_alone(page, LECTURE_HALL)


def test_another_value_of_present_is_ignored():
    values = ("0", "true", "11", "", "<b>", "1")
    assert [value for value in values if is_presented({"present": value})] == ["1"]


def test_a_slide_takes_keys_without_a_click_and_shows_what_the_answer_says(bare, page):
    page.set_viewport_size(LECTURE_HALL)
    stage = bare("view=story&chapter=3&present=1", "tiling").root
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


# The area of the picture once the window has its new width.
AREA = """async (root, width) => {
  do await new Promise(requestAnimationFrame); while (innerWidth !== width);
  root.player.arrange();
  const box = root.querySelector(".canvas-box").getBoundingClientRect();
  return box.width * box.height;
}"""
WINDOWS = [(1920, 1080), (1440, 900), (1280, 720)]
CHAPTERS = {"im2col": 3, "threads": 1, "implicit": 2, "tiling": 3, "train": 7}


def areas(page, root, presented):
    """Returns the area of the picture in each window, before and after the answer."""
    found = {}
    for guess in ("open", "answered"):
        if guess == "answered":
            root.press("g")
        for width, height in WINDOWS:
            page.set_viewport_size({"width": width, "height": height})
            found[guess, width] = root.evaluate(AREA, width)
        if presented and guess == "open":
            expect(page.locator(".strip")).to_be_hidden()
    return found


@pytest.mark.parametrize("lesson", CHAPTERS)
def test_a_presented_picture_is_at_least_as_large_as_on_the_page(bare, page, lesson):
    story = f"view=story&chapter={CHAPTERS[lesson]}"
    on_page, presented = (areas(page, bare(f"{story}{more}", lesson).root, bool(more)) for more in ("", "&present=1"))
    assert [key for key, area in presented.items() if area < on_page[key]] == []
