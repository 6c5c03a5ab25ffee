"""The small site in Chromium, as plain files under a sub-path."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.deck import serving_files
from tests.helpers.harness import TIMEOUT_MS, Stage, rgb
from visuals.palette import DARK, LIGHT
from visuals.site.crawl import walk

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def address(site):
    """Yields the address of the site: one folder below the root of its server."""
    with serving_files(site.out.parent) as files:
        yield f"{files}/{site.out.name}"


def words(page):
    return page.locator(".kt-note")


# What loads above the listing moves it down, so a reader scrolls until it is there.
SCROLL_TO_LISTING = """() => {
  const place = document.querySelector(".st-key-kernels .site-later");
  place?.scrollIntoView({ block: "center" });
  return !place && document.querySelector(".st-key-kernels [data-testid=stCode]");
}"""


def test_a_reader_walks_from_the_first_screen_through_a_lesson(new_page, address):
    """One page from end to end: card, chapter, progress, theme, search, Explore, a preset, a chart, Back."""
    page = new_page()
    page.goto(f"{address}/")
    page.locator(".st-key-lessons").get_by_role("link", name="softmax").click()
    expect(page.locator("h1")).to_contain_text("Softmax")  # until then the first screen is shown
    expect(page.locator(".stage")).to_have_count(1)  # the first screen has one for each lesson
    stage = Stage(page).ready()
    chapter = page.locator(".chapter")
    expect(chapter).to_contain_text("1 of 9")
    stage.root.press("ArrowRight")
    stage.at_step(1)
    chapter.get_by_role("button", name=re.compile("^Next")).click()
    expect(chapter).to_contain_text("2 of 9")
    expect(page).to_have_url(re.compile(re.escape(f"{address}/softmax/?") + ".*chapter=2"))
    page.go_back()
    expect(chapter).to_contain_text("1 of 9")

    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("body")).to_have_css("background-color", rgb(DARK["ground"]))
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("body")).to_have_css("background-color", rgb(LIGHT["ground"]))

    page.get_by_role("link", name="Explore").click()
    expect(page.locator(".st-key-rung_chooser")).to_be_visible()
    page.locator(".kt-idea").scroll_into_view_if_needed()  # what is below is loaded when it comes near
    page.locator(".st-key-card_time").scroll_into_view_if_needed()
    expect(page.locator(".st-key-card_time .main-svg").first).to_be_visible()
    page.wait_for_function(SCROLL_TO_LISTING, timeout=TIMEOUT_MS)
    expect(page.locator(".st-key-kernels [data-testid=stCode]")).to_contain_text("__global__")

    page.keyboard.press("/")
    page.get_by_role("searchbox").fill("too large fp32")
    page.get_by_role("dialog").get_by_role("link").first.click()
    expect(chapter).to_contain_text("2 of 9")

    page.goto(f"{address}/")
    expect(page.locator(".st-key-lessons")).to_contain_text("2 of 9 chapters")


def test_address_of_the_app_without_a_slash_and_for_a_hall(new_page, address):
    """/softmax?chapter=3&present=1 shows the stage alone, as in the app; /softmax.html is the same page."""
    page = new_page()
    for path in ("softmax", "softmax.html"):
        page.goto(f"{address}/{path}?chapter=3&present=1&step=2")
        Stage(page).ready().at_step(2)
        expect(page.locator(".chapter")).to_contain_text("3 of 9")
        expect(page.locator(".st-key-nav")).to_have_count(0)
        assert page.evaluate("document.querySelector('.stLayoutWrapper, .kt-title') === null")


def test_what_is_not_recorded_is_named(new_page, address):
    page = new_page()
    page.goto(f"{address}/softmax?view=explore&M=5")
    expect(words(page)).to_contain_text("It has none for M=5")
    Stage(page).ready()
    page.goto(f"{address}/softmax?view=explore&M=4&N=40")  # the defaults
    Stage(page).ready()
    expect(words(page)).to_have_count(0)


def test_missing_file_leaves_the_rest(browser, address, site):
    """A site that was published in part: a page is damaged, a listing is missing."""
    page = browser.new_page()  # the browser itself reports what is missing
    damaged = site.index("softmax")["chapter=2"]
    page.route(f"**/files/{damaged}.bin", lambda route: route.fulfill(status=200, body=b"<html>"))
    page.goto(f"{address}/softmax?chapter=2")
    expect(words(page)).to_contain_text("is damaged")
    page.get_by_role("link", name="All lessons").click()
    expect(page.locator(".st-key-lessons")).to_be_visible()

    explore = site.json(site.index("softmax")["explore"])
    cards = next(one["ref"] for one in walk(explore["c"]) if one.get("k") == "cards")
    page.route(f"**/files/{cards}.bin", lambda route: route.fulfill(status=404))
    page.goto(f"{address}/softmax?view=explore")
    Stage(page).ready()
    page.locator(".kt-idea").scroll_into_view_if_needed()
    expect(words(page)).to_contain_text(f"A file of this site is missing ({cards}.bin)")
    page.close()


def test_browser_without_decompression_and_blocked_storage(new_page, address):
    page = new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(f"{address}/softmax")
    expect(words(page)).to_contain_text("This browser is too old for this site")
    page = new_page()
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('blocked', 'SecurityError'); } })"
    )
    page.goto(f"{address}/softmax")
    Stage(page).ready()
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("body")).to_have_css("background-color", rgb(DARK["ground"]))
    page.goto(f"{address}/")
    expect(page.locator(".st-key-lessons")).to_contain_text("9 chapters")


def test_opened_from_a_folder(browser, site):
    page = browser.new_page()
    page.goto(site.out.joinpath("softmax", "index.html").as_uri())
    expect(words(page)).to_contain_text("Serve the folder of this site")
    page.close()
