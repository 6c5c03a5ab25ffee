"""The navigation bar in a browser: menu on a phone, focus of the keyboard, the link to the stage."""

import pytest
from playwright.sync_api import expect

from pages._lessons import LESSONS
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
    expect(links).to_have_text([lesson.title for lesson in LESSONS])
    for n in range(len(LESSONS)):
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
@pytest.mark.parametrize("width", [1024, 900])
def test_bar_fits_a_tablet(page, server, width):
    page.set_viewport_size({"width": width, "height": 768})
    open_im2col(page, server)
    expect(page.locator(".kt-menu")).to_be_in_viewport(ratio=1)
    expect(page.locator(".st-key-nav").get_by_role("link", name="History")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 1201])
def test_bar_shows_all_lessons_on_a_wide_screen(page, server, width):
    page.set_viewport_size({"width": width, "height": 900})
    open_im2col(page, server)
    expect(page.locator(".kt-menu")).to_be_hidden()
    expect(page.locator(".st-key-nav").get_by_role("link", name="History")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
    for lesson in LESSONS:
        link = page.locator(".st-key-nav").get_by_role("link", name=lesson.title, exact=True)
        expect(link).to_be_in_viewport(ratio=1)


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
