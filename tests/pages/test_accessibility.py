"""axe-core finds no serious or critical violation, and the keyboard's focus is outlined.

Pages share their bar, controls, cards, listings and colours: each page is looked at once or twice, and all parts that pages
share in both themes.
"""

import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.records.jsontext import id_of
from pages._teasers import TEASERS
from tests.helpers.bare import serving_stages
from tests.helpers.deck import PACKAGES, Deck, npm, serving_files
from tests.helpers.harness import Stage, idle
from tests.pages.parts.test_theme_browser import PALETTES, rgb

pytestmark = [pytest.mark.browser, npm]

# Violations of Streamlit's widgets that a page cannot fix: (rule, part of the selector, reason).
STREAMLIT_ISSUES = (
    (
        "scrollable-region-focusable",
        ".stCode.",
        "st.code gives its <pre> no tabindex; Chromium focuses it all the same",
    ),
)
# Without frames: the stage alone has its own test.
RUN = """() => axe.run(document, { iframes: false, resultTypes: ["violations"] }).then(({ violations }) =>
  violations.filter(({ impact }) => impact === "serious" || impact === "critical").flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, any }) => ({ id, help, target: target.flat().join(" >> "), why: any.map(c => c.message).join("; ") }))))"""
ANIMATIONS_DONE = "document.getAnimations().every(({ playState }) => playState !== 'running')"
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
TABS = 60
LIGHT, DARK = "light", "dark"


@pytest.fixture
def check(page):
    """Returns a function that asserts that axe finds nothing in the page, except STREAMLIT_ISSUES, in some themes."""
    axe = PACKAGES.joinpath("axe-core", "axe.min.js").read_text(encoding="utf-8")

    def violations() -> list[str]:
        page.wait_for_function(ANIMATIONS_DONE)
        page.evaluate(axe)
        return [
            "{id}: {target} ({help}) {why}".format(**violation)
            for violation in page.evaluate(RUN)
            if not any(violation["id"] == rule and part in violation["target"] for rule, part, _ in STREAMLIT_ISSUES)
        ]

    def check_(*schemes: str) -> None:
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            for stage in page.locator(".stage").all():
                expect(stage).to_have_attribute("data-theme", scheme)
            of_the_app = page.get_by_test_id("stApp")
            if of_the_app.count():  # a new theme may run the page again, whose parts are pale until they are drawn anew
                expect(of_the_app).to_have_css("background-color", rgb(PALETTES[scheme]["ground"]))
                idle(page)
            assert violations() == [], scheme

    return check_


def focus_is_outlined_everywhere(page):
    expect(page.locator(".kt-skip")).to_have_count(1)
    page.emulate_media(reduced_motion="reduce")
    without = set()
    for _ in range(TABS):
        page.keyboard.press("Tab")
        without.add(page.evaluate(OUTLINED))
    assert without <= {""}


def at_rest(page):
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    idle(page)


def width(page, px):
    page.set_viewport_size({"width": px, "height": 900})


def test_home_and_glossary(page, server, check):
    page.goto(server)
    expect(page.locator(".kt-table").first).to_be_visible()
    expect(page.locator(".stage[data-ready=true]")).to_have_count(1 + len(TEASERS))
    at_rest(page)
    check(LIGHT)
    focus_is_outlined_everywhere(page)
    page.goto(f"{server}/glossary?term=warp")
    expect(page.locator(".kt-glossary")).to_be_visible()
    check(DARK)


def test_chapter_with_an_open_explanation(page, server, check):
    page.goto(f"{server}/threads?view=story&chapter=2")
    Stage(page).ready()
    at_rest(page)
    page.get_by_role("button", name="warp", exact=True).focus()
    expect(page.get_by_role("tooltip").filter(has_text="32 threads")).to_be_visible()
    check(DARK)


@pytest.mark.parametrize(
    ("path", "px", "schemes"),
    [("im2col?step=5&view=explore", 1440, (LIGHT, DARK)), ("backward?view=explore", 390, (LIGHT,))],
)
def test_explore(page, server, check, path, px, schemes):
    page.goto(f"{server}/{path}")
    Stage(page).ready()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    page.evaluate("document.querySelectorAll('.kt-details').forEach(folded => { folded.open = true; })")
    expect(page.locator(".st-key-kernels [data-testid=stCode]:visible code").first).to_be_visible()
    at_rest(page)
    width(page, px)
    check(*schemes)
    if px == 1440:
        focus_is_outlined_everywhere(page)


def test_history(page, server, check):
    run, against = (id_of(row) for row in records.recordings()[:2])
    page.goto(f"{server}/history?run={run}&against={against}")
    expect(page.locator(".kt-verdict")).to_be_visible()
    expect(page.locator(".kt-lesson").first).to_be_visible()
    at_rest(page)
    check(DARK)
    width(page, 390)
    page.get_by_role("link", name="all runs in one list").click()
    expect(page.locator(".kt-rows tbody tr")).to_have_count(20)
    check(LIGHT)


def test_choosing_has_its_focus_outlined_and_a_link_to_its_content(page, server, check):
    page.goto(f"{server}/choose?view=explore")
    expect(page.locator("h1.kt-title")).to_be_visible()
    expect(page.locator(".st-key-params").first).to_be_visible()
    at_rest(page)
    check(DARK)
    focus_is_outlined_everywhere(page)
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1.kt-title")).to_be_focused()


@pytest.mark.parametrize(
    ("query", "schemes"), [("", (LIGHT, DARK)), ("present=1", (DARK,)), ("order=warps", (LIGHT,))], ids=str
)
def test_stage_alone(page, server, check, query, schemes):
    page.goto(f"{server}/im2col?embed=true&view=watch&step=5&{query}")
    Stage(page).ready()
    check(*schemes)


def test_deck(page, check):
    with serving_files() as files, serving_stages() as stages:
        deck = Deck(page, f"{files}/docs/deck/index.html?app={stages}")
        for slide in ("title", "moments", "chapter", "attention", "end"):
            deck.to(slide)
            check(*((LIGHT, DARK) if slide in ("title", "chapter") else (LIGHT,)))
        page.goto("about:blank")
