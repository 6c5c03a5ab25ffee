"""The example deck: its slides show the app's stages without Streamlit (bare.py), and one slide the app itself. Stage and
deck control each other, other windows cannot."""

import json
import re

import pytest
from playwright.sync_api import expect

from pages._lessons import LESSONS
from tests.helpers.chapters import story
from tests.helpers.deck import Deck, npm, serving_files
from tests.helpers.harness import ROOT, TOY_STEPS
from visuals.palette import DARK, LIGHT

pytestmark = [pytest.mark.browser, npm]
LAST = TOY_STEPS - 1
INDEX = ROOT / "docs" / "deck" / "index.html"
CHAPTERS = ("threads", "tiling", "chapter", "winograd", "softmax", "attention", "fusion")  # slides


@pytest.fixture(scope="module")
def files():
    with serving_files() as address:
        yield address


@pytest.fixture
def deck(page, stages, files):
    """Yields the deck at its title slide."""
    yield Deck(page, f"{files}/docs/deck/index.html?app={stages}")
    page.goto("about:blank")


@pytest.fixture
def stage(deck):
    """Returns the stage of the second slide, at the step in its URL."""
    stage = deck.to("stage")
    stage.at_step(14)
    return stage


# -- the stage changes the slides ------------------------------------------------------------------
def test_keys_step_the_stage_and_at_its_ends_change_the_slide(deck, stage):
    stage.root.press("ArrowRight")
    stage.at_step(15)
    for step in (14, 13):
        deck.press("ArrowLeft")
        stage.at_step(step)
    deck.at("stage")
    for key, end, step, slide in (("ArrowRight", "End", LAST, "stride"), ("ArrowLeft", "Home", 0, "tiling")):
        stage.root.press(end)
        stage.at_step(step)
        deck.press(key)
        deck.at(slide)
        stage.at_step(step)
        deck.press("ArrowLeft" if slide == "stride" else "ArrowRight")  # the keyboard controls the deck again
        deck.at("stage")
    stage.root.press("Shift+ArrowRight")
    stage.at_step(10)
    for key, slide in (("PageDown", "stride"), ("PageUp", "tiling")):  # at any step
        stage.root.press(key)
        deck.at(slide)
        stage.at_step(10)
        deck.to("stage")


PLAIN = """<!doctype html><title>plain</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="{files}/node_modules/reveal.js/dist/reveal.css">
<div class="reveal"><div class="slides">
  <section id="stage"><iframe width="900" height="600" data-src="{app}/im2col?embed=true&view=watch&step=3"></iframe></section>
  <section id="end">End</section>
</div></div>
<script src="{files}/node_modules/reveal.js/dist/reveal.js"></script><script>Reveal.initialize()</script>
"""


def test_deck_without_the_plugin_changes_slides_of_the_app(page, server, files, tmp_path):
    """It needs only Reveal and an iframe, here of the app itself."""
    tmp_path.joinpath("plain.html").write_text(PLAIN.format(files=files, app=server), encoding="utf-8")
    with serving_files(tmp_path) as address:
        deck = Deck(page, f"{address}/plain.html")
        deck.stage("stage").ready().root.press("PageDown")
        deck.at("end")
        page.goto("about:blank")


# -- the deck moves the stage ----------------------------------------------------------------------
def test_fragments_step_the_stage_in_both_directions(deck):
    stage = deck.to("moments")
    stage.at_step(18)
    for step in (0, 6, LAST):
        deck.press("ArrowRight")
        stage.at_step(step)
        stage.playing(False)
    for step in (6, 0, 18):
        deck.press("ArrowLeft")
        stage.at_step(step)
    stage.root.press("PageDown")  # in the stage
    stage.at_step(0)
    deck.at("moments")


def test_a_stage_keeps_its_step_when_its_slide_returns(deck, stage):
    """Reveal unloads frames three slides away."""
    stage.root.press("ArrowRight")
    stage.at_step(15)
    deck.to("stride")
    deck.to("stage").at_step(15)
    deck.to("end")
    expect(deck.page.locator("#stage iframe")).not_to_have_attribute("src", re.compile("."))
    deck.to("stage").at_step(15)
    stage.root.press("Space")
    stage.playing(True)
    deck.to("stride")
    stage.playing(False)  # leaving the slide pauses it


def test_a_stage_follows_messages_of_the_deck_and_ignores_invalid_ones(deck, stage):
    for message, step in (
        ({"stage": "goto", "step": 7}, 7),
        (json.dumps({"stage": "goto", "step": 9}), 9),
        ({"stage": "step", "by": 1}, 10),
        ({"stage": "step", "by": -1}, 9),
        ({"stage": "goto", "step": 10**6}, LAST),
        ({"stage": "goto", "step": 3}, 3),
    ):
        deck.say("stage", message)
        stage.at_step(step)
    deck.say("stage", {"stage": "play"})
    stage.playing(True)
    deck.say("stage", {"stage": "pause"})
    stage.playing(False)
    deck.say("stage", {"stage": "goto", "step": 14})
    stage.at_step(14)
    for message in NONSENSE:
        stage.root.evaluate(AWAIT_MESSAGE)
        deck.say("stage", message)
        assert stage.root.evaluate("() => window.arrived")
        assert stage.step == 14, message


# -- chapters on slides ----------------------------------------------------------------------------
def test_a_chapter_holds_its_answer_back_until_g_is_pressed(deck):
    for slide in (CHAPTERS[0], "chapter"):
        deck.to(slide)
        frame = deck.page.frame_locator(f"#{slide} iframe")
        expect(frame.locator(".chapter .answer").first).to_be_visible()
        expect(frame.locator(".strip-value")).to_be_hidden()
        expect(frame.locator(".chapter .reveal")).to_be_empty()
        deck.press("g")  # the deck has the keyboard
        expect(frame.locator(".strip-value")).to_be_visible()
        expect(frame.locator(".answer.right")).to_have_count(1)
        expect(frame.locator(".chapter .reveal")).not_to_be_empty()
        deck.at(slide)


def test_the_chapters_are_of_at_least_six_lessons_and_ask():
    slides = re.findall(r'data-stage="/(\w+)\?[^"]*view=story&chapter=(\d+)', INDEX.read_text(encoding="utf-8"))
    assert len(slides) == len(CHAPTERS) and len({path for path, _ in slides}) >= 6
    by_path = {lesson.path: story(lesson).chapters for lesson in LESSONS if lesson.chapters}
    assert all(by_path[path][int(n) - 1].question for path, n in slides)


# -- other windows cannot --------------------------------------------------------------------------
POST_STEP = "([target, step]) => target.postMessage({ stage: 'goto', step }, '*')"
AWAIT_MESSAGE = (
    "() => { window.arrived = new Promise(done => addEventListener('message', () => done(true), { once: true })); }"
)


def test_only_the_parent_window_moves_the_stage(deck, stage):
    page = deck.page
    frame = page.evaluate(
        "[...Array(frames.length).keys()].find(i => frames[i] === document.querySelector('#stage iframe').contentWindow)"
    )
    sibling = page.frame_locator("#stride iframe").locator("body")
    with page.expect_popup() as popup:
        page.evaluate("open('about:blank') && null")
    other_windows = (
        lambda: sibling.evaluate(f"(_, i) => ({POST_STEP})([parent.frames[i], 2])", frame),
        lambda: popup.value.evaluate(f"i => ({POST_STEP})([opener.frames[i], 2])", frame),
        lambda: stage.root.evaluate(f"() => ({POST_STEP})([window, 2])"),
    )
    for post in other_windows:
        stage.root.evaluate(AWAIT_MESSAGE)
        post()
        assert stage.root.evaluate("() => window.arrived")
        assert stage.step == 14
    popup.value.close()
    deck.say("stage", {"stage": "goto", "step": 8})  # the deck still can
    stage.at_step(8)


NONSENSE = (
    "",
    "{",
    "slide:start",
    "null",
    7,
    None,
    [],
    {},
    {"stage": "goto"},
    {"stage": "goto", "step": "3"},
    {"stage": "goto", "step": 1.5},
    {"stage": "step", "by": "x"},
    {"stage": "close"},
    {"stage": {}},
    "{" + "x" * 10**5 + "}",
)


def test_messages_of_a_stage(deck):
    texts = 'said.filter(data => /"stage"/.test(data))'  # Streamlit sends other messages
    # From the start of the page: a stage may be ready before a listener that is added later.
    deck.page.add_init_script(
        "if (!window.said) { window.said = []; addEventListener('message', e => said.push(e.data)); }"
    )
    deck.page.reload()
    deck.page.wait_for_function("window.Reveal?.isReady()")
    stage = deck.to("stage")
    expect(deck.page.locator("iframe[data-heard]")).to_have_count(3)
    messages = [json.loads(text) for text in deck.page.evaluate(texts)]
    assert {"stage": "ready", "step": 14, "steps": TOY_STEPS} in messages
    assert {"stage": "ready", "step": 6, "steps": 21} in messages
    deck.page.evaluate("() => { said.length = 0; }")
    stage.root.press("End")
    deck.page.wait_for_function(f"({texts}).length")
    stage.root.press("PageUp")
    deck.at("tiling")
    messages = [json.loads(text) for text in deck.page.evaluate(texts)]
    # The stage of the next slide may be ready by now.
    assert [one for one in messages if one["stage"] != "ready"] == [
        {"stage": "at", "step": LAST, "steps": TOY_STEPS},
        {"method": "prev", "stage": "prev", "step": LAST, "steps": TOY_STEPS},
    ]


# -- the deck itself -------------------------------------------------------------------------------
def test_deck_opens_from_a_folder_at_a_fragment(page, stages):
    deck = Deck(page, f"{INDEX.as_uri()}?app={stages}#/moments/1")
    deck.at("moments")
    stage = deck.stage("moments").ready()
    stage.at_step(6)
    deck.press("ArrowLeft")
    stage.at_step(0)
    stage.root.press("PageDown")
    stage.at_step(6)
    page.goto("about:blank")


def test_deck_has_the_colours_of_the_palette():
    style = INDEX.read_text(encoding="utf-8")
    themes = [dict(re.findall(r"--([a-z]+): (#\w{6});", block)) for block in re.findall(r":root {(.*?)}", style, re.S)]
    assert len(themes) == 2 and all(themes)
    for colours, palette in zip(themes, (LIGHT, DARK), strict=True):
        assert colours == {name: palette[name] for name in colours}
