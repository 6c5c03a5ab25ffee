"""axe-core finds no serious or critical violation, and the keyboard's focus is outlined.

Pages share their bar, controls, cards, listings and colours: each page is looked at once or twice, and all parts that pages
share in both themes.
"""

import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.records.jsontext import id_of
from tests.helpers.deck import PACKAGES, Deck, npm, serving_files
from tests.helpers.harness import PALETTES, Stage, idle, rgb

pytestmark = [pytest.mark.browser, npm]

# Violations of Streamlit's widgets that a page cannot fix: (rule, part of the selector, reason).
STREAMLIT_ISSUES = (
    (
        "scrollable-region-focusable",
        ".stCode.",
        "st.code gives its <pre> no tabindex; Chromium focuses it all the same",
    ),
)
# Without frames: the stage alone has its own test. The previews of lessons have one form: the first two are checked.
RUN = """() => axe.run({ exclude: [["[class*=st-key-lesson_]:not(.st-key-lesson_0, .st-key-lesson_1)"]] }, { iframes: false, resultTypes: ["violations"] }).then(({ violations }) =>
  violations.filter(({ impact }) => impact === "serious" || impact === "critical").flatMap(({ id, help, nodes }) =>
    nodes.map(({ target, any }) => ({ id, help, target: target.flat().join(" >> "), why: any.map(c => c.message).join("; ") }))))"""
ANIMATIONS_DONE = "document.getAnimations().every(({ playState }) => playState !== 'running')"
# The elements of which, as of those around them and their ::after, none has an outline of 2 px in the accent colour while
# they have the focus. After a press of Tab the browser shows the focus that a script gives.
WITHOUT_OUTLINE = """() => {
  const probe = Object.assign(document.createElement("i"), { style: "color: var(--kt-accent)" });
  document.body.append(probe);
  const accent = getComputedStyle(probe).color;
  probe.remove();
  const outlined = (style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && style.outlineColor === accent;
  const within = (root) => [...root.querySelectorAll("*")].flatMap((e) => [e, ...(e.shadowRoot ? within(e.shadowRoot) : [])]);
  return within(document).filter((element) => {
    if (element.tabIndex < 0 || !element.focus) return false;
    element.focus({ preventScroll: true });
    if (element.getRootNode().activeElement !== element) return false; // it cannot have the focus
    const styles = [getComputedStyle(element), getComputedStyle(element, "::after")];
    for (let around = element, n = 0; around && n < 8; around = around.parentElement, n++) styles.push(getComputedStyle(around));
    return !styles.some(outlined);
  }).map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 30)}`);
}"""
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
            expect(page.locator(f".stage[data-ready]:not([data-theme={scheme}])")).to_have_count(0)
            of_the_app = page.get_by_test_id("stApp")
            if of_the_app.count():  # a new theme may run the page again, whose parts are pale until they are drawn anew
                expect(of_the_app).to_have_css("background-color", rgb(PALETTES[scheme]["ground"]))
                idle(page)
            assert violations() == [], scheme

    return check_


def focus_is_outlined_everywhere(page):
    expect(page.locator(".kt-skip")).to_have_count(1)
    page.emulate_media(reduced_motion="reduce")
    page.keyboard.press("Tab")
    assert page.evaluate(WITHOUT_OUTLINE) == []


def at_rest(page):
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    idle(page)


def width(page, px):
    page.set_viewport_size({"width": px, "height": 900})


def test_home_and_glossary(page, server, check):
    page.goto(server)
    expect(page.locator(".kt-table").first).to_be_visible()
    for key in ("hero", "lesson_0", "lesson_1"):
        expect(page.locator(f".st-key-{key} .stage")).to_have_attribute("data-ready", "true")
    at_rest(page)
    check(LIGHT)
    focus_is_outlined_everywhere(page)
    page.goto(f"{server}/glossary?term=warp")
    expect(page.locator(".kt-glossary")).to_be_visible()
    check(DARK)


def test_explore(page, server, check):
    page.goto(f"{server}/im2col?step=5&view=explore")
    Stage(page).ready()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    page.evaluate("document.querySelectorAll('.kt-details').forEach(folded => { folded.open = true; })")
    expect(page.locator(".st-key-kernels [data-testid=stCode]:visible code").first).to_be_visible()
    at_rest(page)
    check(DARK, LIGHT)
    focus_is_outlined_everywhere(page)
    width(page, 390)
    check(LIGHT)


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


def test_stage_alone(page, bare, check):
    for scheme in (LIGHT, DARK):
        page.emulate_media(color_scheme=scheme)
        bare("embed=true&view=watch&step=5")
        check(scheme)
    bare("present=1&order=warps&step=5")
    check(DARK)
    bare("view=story&chapter=2", "threads")
    page.get_by_role("button", name="warp", exact=True).focus()
    expect(page.get_by_role("tooltip").filter(has_text="32 threads")).to_be_visible()
    check(DARK)


def test_deck(page, check, stages):
    with serving_files() as files:
        deck = Deck(page, f"{files}/docs/deck/index.html?app={stages}")
        for slide in ("title", "moments", "chapter", "end"):
            deck.to(slide)
            check(*((LIGHT, DARK) if slide in ("title", "chapter") else (LIGHT,)))
        page.goto("about:blank")
