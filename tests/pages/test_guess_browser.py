"""In a browser: what gives an answer away appears after the guess, on the stage and below it."""

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
COUNTS = ".caption, .count, .readings, .line-note"


def opened(page, server, query):
    page.goto(f"{server}/{query}")
    Stage(page).ready()
    expect(page.locator(".kt-guess")).to_have_count(1)
    expect(page.locator(".st-key-card_why")).to_have_count(1)


def visible(page, selector):
    return [one.is_visible() for one in page.locator(selector).all()]


@pytest.mark.parametrize("by", [".kt-reveal", "[data-strip=reveal]", "[data-answer='3']"])
def test_cards_and_counts_come_after_the_guess(page, server, by):
    opened(page, server, "threads?view=story&chapter=5")
    expect(page.locator(".st-key-card_why")).not_to_be_visible()
    assert not any(visible(page, COUNTS))
    page.locator(by).click()
    expect(page.locator(".st-key-card_why")).to_be_visible()
    expect(page.locator(".caption")).to_be_visible()
    expect(page.locator(".line-note").first).to_be_visible()
    expect(page.locator(".kt-guess")).not_to_be_visible()


def test_the_next_chapter_asks_again(page, server):
    opened(page, server, "threads?view=story&chapter=3")
    page.locator(".kt-reveal").click()
    expect(page.locator(".st-key-card_why")).to_be_visible()
    page.locator(".chapter-way .primary").click()
    expect(page.locator(".st-key-card_why")).not_to_be_visible()
    expect(page.locator(".kt-guess")).to_be_visible()


def test_explore_shows_its_cards(page, server):
    page.goto(f"{server}/threads?view=explore")
    Stage(page).ready()
    expect(page.locator(".st-key-card_why")).to_be_visible()
