"""Back and Forward in a browser: each settled change of a control, each preset and each lesson is one entry."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, go_to_lesson, preset

pytestmark = pytest.mark.browser
SLOW_CLOCK = """() => {
  const now = performance.now.bind(performance), start = now();
  performance.now = () => start + (now() - start) / 100;
}"""


@pytest.fixture
def page(new_page):
    """Returns a page of its own: the shared one has as many entries in its history as a browser keeps."""
    return new_page()


@pytest.fixture
def open_at(page, server):
    """Returns a function that opens a path and waits until the page has settled."""

    def open_(path):
        page.goto(f"{server}/{path}" if "?" in path else f"{server}/{path}?view=explore")
        Stage(page).ready()
        expect(page.locator(".kt-menu")).to_have_count(1)
        settled(page)

    return open_


def settled(page):
    """Waits for the second run, which draws charts and listings, and for its end."""
    expect(page.locator("[data-testid=stCode], [data-testid=stPlotlyChart]").first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)


def field(page, name):
    return page.locator(".st-key-params").get_by_role("spinbutton", name=name, exact=True)


def change(page, name, value):
    field(page, name).fill(value)
    field(page, name).press("Enter")


@pytest.mark.slow
def test_back_from_another_lesson_leads_to_the_state_that_was_left(page, server, open_at):
    open_at("attention")
    preset(page, "N=1024").click()
    expect(page).to_have_url(re.compile("N=1024"))
    expect(field(page, "N")).to_have_value("1024")
    left = page.url
    entries = page.evaluate("history.length")
    go_to_lesson(page, "tiling")
    expect(page).to_have_url(f"{server}/tiling")
    expect(page.locator("h1")).not_to_contain_text("ttention")
    assert page.evaluate("history.length") == entries + 1
    page.go_back()
    expect(page.locator("h1")).to_contain_text("ttention")
    expect(field(page, "N")).to_have_value("1024")
    assert page.url.partition("&step")[0] == left.partition("&step")[0]
    settled(page)
    page.go_back()
    expect(field(page, "N")).to_have_value("16")
    expect(page).to_have_url(f"{server}/attention?view=explore")


def test_back_undoes_a_change_of_a_control(page, server, open_at):
    open_at("im2col?step=5")
    entries = page.evaluate("history.length")
    scene = page.locator(".stage").get_attribute("data-scene")
    change(page, "K", "3")
    expect(page).to_have_url(re.compile("K=3"))
    expect(page.locator(".stage")).not_to_have_attribute("data-scene", scene)
    change(page, "C", "2")
    expect(page).to_have_url(re.compile("K=3.*C=2|C=2.*K=3"))
    assert page.evaluate("history.length") == entries + 2
    page.go_back()
    expect(field(page, "C")).to_have_value("1")
    expect(field(page, "K")).to_have_value("3")
    page.go_back()
    expect(field(page, "K")).to_have_value("2")
    expect(page.locator(".stage")).to_have_attribute("data-scene", scene)
    Stage(page).at_step(5)
    page.go_forward()
    expect(field(page, "K")).to_have_value("3")
    expect(field(page, "C")).to_have_value("1")


@pytest.mark.slow
def test_steps_of_the_stage_are_no_entries(page, server, open_at):
    open_at("im2col")
    entries = page.evaluate("history.length")
    Stage(page).do("forward")
    expect(page).to_have_url(re.compile("step=1"))
    Stage(page).do("forward")
    expect(page).to_have_url(re.compile("step=2"))
    assert page.evaluate("history.length") == entries


@pytest.mark.slow
def test_correction_of_other_fields_is_part_of_the_change(page, server, open_at):
    open_at("im2col")
    entries = page.evaluate("history.length")
    change(page, "K", "3")
    expect(page).to_have_url(re.compile("K=3"))
    page.evaluate(
        "history.pushState({}, '', '/im2col?view=explore&K=3&C=2')"
    )  # as Streamlit writes what the server corrects
    assert page.evaluate("history.length") == entries + 1
    page.mouse.click(5, 5)
    page.evaluate("history.pushState({}, '', '/im2col?view=explore&K=3&C=3')")  # the server's answer to a new input
    assert page.evaluate("history.length") == entries + 2


@pytest.mark.slow
def test_presses_of_one_button_in_a_row_are_one_entry(page, server, open_at):
    open_at("im2col")
    entries = page.evaluate("history.length")
    # Presses within a second are in a row. On a busy machine their answers are further apart: a slower clock allows for it.
    page.evaluate(SLOW_CLOCK)
    field(page, "K").focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    expect(field(page, "K")).to_have_value("5")
    field(page, "K").press("Enter")
    expect(page).to_have_url(re.compile("K=5"))
    assert page.evaluate("history.length") <= entries + 2


@pytest.mark.slow
def test_back_restores_parameters_that_both_pages_have(page, server, open_at):
    open_at("im2col?C=2&K=3")
    go_to_lesson(page, "tiling")
    expect(page).to_have_url(f"{server}/tiling")
    page.go_back()
    expect(field(page, "C")).to_have_value("2")
    expect(field(page, "K")).to_have_value("3")
    page.go_forward()
    expect(page).to_have_url(f"{server}/tiling")
    expect(page.locator(".chapter h2")).to_have_text("One thread, one element of C")


@pytest.mark.slow
@pytest.mark.parametrize("wait_ms", [0, 200])
def test_back_at_once_restores_shared_parameters_too(page, server, open_at, wait_ms):
    """The server still draws the other page when the browser requests the first one."""
    open_at("attention?N=24")
    go_to_lesson(page, "tiling")
    expect(page).to_have_url(f"{server}/tiling")
    page.wait_for_timeout(wait_ms)
    page.go_back()
    expect(field(page, "N")).to_have_value("24")
    settled(page)
    expect(field(page, "N")).to_have_value("24")
    expect(page).to_have_url(re.compile("attention.*N=24"))
