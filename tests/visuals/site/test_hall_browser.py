"""The small site in a hall, in Chromium: from a chapter through a run to History."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.hall import a_hall
from tests.helpers.harness import Stage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hall(site, tmp_path_factory):
    with a_hall(site.out, tmp_path_factory.mktemp("data"), seconds=1) as hall:
        yield hall


def test_a_reader_runs_a_kernel_and_finds_it_in_history(new_page, hall):
    page = new_page()
    page.goto(f"{hall.url}/softmax?chapter=4")
    stage, strip = Stage(page).ready(), page.locator(".strip")
    run, stop = page.locator("[data-strip=run]"), page.locator("[data-strip=stop]")
    expect(strip).to_contain_text("This processor is the server's")
    step = stage.step + 1
    stage.root.press("ArrowRight")
    stage.at_step(step)
    run.click()
    stop.wait_for()  # looks at each frame
    expect(run).to_be_visible()  # the run has ended
    expect(strip.locator(".badge-measured").first).to_be_visible()
    assert stage.step == step, "the stage stays where the reader is"

    page.locator(".chapter").get_by_role("button", name=re.compile("^Next")).click()
    expect(page.locator(".chapter")).to_contain_text("5 of 9")
    expect(run).to_be_visible()

    # A shape that the site does not hold, and this browser has no Python: the server draws it.
    page.goto(f"{hall.url}/softmax?view=explore&M=5&N=24")
    Stage(page).ready()
    expect(page.locator(".site-lost")).to_have_count(0)
    expect(page.locator(".st-key-M input")).to_have_value("5")

    page.locator(".st-key-nav").get_by_role("link", name="History").click()
    first = page.locator(".kt-rows tbody tr").first
    expect(first).to_contain_text("measured")
    first.locator(".kt-pick-A").click()
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]+"))
    expect(page.locator(".st-key-card_compared")).to_contain_text("One run")

    # The server answers no more: the page stays, and a press says it.
    page.route("**/hall/press/**", lambda route: route.fulfill(status=200, body="<html>of a proxy"))
    page.goto(f"{hall.url}/softmax?chapter=4")
    Stage(page).ready()
    run.click()
    expect(page.locator(".strip-error")).to_contain_text("The server cannot be reached")
