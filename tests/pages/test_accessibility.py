"""axe-core finds no serious or critical violation on the pages, the stage alone and the deck's slides."""

import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.records.jsontext import id_of
from pages._cards import CARDS
from tests.helpers.deck import PACKAGES, Deck, npm, serving_files
from tests.helpers.harness import Stage

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
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture
def violations(page):
    """Returns a function that lists axe's violations in the page except STREAMLIT_ISSUES."""
    axe = PACKAGES.joinpath("axe-core", "axe.min.js").read_text(encoding="utf-8")

    def find() -> list[str]:
        page.wait_for_function(ANIMATIONS_DONE)
        page.evaluate(axe)
        return [
            "{id}: {target} ({help}) {why}".format(**violation)
            for violation in page.evaluate(RUN)
            if not any(violation["id"] == rule and part in violation["target"] for rule, part, _ in STREAMLIT_ISSUES)
        ]

    return find


@pytest.mark.slow
@SCHEMES
def test_home(page, server, violations, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(server)
    expect(page.locator(".kt-table").first).to_be_visible()
    expect(page.locator(".stage[data-ready=true]")).to_have_count(1 + len(CARDS))
    assert violations() == []
    page.goto(f"{server}/glossary?term=warp")
    expect(page.locator(".kt-glossary")).to_be_visible()
    assert violations() == []


@pytest.mark.slow
@SCHEMES
def test_chapter_with_an_open_explanation(page, server, violations, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{server}/threads?view=story&chapter=2")
    Stage(page).ready()
    page.get_by_role("button", name="warp", exact=True).focus()
    expect(page.get_by_role("tooltip").filter(has_text="32 threads")).to_be_visible()
    assert violations() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "scheme", "widths"),
    [
        ("im2col?step=5", "light", [1440, 390]),
        ("im2col?step=5", "dark", [1440]),
        ("layers?view=explore", "dark", [1440]),
        ("layers?view=story", "light", [390]),
        ("backward?view=explore", "light", [390]),
        ("backward?view=story", "dark", [1440]),
    ],
)
def test_lesson(page, server, violations, path, scheme, widths):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": widths[0], "height": 900})
    page.goto(f"{server}/{path}")
    Stage(page).ready()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    page.evaluate("document.querySelectorAll('.kt-details').forEach(folded => { folded.open = true; })")
    expect(page.locator(".st-key-kernels [data-testid=stCode]:visible code").first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        assert violations() == [], width


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "widths"), [("light", [1440, 390]), ("dark", [1440])], ids=["light", "dark"])
def test_history(page, server, violations, scheme, widths):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": widths[0], "height": 900})
    run, against = (id_of(row) for row in records.recordings()[:2])
    page.goto(f"{server}/history?run={run}&against={against}")
    expect(page.locator(".kt-verdict")).to_be_visible()
    expect(page.locator(".kt-lesson").first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        assert violations() == [], width
    page.get_by_role("link", name="all runs in one list").click()
    expect(page.locator(".kt-rows tbody tr")).to_have_count(20)
    for width in reversed(widths):
        page.set_viewport_size({"width": width, "height": 900})
        assert violations() == [], width


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "present=1", "order=warps"], ids=["plain", "present", "warps"])
def test_stage_alone(page, server, violations, query):
    page.goto(f"{server}/im2col?embed=true&view=watch&step=5&{query}")
    stage = Stage(page).ready()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(stage.root).to_have_attribute("data-theme", scheme)
        assert violations() == [], scheme


@pytest.mark.slow
@SCHEMES
def test_deck(page, server, violations, scheme):
    page.emulate_media(color_scheme=scheme)
    with serving_files() as files:
        deck = Deck(page, f"{files}/docs/deck/index.html?app={server}")
        for slide in ("title", "moments", "chapter", "attention", "end"):
            deck.to(slide)
            assert violations() == [], slide
        page.goto("about:blank")
