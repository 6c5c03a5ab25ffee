"""Chapters as a reader opens them: by a cold link, with the keyboard, back and forward, in a lecture hall."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage
from tests.pages.test_chapters import CHAPTERS

pytestmark = pytest.mark.browser
# Nothing of the chapter is cut off, and none of it lies under its buttons.
FITS = """() => {
  const host = [...document.querySelectorAll("*")].find((element) => element.shadowRoot?.querySelector(".stage"));
  const [panel, text, way] = ["", "-text", "-way"].map((name) => host.shadowRoot.querySelector(`.chapter${name}`));
  const bottom = text.getBoundingClientRect().bottom, top = way.getBoundingClientRect().top;
  return panel.scrollHeight <= panel.clientHeight + 1 && bottom <= top + 1;
}"""


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "n"), CHAPTERS)
def test_a_chapter_opens_cold_and_is_in_sight(page, server, lesson, n):
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/{lesson.path}?view=story&chapter={n + 1}")
    Stage(page).ready()
    for selector in (
        ".chapter h2",
        ".chapter-text p:first-child",
        ".chapter-way",
        "canvas",
        ".play",
        ".caption",
    ):
        expect(page.locator(f".stage {selector}").first).to_be_in_viewport(ratio=0.95)
    expect(page.locator(".strip-value")).not_to_be_empty()
    page.wait_for_function(FITS)
    assert not errors


def test_a_guess_by_the_keyboard_shows_the_figures(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=3")
    Stage(page).ready()
    value = page.locator(".strip-value")
    expect(value).to_be_hidden()
    expect(page.locator(".strip-ask")).to_contain_text("after your guess")
    page.get_by_role("button", name="Faster").focus()
    page.keyboard.press("Enter")
    expect(value).to_be_visible()
    expect(page.locator(".chapter .reveal")).to_contain_text("Shared tile takes")
    expect(page.locator(".answer.right")).to_contain_text("Faster")
    expect(page.locator(".answer.chosen")).to_be_focused()


def test_a_lecturer_shows_the_answer_and_turns_the_chapter_by_keys(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=3&present=1")
    stage = Stage(page)
    stage.ready()
    stage.root.press("g")
    expect(page.locator(".answer.right")).to_contain_text("Faster")
    expect(page.locator(".answer.chosen")).to_have_count(0)
    expect(page.locator(".strip-value")).to_be_visible()
    stage.root.press("PageDown")
    expect(page.locator(".chapter h2")).to_have_text("More sums for each thread")
    expect(page.locator(".strip-value")).to_be_hidden()
    stage.root.press("PageUp")
    expect(page.locator(".chapter h2")).to_have_text("Share a tile")


def test_back_and_forward_over_chapters(page, server):
    page.goto(f"{server}/softmax?view=story&chapter=1")
    Stage(page).ready()
    page.get_by_role("button", name=re.compile("^Next:")).click()
    expect(page.locator(".chapter h2")).to_have_text("Too large for FP32")
    expect(page).to_have_url(re.compile("chapter=2"))
    page.go_back()
    expect(page.locator(".chapter h2")).to_have_text("Numbers become weights")
    page.go_forward()
    expect(page.locator(".chapter h2")).to_have_text("Too large for FP32")


def test_a_chapter_links_to_the_next_lesson(page, server):
    page.goto(f"{server}/softmax?view=story&chapter=8")
    Stage(page).ready()
    page.locator("[data-strip=reveal]").click()
    page.locator(".chapter").get_by_role("link", name="attention").click()
    expect(page.locator(".chapter h2")).to_have_text("Each token is compared with all others")
