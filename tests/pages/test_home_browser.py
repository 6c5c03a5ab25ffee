"""The first screen: a stage that plays by itself, and teasers that open the state they preview."""

import re

import pytest
from playwright.sync_api import expect

from pages._lessons import LESSONS
from pages._teasers import BY_PAGE, FIRST
from tests.helpers.harness import Stage, frames, holds
from tests.visuals.stage.test_stage import STEPS_WHILE

pytestmark = pytest.mark.browser
WIDTHS = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
SOFTMAX = next(n for n, lesson in enumerate(LESSONS) if lesson.path == "softmax")
WITH_STAGE = {n: lesson for n, lesson in enumerate(LESSONS) if lesson.page in BY_PAGE}
ABOUT_SOFTMAX = "9 chapters · 13 min · beginner · after threads"
# Whether a preview, reached by Tab from its teaser's link, would have the focus.
IN_A_STILL = "document.activeElement?.shadowRoot?.activeElement?.closest('.still') != null"
FITS = "document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth"
# The teasers, by number, whose picture is wider than the teaser or higher than its place.
SPILLED = """numbers => numbers.filter((n) => {
  const box = (key) => document.querySelector(`.st-key-${key}_${n}`);
  const stage = [...box("lesson").querySelectorAll("*")].find((e) => e.shadowRoot?.querySelector(".stage"));
  const { width, height } = stage.shadowRoot.querySelector("canvas").getBoundingClientRect();
  return width > box("lesson").getBoundingClientRect().width + 1 || height > box("preview").getBoundingClientRect().height + 1;
})"""


class FirstStage(Stage):
    """The stage that plays, not the stills of the teasers."""

    def __init__(self, page):
        super().__init__(page)
        self.root = page.locator(".st-key-hero .stage")


def test_the_first_screen(page, server):
    page.goto(server)
    stage = FirstStage(page).ready()
    it_plays_and_can_be_stopped(page, stage, server)
    it_loops(stage)
    the_first_tab_leads_to_the_stage(page, stage)
    previews_are_images_with_a_caption_and_no_focus(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for each in (stage.root, page.locator(f".st-key-lesson_{len(LESSONS) - 1} .stage")):
            expect(each).to_have_attribute("data-theme", scheme)
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    for width, height in WIDTHS.values():
        page.set_viewport_size({"width": width, "height": height})
        heading_and_stage_are_in_sight_and_nothing_is_wider(page, stage, width, height)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function(FITS)
    a_whole_teaser_opens_its_lesson(page, server)


def it_plays_and_can_be_stopped(page, stage, server):
    stage.playing(True)
    expect(stage.root).to_have_attribute("data-step", re.compile("^[1-9]"))
    assert stage.root.get_attribute("data-scene") == FIRST.build_scene().key
    stage.do("play")
    stage.playing(False)
    step_stopped = stage.step
    frames(page, 30)
    assert stage.step == step_stopped
    assert page.url == server + "/"  # the URL of this page has no step


def it_loops(stage):
    last = FIRST.build_scene().steps - 1
    stage.root.locator(".scrub").fill(str(last - 1))
    stage.at_step(last - 1)
    assert stage.root.evaluate(STEPS_WHILE, "(steps) => steps.length > 2") == [last, 0, 1]
    stage.playing(True)
    stage.do("play")
    stage.playing(False)


def the_first_tab_leads_to_the_stage(page, stage):
    step = stage.step
    page.get_by_role("link", name="Skip to the stage").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")  # the stage has the keys
    stage.at_step(step + 1)


# What a reader with a screen reader or a keyboard finds in a preview that is ready.
FOUND = """previews => previews.map((root) => [
  root.role, root.ariaLabel, root.tabIndex,
  [...root.querySelectorAll("button, input")].filter((part) => part.checkVisibility()).length,
])"""


def previews_are_images_with_a_caption_and_no_focus(page):
    previews = page.locator("[class*=st-key-lesson_] .stage[data-ready=true]")
    expect(previews).to_have_count(len(WITH_STAGE))
    captions = [
        teaser.build_scene().caption(teaser.step) for teaser in (BY_PAGE[one.page] for one in WITH_STAGE.values())
    ]
    assert previews.evaluate_all(FOUND) == [["img", caption, -1, 0] for caption in captions]
    for n in (0, SOFTMAX):
        page.get_by_role("link", name=f"{n + 1} {LESSONS[n].title}", exact=True).focus()
        page.keyboard.press("Tab")
        assert not page.evaluate(IN_A_STILL), n


def heading_and_stage_are_in_sight_and_nothing_is_wider(page, stage, width, height):
    expect(page.get_by_role("heading", name="Watch a CUDA kernel, then measure it.")).to_be_in_viewport(ratio=1)
    page.wait_for_function(FITS)
    # After a change of the window's size a picture is drawn in a later frame.
    expect(stage.root.locator("canvas")).to_be_in_viewport(ratio=0.99)
    canvas = stage.root.locator("canvas").bounding_box()
    assert canvas["y"] + canvas["height"] <= height + 1
    holds(page, SPILLED, list(WITH_STAGE))


def a_whole_teaser_opens_its_lesson(page, server):
    """The teaser of softmax leads into its story; home then counts the chapters that were open."""
    page.set_viewport_size({"width": 1440, "height": 900})
    page.evaluate("localStorage.clear()")  # other tests have opened chapters
    page.reload()
    teaser = page.locator(f".st-key-lesson_{SOFTMAX}")
    line = teaser.locator(".kt-quiet")
    expect(line).to_have_text(ABOUT_SOFTMAX)
    FirstStage(page).ready()
    teaser.scroll_into_view_if_needed()
    teaser.click(position={"x": teaser.bounding_box()["width"] / 2, "y": 60})
    expect(page).to_have_url(f"{server}/softmax")
    expect(page.locator(".chapter h2")).to_have_text("Numbers become weights")
    page.get_by_role("button", name=re.compile("^Next:")).dispatch_event("click")
    expect(page.locator(".chapter h2")).to_have_text("Too large for FP32")
    page.get_by_role("link", name="Kernel Theatre").click()
    expect(line).to_have_text(f"2 of {ABOUT_SOFTMAX}")
