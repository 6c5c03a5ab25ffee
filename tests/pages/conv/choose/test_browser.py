"""Tests of the lesson on choosing in a browser: the guess, the running race, hover on the map, Run, a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TIMEOUT_MS

pytestmark = pytest.mark.browser
SMALL = "N=1&C=2&H=8&W=8&K=3&engine=cpu"
BARS = """[...document.querySelectorAll('.st-key-fresh_race_measured .kt-track')].map(track => {
  const bar = track.querySelector('i').getBoundingClientRect();
  return bar.width / track.firstChild.getBoundingClientRect().width;
})"""

FIGURES = """[...document.querySelectorAll('.st-key-fresh_race_measured :is(.kt-num span, .kt-verdict)')]
  .map(figure => Number(getComputedStyle(figure).opacity))"""


def open_at(server, page, query):
    page.goto(f"{server}/choose?{query}")
    return page


def run_race(server, page, query):
    """Runs a race on the processor at a small shape and returns its element."""
    open_at(server, page, f"{SMALL}&{query}")
    page.get_by_role("button", name="Run here").click()
    expect(page.locator(".st-key-fresh_race_measured .kt-race")).to_be_visible(timeout=TIMEOUT_MS)
    return page.locator(".st-key-fresh_race_measured")


def test_guess_is_a_link_to_the_race(server, page):
    open_at(server, page, SMALL)
    expect(page.get_by_text("Guess before you look.")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.locator(".kt-map")).to_have_count(0)
    page.get_by_role("link", name="Winograd in steps").click()
    expect(page).to_have_url(re.compile(r"predict=winograd-nonfused"))
    expect(page.get_by_role("link", name="guess again")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.get_by_text("Guess before you look.")).to_have_count(0)


@pytest.mark.slow
def test_race_animates_and_stops_at_the_first_finish(server, page):
    race = run_race(server, page, "predict=winograd-nonfused&view=race")
    first = page.evaluate(BARS)
    page.wait_for_timeout(400)
    later = page.evaluate(BARS)
    assert len(first) == 10 and max(first) < max(later) < 0.93  # still running
    assert all(a < b for a, b in zip(first, later, strict=True))
    assert set(page.evaluate(FIGURES)) == {0}
    expect(race.locator(".kt-verdict")).to_contain_text("Your guess, Winograd in steps, is")
    page.emulate_media(reduced_motion="reduce")
    assert max(page.evaluate(BARS)) == pytest.approx(0.94, abs=0.005)  # the final state at once
    assert set(page.evaluate(FIGURES)) == {1}
    expect(race.locator("[data-rung]")).to_have_count(10)
    expect(race.get_by_text("runs on the cuda engine only")).to_be_visible()


@pytest.mark.parametrize(("predict", "picture"), [("", ".st-key-guesses a p"), ("show", ".kt-race table")])
def test_presented_race_fills_the_frame_with_larger_text(server, page, predict, picture):
    page.emulate_media(reduced_motion="reduce")
    open_at(server, page, f"predict={predict}&view=race")
    expect(page.locator(picture).first).to_be_visible(timeout=TIMEOUT_MS)
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    usual = page.locator(picture).first.evaluate(size)
    open_at(server, page, f"predict={predict}&present=1")
    expect(page.locator(f".st-key-race_presented {picture}").first).to_be_visible(timeout=TIMEOUT_MS)
    assert page.locator(picture).first.evaluate(size) > 1.3 * usual
    box = page.locator(".st-key-card_race").bounding_box()
    assert 0.9 * 900 < box["height"] <= 900 and box["width"] > 0.95 * 1440
    expect(page.get_by_role("button", name="Run here")).to_be_hidden()


@pytest.mark.slow
def test_bar_lengths_match_the_times(server, page):
    page.emulate_media(reduced_motion="reduce")
    race = run_race(server, page, "predict=show&view=race")
    ratios = [float(text.replace(",", "")) for text in race.locator("td[data-column=ratio] span").all_inner_texts()]
    for bar, ratio in zip(page.evaluate(BARS), ratios, strict=True):
        assert bar == pytest.approx(max(0.94 / ratio, 0.004), abs=0.006)
    assert race.locator("tr.kt-first").count() == 1


def test_map_cell_lists_times_and_links_to_its_race(server, page):
    open_at(server, page, "view=map&across=N&down=H")
    cell = page.locator(".kt-cell").last
    cell.hover(timeout=TIMEOUT_MS)
    tip = cell.locator(".kt-tip")
    expect(tip).to_be_visible()
    expect(tip.locator("li").first).to_contain_text(re.compile(r"(µs|ms)"))
    assert page.locator(".kt-tip:visible").count() == 1
    expect(cell.locator("a")).to_have_attribute("href", re.compile(r"[?&]across=N"))


@pytest.mark.parametrize("view", ["race", "map", "networks"])
def test_page_fits_a_phone(server, page, view):
    page.set_viewport_size({"width": 390, "height": 900})
    open_at(server, page, f"predict=show&view={view}")
    expect(page.locator("h2.kt-card").first).to_be_visible(timeout=TIMEOUT_MS)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390


@pytest.mark.slow
def test_names_end_before_the_start_of_their_lanes_on_a_phone(server, page):
    page.set_viewport_size({"width": 390, "height": 844})
    open_at(server, page, "view=explore")
    lanes = page.locator("[class*=st-key-lanes_] a")
    expect(lanes.first).to_be_visible()
    crossed = lanes.evaluate_all(
        """lanes => lanes.filter((lane) => {
          const box = lane.getBoundingClientRect(), start = getComputedStyle(lane).getPropertyValue("--kt-name");
          return lane.querySelector("p").getBoundingClientRect().right > box.left + (box.width * parseFloat(start)) / 100;
        }).map((lane) => lane.textContent)"""
    )
    assert crossed == []


CUT = """chips => chips.filter((chip) => {
  const text = document.createRange();
  text.selectNodeContents(chip);
  const outer = chip.getBoundingClientRect(), inner = text.getBoundingClientRect();
  return inner.right > outer.right || inner.bottom > outer.bottom || chip.querySelector("span").scrollWidth > outer.width;
}).map((chip) => chip.textContent)"""


def test_a_long_chip_is_not_cut_on_a_phone(server, page):
    page.set_viewport_size({"width": 390, "height": 844})
    open_at(server, page, "view=explore")
    chips = page.locator(".st-key-chips_smaller a")
    expect(chips.first).to_be_visible()
    assert chips.evaluate_all(CUT) == []
    assert chips.first.bounding_box()["height"] > 26  # two lines
