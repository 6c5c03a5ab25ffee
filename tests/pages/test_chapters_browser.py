"""Each lesson on one screen: its chapters, its picture in Explore, on a laptop, in a hall and on a phone.

The pages are those of the static site: the app's player, texts and styles, drawn in a tenth of the time. A stage
begins 6 px higher than in the app, so the windows are lower; test_guess_browser.py and test_one_screen.py look where it begins there.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from pages._lessons import LESSONS
from pages.attention.chapters import STORY as ATTENTION
from tests.helpers.browser import PHONE
from tests.helpers.chapters import WITH_STORY, story
from tests.helpers.deck import serving_files
from tests.helpers.harness import ROOT, Stage, holds, query
from tests.helpers.lessons_site import REFUSED, TOPICS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]  # s: the first test records the site
LAPTOP, DESKTOP = {"width": 1280, "height": 720 - 6}, {"width": 1440, "height": 900 - 6}
ON_A_PHONE = 32  # px that a stage begins higher in the app
WITHOUT_STRIP = "precision"  # the rounding of a number has no time
WITH_STAGE = [lesson for lesson in LESSONS if lesson.path != "choose"]  # whose first screen is its race

# Each of these returns what is wrong with the stage.
STAGE = """
  const host = [...document.querySelectorAll("*")].find((element) => element.shadowRoot?.querySelector(".stage"));
  const root = host?.shadowRoot.querySelector(".stage[data-ready=true]");
  if (!root) return ["no stage is ready"];
  const find = (selector) => root.querySelector(selector), box = (selector) => find(selector).getBoundingClientRect();
  const wrong = [], say = (yes, text) => yes || wrong.push(text);
  const inSight = (selector, ratio, higher = 0) => {
    const { left, right, top, bottom, width, height } = box(selector), end = innerHeight + higher;
    const w = Math.min(right, innerWidth) - Math.max(left, 0), h = Math.min(bottom, end) - Math.max(top, 0);
    say(w > 0 && h > 0 && w * h >= ratio * width * height, `${selector} is not in sight`);
  };
  const fits = () => {
    say(find(".chapter").scrollHeight <= find(".chapter").clientHeight + 1, "the panel is cut off");
    say(box(".chapter-text").bottom <= box(".chapter-way").top + 1, "the text lies under the buttons");
  };
"""
CHAPTER = f"""({{ title, readable, parts, strip, number }}) => {{ {STAGE}
  say(find(".chapter h2")?.textContent === title, `the title is ${{find(".chapter h2")?.textContent}}`);
  if (wrong.length) return wrong;
  parts.forEach((part) => inSight(part, 0.95));
  say(find(".strip")?.checkVisibility() ? find(".strip-value").textContent : !strip, "the strip has no value");
  fits();
  const {{ data, inView, shrink }} = root.player, named = data.chapter.readable;
  say(named.length === readable, `${{named.length}} tensors are readable`);
  for (const name of named) {{
    const {{ cell, numbers }} = inView.blocks[name];
    const size = parseFloat(numbers?.font.match(/([\\d.]+)px/)[1] || 0);
    say(cell / shrink >= 16, `${{name}}: cells of ${{cell / shrink}} px`);
    say(size / shrink >= number, `${{name}}: numbers of ${{size / shrink}} px`);
  }}
  return wrong;
}}"""
PARTS = [".chapter h2", ".chapter-text p:first-child", ".chapter-way", "canvas", ".play", ".caption"]
AFTER_A_GUESS = f"""(whole) => {{ {STAGE}
  say(find(".chapter .reveal")?.textContent, "the answer is not shown");
  say(box(".chapter-way").bottom <= box(".chapter").bottom + 1, "the way on is not in the panel");
  inSight(".chapter-way", 0.99);
  if (whole) fits();
  return wrong;
}}"""
EXPLORE = f"""([parts, higher]) => {{ {STAGE}
  parts.forEach((part) => inSight(part, 0.99, higher));
  say(find(".strip-value").textContent, "the strip has no value");
  say(box("canvas").height <= box(".canvas-box").height + 1, "the picture is cut off");
  say(/\\d [KMG]?B/.test(find(".strip-legend").textContent), "no bytes");
  for (const e of root.querySelectorAll(".strip-label")) say(e.scrollWidth <= e.clientWidth, `${{e.textContent}} is cut off`);
  return wrong;
}}"""
# All cards are drawn, one after another, and neither the page nor one of them is wider than the window. The bar of the app
# has not the tools of the site, and a test of its own.
NOTHING_IS_WIDER = """() => {
  document.querySelector(".st-key-nav_tools").style.display = "none";
  const later = document.querySelector(".site-later");
  later?.scrollIntoView({ block: "center" });
  if (later) return ["a part is not drawn"];
  const pages = [document.documentElement, document.querySelector("[data-testid=stMain]")];
  const cards = [...document.querySelectorAll("[class*='st-key-card_']")];
  return [...pages.filter((page) => page.scrollWidth > innerWidth), ...cards.filter((card) => {
    const { left, right } = card.getBoundingClientRect();
    return left < 0 || right > innerWidth + 1;
  })].map((part) => part.className || part.tagName);
}"""
PICTURE = ("canvas", ".play", ".caption")
STRIP = (".strip-value", ".strip-legend", ".strip-limits")
# In each chapter of flash attention s, m, the factor, l and o have one top, one size of cells, and numbers.
ROWS = f"""() => {{ {STAGE}
  const {{ inView, shrink }} = root.player;
  const rows = ["s", "m", "rescale", "l", "o"].map((name) => [name, inView.blocks[name]]);
  for (const [name, {{ y, cell, numbers }}] of rows) {{
    say(y === rows[0][1].y && cell === rows[0][1].cell, `${{name}} is not in the line of s`);
    say(cell / shrink >= 15 && numbers, `${{name}} cannot be read`);
  }}
  return wrong;
}}"""
# The chart and the boxes of a training step are in the picture, and none covers another.
BOXES = f"""() => {{ {STAGE}
  const {{ boxes, chart }} = root.player.inView.diagram, {{ width, height }} = root.player.layout;
  const hit = (a, b) => a.x + a.w > b.x + 0.5 && b.x + b.w > a.x + 0.5 && a.y + a.h > b.y + 0.5 && b.y + b.h > a.y + 0.5;
  for (const [n, b] of boxes.entries()) {{
    say(b.x >= 0 && b.y >= 0 && b.x + b.w <= width && b.y + b.h <= chart.y, `${{b.lines[0]}} leaves the picture`);
    for (const other of boxes.slice(n + 1)) say(!hit(b, other), `${{b.lines[0]}} covers ${{other.lines[0]}}`);
  }}
  say(chart.y + chart.h <= height, "the chart leaves the picture");
  return wrong;
}}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("lessons")
    subprocess.run([sys.executable, "-m", "tests.helpers.lessons_site", out], cwd=ROOT, check=True)
    with serving_files(out) as url:
        yield url


@pytest.fixture
def opened(page, site):
    """Returns a function that opens an address of the site in a window and returns its stage, ready."""

    def open_(address, size=DESKTOP):
        page.set_viewport_size(size)
        path, _, query = address.partition("?")
        page.goto(f"{site}/{path}/?{query}")
        return Stage(page).ready()

    return open_


def go_on(page):
    page.get_by_role("button", name=re.compile("^Next:")).dispatch_event("click")


def wanted(lesson, chapter, number=6.8):
    return {
        "title": chapter.title,
        "readable": len(chapter.readable),
        "parts": PARTS,
        "strip": lesson.path != WITHOUT_STRIP,
        "number": number,  # px of a number in a cell, at least
    }


# -- every lesson ----------------------------------------------------------------------------------
@pytest.mark.parametrize("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_each_chapter_is_in_sight_and_its_numbers_can_be_read(page, opened, lesson):
    stage = opened(f"{lesson.path}?view=story&chapter=1", LAPTOP)
    for n, chapter in enumerate(story(lesson).chapters):
        if n:
            go_on(page)
        holds(page, CHAPTER, wanted(lesson, chapter))
        if chapter.question:
            stage.root.press("g")
            holds(page, AFTER_A_GUESS)


@pytest.mark.parametrize("lesson", WITH_STAGE, ids=lambda lesson: lesson.path)
def test_explore_shows_picture_time_memory_and_limits_and_a_phone_the_picture(page, opened, lesson):
    opened(f"{lesson.path}?view=explore")
    for size in (LAPTOP, DESKTOP):
        page.set_viewport_size(size)
        holds(page, EXPLORE, [PICTURE + STRIP, 0])
    page.set_viewport_size(PHONE)
    holds(page, EXPLORE, [PICTURE, ON_A_PHONE])
    holds(page, NOTHING_IS_WIDER)


@pytest.mark.parametrize(
    ("path", "topic"), [(path, topic) for path, topics in TOPICS.items() for topic in topics], ids=str
)
def test_a_topic_fits_a_phone(page, opened, path, topic):
    stage = opened(f"{path}?view=explore&{query(topic)}", PHONE)
    holds(page, NOTHING_IS_WIDER)
    stage.do("forward")
    stage.at_step(1)


# -- chapters that are hard to fit -----------------------------------------------------------------
def test_numbers_can_be_read_on_a_slide(page, opened):
    lesson = next(lesson for lesson in LESSONS if lesson.path == "im2col")
    check = wanted(lesson, story(lesson).chapters[0], number=8) | {"parts": [], "strip": False}
    for more in ("present=1", "embed=true&present=1"):
        opened(f"im2col?view=story&chapter=1&{more}", {"width": 1280, "height": 720})
        holds(page, CHAPTER, check)


@pytest.mark.parametrize(
    ("address", "whole"),
    [
        ("threads?chapter=5", True),
        ("tiling?chapter=7", True),
        ("winograd?chapter=4", True),
        ("fft?chapter=9", True),
        ("attention?chapter=6&present=1", False),
    ],
)
def test_the_way_on_is_in_sight_after_a_guess(page, opened, address, whole):
    stage = opened(f"{address}&view=story")
    stage.root.press("g")
    holds(page, AFTER_A_GUESS, whole)


@pytest.mark.parametrize("more", ["", "&present=1"])
def test_a_querys_row_is_on_one_line_with_its_numbers(page, opened, more):
    opened(f"attention?view=story&chapter=1{more}", LAPTOP)
    seen = 0
    for n, chapter in enumerate(ATTENTION.chapters):
        if n:
            go_on(page)
            expect(page.locator(".chapter h2")).to_have_text(chapter.title)
        rung = chapter.params["rung"]
        if "order" in chapter.params or not rung.startswith("flash"):  # a map, a timeline, scores in memory
            continue
        for size in (LAPTOP, DESKTOP):
            # The last kernel has 16 scores in a row, for which these are too narrow.
            if rung != "flash-mma" or (size == DESKTOP and not more):
                page.set_viewport_size(size)
                holds(page, ROWS)
                seen += 1
    assert seen >= 4


def test_no_box_of_a_training_step_leaves_the_picture_and_none_covers_another(page, opened):
    at = next(n for n, each in enumerate(story(lesson_of("train")).chapters) if each.params["network"] == "residual")
    opened(f"train?view=story&chapter={at + 1}")
    for size in (DESKTOP, LAPTOP):
        page.set_viewport_size(size)
        holds(page, BOXES)


def lesson_of(path):
    return next(lesson for lesson in LESSONS if lesson.path == path)


FOUR_LINES = 100  # px of a caption: few are longer
# The height of the picture, the side of its smallest cell and the size of its titles, all in pixels.
SIZES = """(root) => {
  const { layout, shrink, part } = root.player;
  const cells = Object.values(layout.blocks).map(({ cell }) => cell / shrink);
  return [part["canvas-box"].clientHeight, Math.min(...cells), (14 * layout.scale) / shrink];
}"""


@pytest.mark.parametrize(("address", "most"), [("direct?chapter=1", 500), ("tiling?chapter=8", 650)])
def test_a_picture_of_many_cells_is_higher_on_a_phone(page, opened, address, most):
    """With Play and its caption it fills the window, so that its cells can be seen and its titles be read."""
    stage = opened(f"{address}&view=story", {"width": 390, "height": 844})
    height, cell, title = stage.root.evaluate(SIZES)
    assert height <= most and cell >= 4 and title >= 11
    top, last = (page.locator(f".stage {part}").bounding_box() for part in ("canvas", ".caption"))
    assert last["y"] + min(last["height"], FOUR_LINES) - top["y"] <= 844


@pytest.mark.parametrize(
    ("address", "size", "shown"),
    [
        ("im2col?view=explore", DESKTOP, True),
        ("im2col?embed=true&view=watch", {"width": 900, "height": 600}, False),
        ("hopper?view=explore", DESKTOP, False),
    ],
)
def test_the_transport_is_one_line(page, opened, address, size, shown):
    stage = opened(address, size)
    loop, play = stage.root.locator("[data-do=loop]"), page.locator(".stage .play")
    expect(loop).to_be_visible(visible=shown)
    expect(stage.root.locator("[data-do=more]")).to_be_visible(visible=not shown)
    assert page.locator(".stage .transport").bounding_box()["height"] <= play.bounding_box()["height"] + 24
    assert page.locator(".stage .transport").evaluate("box => box.scrollWidth <= box.clientWidth")


def test_tables_of_many_rungs_are_not_clipped(page, opened):
    opened("tiling?view=explore")
    holds(page, NOTHING_IS_WIDER)  # all cards are drawn
    page.locator(".st-key-card_why summary").first.click()
    tables = page.locator(".st-key-card_why .kt-scroll:visible")
    expect(tables).not_to_have_count(0)
    assert tables.evaluate_all("tables => tables.filter((table) => table.scrollWidth > table.clientWidth).length") == 0
    page.set_viewport_size(PHONE)
    holds(page, NOTHING_IS_WIDER)
    assert tables.evaluate_all(
        "tables => tables.every((table) => table.getBoundingClientRect().right <= innerWidth + 1)"
    )


# -- controls --------------------------------------------------------------------------------------
def test_facts_share_the_last_line_of_controls_and_a_tablet_shows_the_whole_name_of_the_kernel(page, opened):
    opened("winograd?view=explore", LAPTOP)
    expect(page.locator(".st-key-controls [data-testid=stPopoverButton]").last).to_be_visible()
    facts = page.locator(".kt-derived").first.bounding_box()
    kernel = page.locator(".st-key-controls [data-testid=stPopoverButton]").last.bounding_box()
    assert kernel["y"] <= facts["y"] + facts["height"] / 2 <= kernel["y"] + kernel["height"]
    page.set_viewport_size({"width": 768, "height": 1024})
    name = page.locator(".st-key-kernel_chooser").first
    expect(name).to_be_visible()
    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")


def test_a_refusal_is_one_line_that_says_why_and_what_can_run(page, site):
    page.set_viewport_size(LAPTOP)
    page.goto(f"{site}/tiling/?view=explore&{query(REFUSED)}")
    line = page.locator(".st-key-chips_legal")
    expect(line).to_contain_text("Shared-memory tile cannot run with these settings")
    parts = line.locator(".kt-quiet").first, line.get_by_text("Kernels that can:"), line.get_by_role("link").first
    for part in parts:
        expect(part).to_be_in_viewport()
    left, middle, right = (part.bounding_box() for part in parts)
    assert left["x"] < middle["x"] < right["x"]
    assert line.bounding_box()["height"] <= 60


# -- terms, figures, guesses, keys -----------------------------------------------------------------
@pytest.mark.parametrize("by", ["hover", "focus", "tap"])
def test_a_term_is_explained_and_escape_closes_it(page, phone, site, by):
    page = phone if by == "tap" else page
    page.goto(f"{site}/threads/?view=story&chapter=1")
    Stage(page).ready()
    term = page.get_by_role("button", name="warp", exact=True)
    tip = page.locator(".tip").filter(has_text="32 threads")
    expect(tip).to_be_hidden()
    getattr(term, by)()
    expect(tip).to_be_visible()
    expect(term).to_have_attribute("aria-describedby", tip.get_attribute("id"))
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    if by == "hover":
        term.hover(position={"x": 2, "y": 2})
        page.mouse.move(600, 500)
        term.hover()
        expect(tip).to_be_visible()
        expect(tip.get_by_role("link", name="Glossary")).to_have_attribute("href", re.compile("glossary.*term=warp"))
    if by == "tap":
        back, onward = (page.locator(".chapter-way").get_by_role("button", name=name) for name in ("Back", "Next"))
        onward.tap()
        expect(back).to_be_visible()
        assert back.bounding_box()["x"] < onward.bounding_box()["x"]


def test_terms_and_figures_of_a_chapter(page, opened):
    opened("threads?view=story&chapter=2")
    term = page.locator(".term", has_text="divergence")
    assert term.evaluate("(node) => node.lastChild.nodeType === Node.TEXT_NODE && node.lastChild.data") == "."
    assert term.evaluate("(node) => getComputedStyle(node).whiteSpace") == "nowrap"
    for selector, words in (
        (".line-note >> nth=0", "lanes of a warp|divide a warp"),
        (".detail", "registers of a thread"),
        (".badge-recorded >> nth=0", "overwritten"),
    ):
        expect(page.locator(f".stage {selector}")).to_have_attribute("title", re.compile(words))
    expect(page.locator(".stage").get_by_title("as a share of what a copy reaches")).to_be_visible()

    opened("tiling?view=story&chapter=7")  # a bracket is on the line of its term as well
    term = page.locator(".term", has_text="cp.async").first
    assert term.evaluate("(node) => node.firstChild.data") == "("
    expect(page.locator(".chapter-text")).to_contain_text("a later tile (cp.async")

    opened("tiling?view=story&chapter=5")  # so is a term in a question explained
    page.locator(".chapter .question").get_by_role("button", name="kernel", exact=True).focus()
    expect(page.locator(".tip").filter(has_text="a function that runs on the GPU")).to_be_visible()


def test_a_guess_by_the_keyboard_shows_the_figures_and_a_lecturer_shows_the_answer(page, opened):
    opened("tiling?view=story&chapter=3")
    value = page.locator(".strip-value")
    expect(value).to_be_hidden()
    expect(page.locator(".strip-ask")).to_contain_text("after your guess")
    expect(page.locator(".chapter .reveal")).to_be_empty()
    expect(page.locator(".answer.right")).to_have_count(0)
    page.get_by_role("button", name="Faster").focus()
    page.keyboard.press("Enter")
    expect(value).to_be_visible()
    expect(page.locator(".chapter .reveal")).to_contain_text("Shared tile takes")
    expect(page.locator(".answer.right")).to_contain_text("Faster")
    expect(page.locator(".answer.chosen")).to_be_focused()

    stage = opened("tiling?view=story&chapter=3&present=1")
    stage.root.press("g")
    expect(page.locator(".answer.right")).to_contain_text("Faster")
    expect(page.locator(".answer.chosen")).to_have_count(0)
    expect(value).to_be_visible()
    stage.root.press("PageDown")
    expect(page.locator(".chapter h2")).to_have_text("Where do the bytes go?")
    expect(value).to_be_hidden()
    stage.root.press("PageUp")
    expect(page.locator(".chapter h2")).to_have_text("Share a tile")


def test_a_lecturer_steps_by_arrows_into_the_next_chapter_and_back(page, opened):
    stage, title = opened("tiling?view=story&chapter=1&present=1"), page.locator(".chapter h2")
    stage.root.press("End")
    stage.root.press("ArrowRight")
    expect(title).to_have_text("Which thread gets which element?")
    stage.at_step(1)
    stage.root.press("Home")
    stage.root.press("ArrowLeft")
    expect(title).to_have_text("One thread, one element of C")


def test_a_wrong_guess_is_answered_and_the_next_chapter_shows_the_real_size(page, opened):
    opened("im2col?view=story&chapter=7")
    page.get_by_role("button", name="Faster").press("Enter")
    expect(page.locator(".chapter .reveal")).to_contain_text(re.compile(r"\d× the time of “direct”"))
    expect(page.locator(".answer.right")).to_contain_text("Slower")
    go_on(page)
    expect(page.locator(".chapter h2")).to_have_text("At a real size")
    expect(page.locator("[data-strip=size-real]")).to_have_attribute("aria-pressed", "true")
