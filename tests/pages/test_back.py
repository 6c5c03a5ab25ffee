"""Back and Forward in a browser: each settled change of a control, each preset and each lesson is one entry."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, answered, go_to_lesson, idle, preset

pytestmark = pytest.mark.browser
SLOW_CLOCK = """() => {
  const now = performance.now.bind(performance), start = now();
  performance.now = () => start + (now() - start) / 100;
}"""


@pytest.fixture
def page(new_page):
    """Returns a page of its own: the shared one has as many entries in its history as a browser keeps."""
    return new_page()


def opened(page, address):
    page.goto(address)
    stage = Stage(page).ready()
    expect(page.locator(".kt-menu")).to_have_count(1)
    settled(page)
    return stage


def settled(page):
    """Waits for the second run, which draws charts and listings, and for its end."""
    expect(page.locator("[data-testid=stCode], [data-testid=stPlotlyChart]").first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    idle(page)


def field(page, name):
    return page.locator(".st-key-params").get_by_role("spinbutton", name=name, exact=True)


def change(page, name, value):
    field(page, name).fill(value)
    field(page, name).press("Enter")


def fields_are(page, **values):
    for name, value in values.items():
        expect(field(page, name)).to_have_value(value)


def entries(page):
    return page.evaluate("history.length")


def test_back_undoes_changes_presets_and_lessons_but_no_steps(page, server):
    changes_of_controls_are_entries_and_steps_are_none(page, server)
    back_from_another_lesson_leads_to_the_state_that_was_left(page, server)


def changes_of_controls_are_entries_and_steps_are_none(page, server):
    stage = opened(page, f"{server}/im2col?step=5&view=explore")
    before, scene = entries(page), stage.root.get_attribute("data-scene")
    change(page, "K", "3")
    expect(page).to_have_url(re.compile("K=3"))
    expect(stage.root).not_to_have_attribute("data-scene", scene)
    change(page, "C", "2")
    expect(page).to_have_url(re.compile("K=3.*C=2|C=2.*K=3"))
    answered(page, "K=3", "C=2")
    assert entries(page) == before + 2
    page.go_back()
    fields_are(page, C="1", K="3")
    expect(page).not_to_have_url(re.compile("C="))
    answered(page, "K=3")
    page.go_back()
    fields_are(page, K="2")
    expect(stage.root).to_have_attribute("data-scene", scene)
    stage.at_step(5)
    page.go_forward()
    fields_are(page, K="3", C="1")
    answered(page, "K=3")
    page.go_forward()  # to the last entry: a new one would take the place of those ahead
    fields_are(page, K="3", C="2")
    answered(page, "K=3", "C=2")

    before, step = entries(page), stage.step
    for more in (1, 2):
        stage.do("forward")
        expect(page).to_have_url(re.compile(rf"step={step + more}\b"))
    assert entries(page) == before

    corrected_fields_are_part_of_the_change(page)
    presses_in_a_row_are_one_entry(page)
    a_field_of_the_same_name_in_another_lesson_is_independent(page)


def corrected_fields_are_part_of_the_change(page):
    settled(page)
    change(page, "K", "4")
    answered(page, "K=4")
    before = entries(page)
    page.evaluate("history.pushState({}, '', '/im2col?view=explore&K=4&C=5')")  # as Streamlit writes a correction
    assert entries(page) == before
    page.mouse.click(5, 5)
    page.evaluate("history.pushState({}, '', '/im2col?view=explore&K=4&C=3')")  # the server's answer to a new input
    assert entries(page) == before + 1


def presses_in_a_row_are_one_entry(page):
    """Presses within a second are in a row. On a busy machine their answers are further apart: a slower clock allows for it."""
    settled(page)
    page.evaluate(SLOW_CLOCK)
    before = entries(page)
    field(page, "K").focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    fields_are(page, K="7")
    field(page, "K").press("Enter")
    expect(page).to_have_url(re.compile("K=7"))  # the slower clock delays the browser's next request
    assert entries(page) <= before + 2


def a_field_of_the_same_name_in_another_lesson_is_independent(page):
    go_to_lesson(page, "tiling")
    expect(page.locator(".chapter h2")).to_have_text("One thread, one element of C")
    page.get_by_role("link", name="Explore", exact=True).click()
    fields_are(page, K="8")  # of the chapter


def back_from_another_lesson_leads_to_the_state_that_was_left(page, server):
    """Both lessons have a K."""
    opened(page, f"{server}/im2col?view=explore")
    fields_are(page, K="2")
    preset(page, "LeNet conv1").click()
    expect(page).to_have_url(re.compile("H=32.*K=6"))
    answered(page, "H=32", "K=6")
    fields_are(page, H="32", K="6")
    settled(page)
    left, before = page.url.partition("&step")[0], entries(page)
    for drawn in (False, True):  # whether the reader sees the other lesson before going back
        go_to_lesson(page, "tiling")
        expect(page).to_have_url(f"{server}/tiling")
        assert entries(page) == before + 1
        if drawn:
            expect(page.locator("h1")).to_contain_text("Tiling")
        page.go_back()
        expect(page.locator("h1")).to_contain_text("im2col")
        fields_are(page, H="32", K="6")
        settled(page)
        fields_are(page, H="32", K="6")
        assert page.url.partition("&step")[0] == left
    page.go_forward()
    expect(page).to_have_url(f"{server}/tiling")
    expect(page.locator(".chapter h2")).to_have_text("One thread, one element of C")
    page.go_back()
    fields_are(page, H="32", K="6")
    page.go_back()
    fields_are(page, H="8", K="2")
    expect(page).to_have_url(f"{server}/im2col?view=explore")
