"""The navigation bar in a browser: menu on a phone, focus of the keyboard, the link to the stage."""

import pytest
from playwright.sync_api import expect

from pages._lessons import GROUPS, LESSONS, entries
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
PHONE_SIZE = {"width": 390, "height": 844}

ACTIVE = """() => {
  let found = document.activeElement;
  while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return found?.className ?? "";
}"""
# Whether the focused element, an element around it or its ::after has an outline of 2 px in the accent colour.
OUTLINED = """() => {
  let element = document.activeElement;
  while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  const name = `${element.tagName} ${element.className} ${element.textContent.slice(0, 30)}`;
  if (element === document.body) return "";
  const probe = Object.assign(document.createElement("i"), { style: "color: var(--kt-accent)" });
  document.body.append(probe);
  const accent = getComputedStyle(probe).color;
  probe.remove();
  const outlined = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && style.outlineColor === accent;
  const styles = [getComputedStyle(element), getComputedStyle(element, "::after")];
  for (let around = element, n = 0; around && n < 8; around = around.parentElement, n++) styles.push(getComputedStyle(around));
  return styles.some(outlined) ? "" : name;
}"""


def open_im2col(page, server):
    page.goto(f"{server}/im2col?step=5")
    Stage(page).ready()
    expect(page.locator(".kt-menu")).to_have_count(1)
    expect(page.locator(".kt-skip")).to_have_count(1)


@pytest.mark.slow
def test_phone_has_a_menu_of_lessons(page, server):
    page.set_viewport_size(PHONE_SIZE)
    open_im2col(page, server)
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
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    page.keyboard.press("Escape")
    expect(links.first).to_be_hidden()
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(links.first).to_be_focused()
    page.get_by_role("link", name="tiling").click()
    expect(page).to_have_url(f"{server}/tiling")
    expect(page.get_by_role("button", name="Lessons: tiling")).to_have_text("tiling")
    expect(links.first).to_be_hidden()


def test_menu_closes_when_the_reader_leaves_it(page, server):
    page.set_viewport_size(PHONE_SIZE)
    open_im2col(page, server)
    page.locator(".kt-menu").click()
    expect(page.locator(".st-key-nav_lessons")).to_be_visible()
    page.mouse.click(200, 800)
    expect(page.locator(".st-key-nav_lessons")).to_be_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("width", [960, 768])
def test_bar_fits_a_tablet(page, server, width):
    page.set_viewport_size({"width": width, "height": 768})
    open_im2col(page, server)
    expect(page.locator(".kt-menu")).to_be_in_viewport(ratio=1)
    expect(page.locator(".st-key-nav").get_by_role("link", name="History")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width


def test_every_lesson_is_in_the_bar_once():
    paths = [lesson.path for _, lessons in entries() for lesson in lessons]
    assert sorted(paths) == sorted(lesson.path for lesson in LESSONS)
    grouped = [path for group in GROUPS.values() for path in group]
    assert len(set(grouped)) == len(grouped)
    assert [title for title, lessons in entries() if len(lessons) > 1] == list(filter(None, [t for t, _ in entries()]))


@pytest.mark.slow
def test_a_menu_of_the_bar_opens_closes_and_marks_its_lesson(page, server):
    open_im2col(page, server)
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
    bar.get_by_role("link", name="softmax", exact=True).click()
    expect(page).to_have_url(f"{server}/softmax")
    expect(other).to_have_attribute("data-current", "")
    expect(other).to_have_attribute("aria-expanded", "false")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 1280, 961])
def test_bar_shows_all_lessons_on_a_wide_screen(page, server, width):
    page.set_viewport_size({"width": width, "height": 900})
    open_im2col(page, server)
    expect(page.locator(".kt-menu")).to_be_hidden()
    expect(page.locator(".st-key-nav").get_by_role("link", name="History")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
    bar = page.locator(".st-key-nav")
    for group, lessons in entries():
        if group:
            bar.get_by_role("button", name=group, exact=True).click()
        for lesson in lessons:
            expect(bar.get_by_role("link", name=lesson.title, exact=True)).to_be_in_viewport(ratio=1)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "im2col"])
def test_first_tab_reaches_the_link_to_the_stage(page, server, path):
    page.goto(f"{server}/{path}")
    expect(page.locator(".stage[data-ready=true]").first).to_be_visible()
    expect(page.locator(".kt-skip")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the stage")).to_be_focused()
    expect(page.locator(".kt-skip")).to_be_in_viewport(ratio=1)
    url = page.url
    page.keyboard.press("Enter")
    assert "stage" in page.evaluate(ACTIVE).split()
    assert page.url.partition("?")[0] == url.partition("?")[0]
    step = page.locator(".stage").first.get_attribute("data-step")
    page.keyboard.press("ArrowRight")  # the stage has the keys
    expect(page.locator(".stage").first).not_to_have_attribute("data-step", step)


@pytest.mark.parametrize("path", ["choose?view=explore", "history"])
def test_page_without_stage_has_a_link_to_its_content(page, server, path):
    page.goto(f"{server}/{path}")
    expect(page.locator("h1.kt-title")).to_be_visible()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1.kt-title")).to_be_focused()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "im2col", "attention", "choose", "history"])
def test_focus_is_outlined_everywhere(page, server, path, scheme):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{server}/{path}")
    expect(page.locator(".stage[data-ready=true], .kt-lesson, .st-key-params").first).to_be_visible()
    expect(page.locator(".kt-skip")).to_have_count(1)
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    page.wait_for_timeout(1000)
    without = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        without.add(page.evaluate(OUTLINED))
    assert without <= {""}


@pytest.mark.parametrize("path", ["im2col", "glossary", "history"])
def test_a_page_opened_directly_requests_nothing_that_is_missing(new_page, server, path):
    page, missing = new_page(), []
    page.on("response", lambda response: missing.append(response.url) if response.status >= 400 else None)
    page.goto(f"{server}/{path}")
    expect(page.locator("h1.kt-title")).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    assert missing == []
