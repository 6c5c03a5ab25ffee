"""The navigation bar in a browser: its widths, its menus, the keyboard, the link to the stage."""

import pytest
from playwright.sync_api import expect

from pages._lessons import GROUPS, LESSONS, entries
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser

ACTIVE = """() => {
  let found = document.activeElement;
  while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return found?.className ?? "";
}"""
WIDE, TABLET = (1440, 1280, 961), (960, 768)  # px: the bar shows all lessons, or a menu


def test_every_lesson_is_in_the_bar_once():
    paths = [lesson.path for _, lessons in entries() for lesson in lessons]
    assert sorted(paths) == sorted(lesson.path for lesson in LESSONS)
    grouped = [path for group in GROUPS.values() for path in group]
    assert len(set(grouped)) == len(grouped)
    assert [title for title, lessons in entries() if len(lessons) > 1] == list(filter(None, [t for t, _ in entries()]))


def test_the_bar_of_a_lesson(page, server):
    missing = []
    page.on("response", lambda response: missing.append(response.url) if response.status >= 400 else None)
    page.goto(f"{server}/im2col?step=5")
    Stage(page).ready()
    expect(page.locator(".kt-menu")).to_have_count(1)
    first_tab_reaches_the_link_to_the_stage(page)
    for width in WIDE:
        all_lessons_are_in_the_bar(page, width)
    a_menu_opens_and_closes(page)
    for width in TABLET:
        a_tablet_has_the_menu_of_all_lessons(page, width)
    page.set_viewport_size({"width": 390, "height": 844})
    a_phone_has_the_menu_of_all_lessons(page)
    page.get_by_role("link", name="tiling").click()
    expect(page).to_have_url(f"{server}/tiling")
    expect(page.get_by_role("button", name="Lessons: tiling")).to_have_text("tiling")
    expect(page.locator(".st-key-nav_lessons a").first).to_be_hidden()
    page.set_viewport_size({"width": 1440, "height": 900})
    a_menu_leads_to_its_lesson_and_marks_it(page, server)
    assert missing == []  # Streamlit itself looks for its server below the page's path


def first_tab_reaches_the_link_to_the_stage(page):
    expect(page.locator(".kt-skip")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the stage")).to_be_focused()
    expect(page.locator(".kt-skip")).to_be_in_viewport(ratio=1)
    path = page.url.partition("?")[0]
    page.keyboard.press("Enter")
    assert "stage" in page.evaluate(ACTIVE).split()
    assert page.url.partition("?")[0] == path
    stage = page.locator(".stage").first
    step = stage.get_attribute("data-step")
    page.keyboard.press("ArrowRight")  # the stage has the keys
    expect(stage).not_to_have_attribute("data-step", step)


def fits(page):
    expect(page.locator(".st-key-nav").get_by_role("link", name="History")).to_be_in_viewport(ratio=1)
    page.wait_for_function("document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth")


def all_lessons_are_in_the_bar(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    expect(page.locator(".kt-menu")).to_be_hidden()
    fits(page)
    if width > min(WIDE):
        return
    bar = page.locator(".st-key-nav")
    for group, lessons in entries():
        if group:
            bar.get_by_role("button", name=group, exact=True).click()
        for lesson in lessons:
            expect(bar.get_by_role("link", name=lesson.title, exact=True)).to_be_in_viewport(ratio=1)
    page.keyboard.press("Escape")


def a_menu_opens_and_closes(page):
    page.set_viewport_size({"width": 1440, "height": 900})
    bar = page.locator(".st-key-nav")
    menu, other = (bar.get_by_role("button", name=name, exact=True) for name in ("convolution", "attention"))
    expect(menu).to_have_attribute("data-current", "")
    expect(other).not_to_have_attribute("data-current", "")
    link = bar.get_by_role("link", name="Winograd", exact=True)
    expect(link).to_have_count(0)  # hidden also from a screen reader
    menu.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("aria-expanded", "true")
    expect(link).to_be_in_viewport(ratio=1)
    page.keyboard.press("Tab")
    expect(bar.get_by_role("link", name="direct", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    expect(link).to_have_count(0)
    menu.click()
    other.click()
    expect(link).to_have_count(0)  # one menu at a time
    page.keyboard.press("Escape")


def a_tablet_has_the_menu_of_all_lessons(page, width):
    page.set_viewport_size({"width": width, "height": 768})
    expect(page.locator(".kt-menu")).to_be_in_viewport(ratio=1)
    fits(page)


def a_phone_has_the_menu_of_all_lessons(page):
    menu, links = page.get_by_role("button", name="Lessons: im2col"), page.locator(".st-key-nav_lessons a")
    expect(menu).to_have_text("im2col")
    expect(links.first).to_be_hidden()
    menu.click()
    expect(menu).to_have_attribute("aria-expanded", "true")
    in_bar = [lesson.title for _, lessons in entries() for lesson in lessons]
    expect(links).to_have_text([*in_bar, "Glossary"])
    for n in range(len(LESSONS) + 1):
        expect(links.nth(n)).to_be_in_viewport(ratio=1)
        assert links.nth(n).bounding_box()["height"] >= 44
    page.wait_for_function("document.querySelector('[data-testid=stMain]').scrollWidth <= 390")
    page.mouse.click(200, 840)  # outside
    expect(links.first).to_be_hidden()
    menu.click()
    page.keyboard.press("Escape")
    expect(links.first).to_be_hidden()
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()


def a_menu_leads_to_its_lesson_and_marks_it(page, server):
    bar = page.locator(".st-key-nav")
    menu = bar.get_by_role("button", name="attention", exact=True)
    expect(menu).not_to_have_attribute("data-current", "")
    menu.click()
    bar.get_by_role("link", name="softmax", exact=True).click()
    expect(page).to_have_url(f"{server}/softmax")
    expect(menu).to_have_attribute("data-current", "")
    expect(menu).to_have_attribute("aria-expanded", "false")
