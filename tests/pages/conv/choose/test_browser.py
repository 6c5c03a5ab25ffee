"""The lesson on choosing in a browser: the guess, the running race, hover on the map, a lecture hall, a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TIMEOUT_MS, idle

pytestmark = pytest.mark.browser
SMALL = "N=1&C=2&H=8&W=8&K=3&engine=cpu"
LANES = ".st-key-fresh_race_measured .kt-track"
BARS = f"""() => [...document.querySelectorAll('{LANES}')].map(track => {{
  const bar = track.querySelector('i').getBoundingClientRect();
  return bar.width / track.firstChild.getBoundingClientRect().width;
}})"""
# Starts the race anew and stops it at a share of its time: a picture does not depend on when it is looked at.
RACE_AT = """(share) => {
  const all = [...document.querySelectorAll('.st-key-fresh_race_measured *')];
  all.forEach((element) => { element.style.animation = 'none'; });
  document.body.offsetWidth;
  all.forEach((element) => { element.style.animation = ''; });
  all.flatMap((element) => element.getAnimations()).forEach((animation) => {
    animation.pause();
    animation.currentTime = share * animation.effect.getComputedTiming().endTime;
  });
}"""
FIGURES = """() => [...document.querySelectorAll('.st-key-fresh_race_measured td[data-column] span')].map((figure) => {
  let shown = 1;
  for (let e = figure; e; e = e.parentElement) shown *= getComputedStyle(e).opacity;
  return shown;
})"""


def test_a_guess_leads_to_a_race_that_runs_to_the_first_finish(server, page):
    page.goto(f"{server}/choose?{SMALL}&view=race")
    expect(page.get_by_text("Guess before you look.")).to_be_visible()
    expect(page.locator(".kt-map")).to_have_count(0)
    page.get_by_role("link", name="Winograd in steps").click()
    expect(page).to_have_url(re.compile(r"predict=winograd-nonfused"))
    expect(page.get_by_role("link", name="guess again")).to_be_visible()
    expect(page.get_by_text("Guess before you look.")).to_have_count(0)
    idle(page)
    page.get_by_role("button", name="Run here").click()
    race = page.locator(".st-key-fresh_race_measured")
    expect(race.locator(".kt-race")).to_be_visible(timeout=TIMEOUT_MS)
    idle(page)

    page.evaluate(RACE_AT, 0.2)
    first, hidden = page.evaluate(BARS), page.evaluate(FIGURES)
    page.evaluate(RACE_AT, 0.4)
    later = page.evaluate(BARS)
    assert len(first) == 10 and max(first) < max(later) < 0.93  # still running
    assert all(a < b for a, b in zip(first, later, strict=True))
    assert hidden and max(hidden) == 0  # the figures would tell the winner
    expect(race.locator(".kt-verdict")).to_contain_text("Your guess, Winograd in steps, is")

    page.emulate_media(reduced_motion="reduce")  # the final state at once
    ratios = [float(text.replace(",", "")) for text in race.locator("td[data-column=ratio] span").all_inner_texts()]
    lengths = page.evaluate(BARS)
    assert max(lengths) == pytest.approx(0.94, abs=0.005) and max(page.evaluate(FIGURES)) == 1
    for bar, ratio in zip(lengths, ratios, strict=True):
        assert bar == pytest.approx(max(0.94 / ratio, 0.004), abs=0.006)
    assert race.locator("tr.kt-first").count() == 1
    expect(race.locator("[data-rung]")).to_have_count(10)
    expect(race.get_by_text("runs on the cuda engine only")).to_be_visible()


@pytest.mark.parametrize(("predict", "picture"), [("", ".st-key-guesses a p"), ("show", ".kt-race table")])
def test_presented_race_fills_the_frame_with_larger_text(server, page, predict, picture):
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{server}/choose?predict={predict}&view=race")
    expect(page.locator(picture).first).to_be_visible(timeout=TIMEOUT_MS)
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    usual = page.locator(picture).first.evaluate(size)
    page.goto(f"{server}/choose?predict={predict}&present=1")
    expect(page.locator(f".st-key-race_presented {picture}").first).to_be_visible(timeout=TIMEOUT_MS)
    assert page.locator(picture).first.evaluate(size) > 1.3 * usual
    box = page.locator(".st-key-card_race").bounding_box()
    assert 0.9 * 900 < box["height"] <= 900 and box["width"] > 0.95 * 1440
    expect(page.get_by_role("button", name="Run here")).to_be_hidden()


FITS = """() => [document.documentElement, document.querySelector("[data-testid=stMain]")].every(
  ({ scrollWidth }) => scrollWidth <= innerWidth)"""


@pytest.mark.parametrize("view", ["race", "map", "networks"])
def test_page_fits_a_phone_and_a_cell_of_the_map_lists_times(server, page, view):
    page.goto(f"{server}/choose?predict=show&view={view}&across=N&down=H")
    expect(page.locator("h2.kt-card").first).to_be_visible(timeout=TIMEOUT_MS)
    if view == "map":
        cell = page.locator(".kt-cell").last
        cell.hover()
        tip = cell.locator(".kt-tip")
        expect(tip).to_be_visible()
        expect(tip.locator("li").first).to_contain_text(re.compile(r"(µs|ms)"))
        assert page.locator(".kt-tip:visible").count() == 1
        expect(cell.locator("a")).to_have_attribute("href", re.compile(r"[?&]across=N"))
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(FITS)
