"""Chapters as a reader opens them: by a cold link, with the keyboard, back and forward, in a lecture hall."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.chapters import WITH_STORY, story
from tests.helpers.harness import Stage, idle

pytestmark = pytest.mark.browser
# Nothing of the chapter is cut off, and none of it lies under its buttons.
FITS = """() => {
  const host = [...document.querySelectorAll("*")].find((element) => element.shadowRoot?.querySelector(".stage"));
  const [panel, text, way] = ["", "-text", "-way"].map((name) => host.shadowRoot.querySelector(`.chapter${name}`));
  const bottom = text.getBoundingClientRect().bottom, top = way.getBoundingClientRect().top;
  return panel.scrollHeight <= panel.clientHeight + 1 && bottom <= top + 1;
}"""


# Of the tensors that the open chapter names: cell and size of its numbers in pixels, 0 if it shows none.
NUMBERS = """(root) => {
  const { data, inView, shrink } = root.player;
  return data.chapter.readable.map((name) => inView.blocks[name]).map(({ cell, numbers }) =>
    [cell / shrink, parseFloat(numbers?.font.match(/([\\d.]+)px/)[1] || 0) / shrink]);
}"""


@pytest.mark.slow
@pytest.mark.parametrize("lesson", WITH_STORY, ids=lambda lesson: lesson.path)
def test_each_chapter_is_in_sight_and_its_numbers_can_be_read(page, server, lesson):
    """A cold link shows a chapter in its page. Then Next leads through all of them in a frame, which has no cards to draw.
    The frame is as large as the stage of the page."""
    chapters = story(lesson).chapters
    page.set_viewport_size({"width": 1280, "height": 720})
    n = len(chapters) // 2
    page.goto(f"{server}/{lesson.path}?view=story&chapter={n + 1}")
    stage = Stage(page).ready()
    _check_the_open_chapter(stage, chapters[n])
    size = stage.root.bounding_box()
    page.set_viewport_size({"width": round(size["width"]), "height": round(size["height"])})
    page.goto(f"{server}/{lesson.path}?embed=true&view=story&chapter=1")
    for n, chapter in enumerate(chapters):
        if n:
            # The panel is filled again when counts arrive. A mouse may then press one button and release another.
            page.get_by_role("button", name=re.compile("^Next:")).dispatch_event("click")
            expect(page).to_have_url(re.compile(rf"chapter={n + 1}\b"))
        _check_the_open_chapter(stage.ready(), chapter)


def _check_the_open_chapter(stage, chapter):
    page = stage.page
    expect(page.locator(".chapter h2")).to_have_text(chapter.title)
    for part in (".chapter h2", ".chapter-text p:first-child", ".chapter-way", "canvas", ".play", ".caption"):
        expect(page.locator(f".stage {part}").first, chapter.title).to_be_in_viewport(ratio=0.95)
    if "/precision" not in page.url or page.locator(".strip").is_visible():  # the rounding of a number has no time
        expect(page.locator(".strip-value")).not_to_be_empty()
    page.wait_for_function(FITS)
    found = stage.root.evaluate(NUMBERS)
    assert len(found) == len(chapter.readable), chapter.title
    for cell, number in found:
        assert cell >= 16 and number >= 6.8, chapter.title


@pytest.mark.parametrize("address", ["im2col?chapter=1&present=1", "im2col?chapter=1&embed=true&present=1"])
def test_numbers_can_be_read_on_a_slide(page, server, address):
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/{address}&view=story")
    for cell, number in Stage(page).ready().root.evaluate(NUMBERS):
        assert cell >= 16 and number >= 8


@pytest.mark.slow
@pytest.mark.parametrize("address", ["threads?chapter=5", "tiling?chapter=7", "winograd?chapter=4", "fft?chapter=9"])
def test_the_way_on_is_in_sight_after_a_guess(page, server, address):
    page.goto(f"{server}/{address}&view=story")
    stage = Stage(page).ready()
    expect(page.locator(".chapter .answer").first).to_be_visible()  # some wait for counts
    idle(page)
    stage.root.press("g")
    expect(page.locator(".chapter .reveal")).not_to_be_empty()
    page.wait_for_function(FITS)
    expect(page.locator(".chapter-way")).to_be_in_viewport(ratio=1)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["tiling?chapter=3&M=16&rung=none", "attention?chapter=6&present=1"])
def test_the_way_on_is_in_sight_beside_notes_and_on_a_projector(page, server, address):
    page.goto(f"{server}/{address}&view=story")
    stage = Stage(page).ready()
    idle(page)
    stage.root.press("g")
    expect(page.locator(".chapter .reveal")).not_to_be_empty()
    panel, way = (page.locator(name).bounding_box() for name in (".chapter", ".chapter-way"))
    assert way["y"] + way["height"] <= panel["y"] + panel["height"] + 1


def test_a_full_stop_is_on_the_line_of_its_term(page, server):
    page.goto(f"{server}/threads?view=story&chapter=2")
    Stage(page).ready()
    term = page.locator(".term", has_text="divergence")
    assert term.evaluate("(node) => node.lastChild.nodeType === Node.TEXT_NODE && node.lastChild.data") == "."
    assert term.evaluate("(node) => getComputedStyle(node).whiteSpace") == "nowrap"


def test_figures_beside_the_kernel_and_in_the_strip_are_explained_on_hover(page, server):
    page.goto(f"{server}/threads?view=story&chapter=2")
    Stage(page).ready()
    for selector, words in (
        (".line-note >> nth=0", "lanes of a warp|divide a warp"),
        (".detail", "registers of a thread"),
        (".badge-recorded >> nth=0", "overwritten"),
    ):
        expect(page.locator(f".stage {selector}")).to_have_attribute("title", re.compile(words))
    expect(page.locator(".stage").get_by_title("as a share of what a copy reaches")).to_be_visible()


def test_a_bracket_is_on_the_line_of_its_term(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=7")
    Stage(page).ready()
    term = page.locator(".term", has_text="cp.async").first
    assert term.evaluate("(node) => node.firstChild.data") == "("
    expect(page.locator(".chapter-text")).to_contain_text("a later tile (cp.async")


def test_back_is_left_of_next_on_a_phone(phone, server):
    phone.goto(f"{server}/threads?view=story&chapter=2")
    Stage(phone).ready()
    back, onward = (phone.locator(".chapter-way").get_by_role("button", name=name) for name in ("Back", "Next"))
    assert back.bounding_box()["x"] < onward.bounding_box()["x"]


@pytest.mark.slow
def test_a_term_in_a_question_is_explained(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=5")
    Stage(page).ready()
    page.locator(".chapter .question").get_by_role("button", name="kernel", exact=True).focus()
    expect(page.locator(".tip").filter(has_text="a function that runs on the GPU")).to_be_visible()


def test_a_guess_by_the_keyboard_shows_the_figures(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=3")
    Stage(page).ready()
    value = page.locator(".strip-value")
    expect(value).to_be_hidden()
    expect(page.locator(".strip-ask")).to_contain_text("after your guess")
    expect(page.locator(".answer.right")).to_have_count(0)
    page.get_by_role("button", name="Faster").focus()
    page.keyboard.press("Enter")
    expect(value).to_be_visible()
    expect(page.locator(".chapter .reveal")).to_contain_text("Shared tile takes")
    expect(page.locator(".answer.right")).to_contain_text("Faster")
    expect(page.locator(".answer.chosen")).to_be_focused()


def test_a_lecturer_shows_the_answer_and_turns_the_chapter_by_keys(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=3&present=1")
    stage = Stage(page)
    stage.ready()
    stage.root.press("g")
    expect(page.locator(".answer.right")).to_contain_text("Faster")
    expect(page.locator(".answer.chosen")).to_have_count(0)
    expect(page.locator(".strip-value")).to_be_visible()
    stage.root.press("PageDown")
    expect(page.locator(".chapter h2")).to_have_text("Where do the bytes go?")
    expect(page.locator(".strip-value")).to_be_hidden()
    stage.root.press("PageUp")
    expect(page.locator(".chapter h2")).to_have_text("Share a tile")


def test_back_and_forward_over_chapters(page, server):
    page.goto(f"{server}/softmax?view=story&chapter=1")
    Stage(page).ready()
    page.get_by_role("button", name=re.compile("^Next:")).click()
    expect(page.locator(".chapter h2")).to_have_text("Too large for FP32")
    expect(page).to_have_url(re.compile("chapter=2"))
    page.go_back()
    expect(page.locator(".chapter h2")).to_have_text("Numbers become weights")
    page.go_forward()
    expect(page.locator(".chapter h2")).to_have_text("Too large for FP32")


def test_a_chapter_links_to_the_next_lesson(page, server):
    page.goto(f"{server}/softmax?view=story&chapter=9")
    Stage(page).ready()
    page.locator("[data-strip=reveal]").click()
    page.locator(".chapter").get_by_role("link", name="attention", exact=True).click()
    expect(page.locator(".chapter h2")).to_have_text("Each token is compared with all others")


def test_a_lecturer_steps_by_arrows_into_the_next_chapter_and_back(page, server):
    page.goto(f"{server}/tiling?view=story&chapter=1&present=1")
    stage = Stage(page).ready()
    title = page.locator(".chapter h2")
    stage.root.press("End")
    stage.root.press("ArrowRight")
    expect(title).to_have_text("Which thread gets which element?")
    stage.at_step(1)
    stage.root.press("Home")
    stage.root.press("ArrowLeft")
    expect(title).to_have_text("One thread, one element of C")


@pytest.mark.slow
def test_after_the_last_chapter_a_link_leads_to_the_next_lesson(page, server):
    page.goto(f"{server}/threads?view=story&chapter=9")
    Stage(page).ready()
    page.get_by_role("link", name="Next lesson: tiling").click()
    expect(page.locator(".chapter h2")).to_have_text("One thread, one element of C")


def test_a_step_in_a_bare_url_keeps_the_story(page, server):
    page.goto(f"{server}/im2col")
    stage = Stage(page).ready()
    expect(page.locator(".chapter h2")).to_have_text("A window becomes a column")
    entries = page.evaluate("history.length")
    stage.do("forward")
    expect(page).to_have_url(re.compile("chapter=1"))
    assert page.evaluate("history.length") == entries
    step = stage.step
    page.reload()
    expect(page.locator(".chapter h2")).to_have_text("A window becomes a column")
    Stage(page).ready().at_step(step)


def test_a_story_in_a_frame_is_its_stage_alone(page, server):
    page.goto(f"{server}/im2col?embed=true&view=story&chapter=2")
    Stage(page).ready()
    expect(page.locator(".chapter h2")).to_have_text("A filter becomes a row")
    expect(page.locator(".play")).to_be_visible()
    expect(page.locator(".kt-title")).to_have_count(0)
    assert page.locator(".stage").bounding_box()["height"] >= page.viewport_size["height"] - 8


@pytest.mark.slow
@pytest.mark.parametrize("by", ["hover", "focus", "tap"])
def test_a_term_is_explained_and_escape_closes_it(page, phone, server, by):
    page = phone if by == "tap" else page
    page.goto(f"{server}/threads?view=story&chapter=1")
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
        tip.get_by_role("link", name="Glossary").click()
        expect(page.locator(".kt-term dt")).to_have_text("warp")
