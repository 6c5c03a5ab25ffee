"""Stories in the app: what gives an answer away comes after the guess, chapters are entries of the history, and on the way
on is the next lesson. What the stage alone does is shown in test_chapters_browser.py, on the static site."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, idle, settled

pytestmark = pytest.mark.browser
COUNTS = ".caption, .count, .readings, .line-note"
BEGINS, MARGIN = 98, 10  # px from the top of the window to a stage at 1280 x 720, and from its end to the window's
TITLE = ".chapter h2"


def story(page, server, address):
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/{address}")
    return Stage(page).ready()


def asks(page):
    """Waits until the page hides what gives the answer away."""
    expect(page.locator(".kt-guess")).to_be_visible()
    expect(page.locator(".st-key-card_why")).to_have_count(1)
    expect(page.locator(".st-key-card_why")).to_be_hidden()
    expect(page.locator(".answer").first).to_be_visible()  # some wait for counts
    expect(page.locator(".answer.right")).to_have_count(0)
    assert [one.inner_text() for one in page.locator(COUNTS).all() if one.is_visible()] == []


def tells(page):
    expect(page.locator(".st-key-card_why")).to_be_visible()
    expect(page.locator(".kt-guess")).to_be_hidden()
    expect(page.locator(".caption")).to_be_visible()


def go_on(page, title):
    idle(page)
    page.get_by_role("button", name=re.compile("^Next:")).click()
    expect(page.locator(TITLE)).to_have_text(title)


def test_cards_and_counts_come_after_the_guess_and_back_returns_to_it(page, server):
    """Three chapters of one lesson, each answered in another way: below the stage, by an answer, in the strip."""
    stage = story(page, server, "threads?view=story&chapter=3")
    idle(page)
    box = settled(page, stage.root.bounding_box)
    assert box["y"] <= BEGINS + 1 and box["y"] + box["height"] <= 720 - MARGIN + 1
    expect(page.locator(".kt-guess")).to_be_visible()
    page.locator(".kt-reveal").click()
    tells(page)
    go_on(page, "Memory comes in sectors")
    asks(page)
    page.locator("[data-answer='3']").click()
    tells(page)
    go_on(page, "A stride wastes bytes")
    asks(page)
    page.locator("[data-strip=reveal]").click()
    tells(page)
    expect(page.locator(".line-note").first).to_be_visible()
    expect(page).to_have_url(re.compile("chapter=5"))
    idle(page)
    page.go_back()
    expect(page.locator(TITLE)).to_have_text("Memory comes in sectors")
    idle(page)
    page.go_forward()
    expect(page.locator(TITLE)).to_have_text("A stride wastes bytes")


def test_the_way_leads_through_chapters_to_the_next_lesson(page, server):
    stage = story(page, server, "threads?view=story&chapter=8&present=1")
    stage.root.press("PageDown")
    expect(page).to_have_url(re.compile("chapter=9"))
    page.get_by_role("link", name="Next lesson: tiling").click()
    expect(page.locator(TITLE)).to_have_text("One thread, one element of C")
    stage = Stage(page).ready()
    stage.root.press("End")
    stage.root.press("ArrowRight")
    expect(page.locator(TITLE)).to_have_text("Which thread gets which element?")
    stage.at_step(1)
    stage.root.press("Home")
    stage.root.press("ArrowLeft")
    expect(page.locator(TITLE)).to_have_text("One thread, one element of C")


def test_a_chapter_links_to_another_lesson(page, server):
    story(page, server, "softmax?view=story&chapter=9&embed=true")
    page.locator("[data-strip=reveal]").click()
    page.locator(".chapter").get_by_role("link", name="attention", exact=True).click()
    expect(page.locator(TITLE)).to_have_text("Each token is compared with all others")


def test_a_step_in_a_bare_url_keeps_the_story(page, server):
    stage = story(page, server, "im2col")
    expect(page.locator(TITLE)).to_have_text("A window becomes a column")
    entries = page.evaluate("history.length")
    stage.do("forward")
    expect(page).to_have_url(re.compile("chapter=1"))
    assert page.evaluate("history.length") == entries
    step = stage.step
    page.reload()
    expect(page.locator(TITLE)).to_have_text("A window becomes a column")
    Stage(page).ready().at_step(step)


def test_a_story_in_a_frame_is_its_stage_alone(page, server):
    stage = story(page, server, "im2col?embed=true&view=story&chapter=2")
    expect(page.locator(TITLE)).to_have_text("A filter becomes a row")
    expect(page.locator(".play")).to_be_visible()
    expect(page.locator(".kt-title")).to_have_count(0)
    assert stage.root.bounding_box()["height"] >= 720 - 8


def test_the_way_on_is_in_sight_beside_notes(page, server):
    stage = story(page, server, "tiling?view=story&chapter=3&M=16&rung=none")
    expect(page.locator(".kt-note").first).to_be_visible()
    idle(page)
    stage.root.press("g")
    expect(page.locator(".chapter .reveal")).not_to_be_empty()
    panel, way = (page.locator(name).bounding_box() for name in (".chapter", ".chapter-way"))
    assert way["y"] + way["height"] <= panel["y"] + panel["height"] + 1
