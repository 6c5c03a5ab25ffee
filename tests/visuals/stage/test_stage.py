"""The stage in a real browser: playing, controls, keys and texts. What the app adds is in test_app.py."""

import re

import pytest
from playwright.sync_api import expect

from kernels import sources
from tests.helpers.harness import PADDED, TOY_COLUMNS, TOY_STEPS, faster, frames, query, scrolled, truth
from visuals.conv.im2col.scene import FILE

pytestmark = pytest.mark.browser
LAST = TOY_STEPS - 1


def test_a_step_in_the_url_opens_a_valid_step(bare):
    for value, step in (
        ("%3Cimg%20src=x%20onerror=alert(1)%3E", 0),
        ("9" * 40, LAST),
        (str(TOY_STEPS), LAST),
        ("007", 7),
    ):
        stage = bare(f"step={value}")
        stage.at_step(step)
        stage.do("back")
        stage.at_step(max(0, step - 1))


# -- transport -----------------------------------------------------------------------------------
STEPS_WHILE = """(root, until) => new Promise((done) => {
  const steps = [];
  new MutationObserver((_, observer) => {
    steps.push(+root.dataset.step);
    if (!eval(until)(steps)) return;
    observer.disconnect();
    done(steps);
  }).observe(root, { attributes: true, attributeFilter: ["data-step"] });
  root.querySelector("[data-do=play]").click();
})"""


def test_buttons_step_play_and_scrub(bare, page):
    stage = bare("step=1")
    count = page.locator(".count")
    stage.do("forward")
    stage.at_step(2)
    for step in (1, 0, 0):
        stage.do("back")
        stage.at_step(step)
    page.locator(".scrub").fill("20")
    stage.at_step(20)
    expect(count).to_have_text(f"21 / {TOY_STEPS}")
    expect(page).to_have_url(re.compile(r"step=20$"))
    faster(stage)  # a step takes 113 ms
    expect(page).to_have_url(re.compile(r"step=20&speed=8$"))
    # The URL is written when it stops, not sixty times a second.
    assert stage.root.evaluate(STEPS_WHILE, "(steps) => steps.length > 2 && /step=20/.test(location)") == [21, 22, 23]
    page.locator(".scrub").fill("30")  # pauses
    stage.at_step(30)
    stage.playing(False)
    stage.root.focus()
    for _ in range(4):  # a step takes 1.8 s
        page.keyboard.press("-")
    stage.do("play")
    stage.playing(True)
    expect(stage.root.get_by_role("button", name="Pause")).to_be_visible()
    stage.do("play")
    stage.playing(False)
    faster(stage)
    stopped = stage.step
    assert stage.root.evaluate("({ player }) => [player.until, player.frame, player.t]")[::2] == [None, stopped]
    expect(page).to_have_url(re.compile(rf"step={stopped}&"))
    page.locator(".scrub").fill(str(LAST - 2))
    stage.do("play")
    stage.at_step(LAST)
    stage.playing(False)
    expect(stage.root.get_by_role("button", name="Play")).to_be_visible()
    stage.do("forward")
    stage.at_step(LAST)
    stage.playing(False)
    assert stage.root.evaluate(STEPS_WHILE, "(steps) => steps.length > 2") == [0, 1, 2]  # from the start again
    stage.playing(True)


def test_speed(bare, page):
    stage = bare("step=3")
    speed = page.locator("[data-do=speed]")
    for label in ("1×", "2×", "4×", "8×", "0.25×", "0.5×", "1×"):
        expect(speed).to_have_text(label)
        stage.do("speed")
    stage.root.focus()
    for key, label in (("+", "4×"), ("+", "8×"), ("+", "8×"), ("-", "4×")):
        page.keyboard.press(key)
        expect(speed).to_have_text(label)
    stage.at_step(3)  # changing the speed does not change the step
    stage.playing(False)


# -- keyboard ------------------------------------------------------------------------------------
def test_keys_control_the_stage_and_the_page_does_not_scroll(bare, page):
    page.set_viewport_size({"width": 1440, "height": 600})  # so that the page can scroll
    stage = bare()
    stage.root.focus()
    before = scrolled(page)
    for key, step in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("Shift+ArrowRight", 11),
        ("Shift+ArrowRight", 21),
        ("Shift+ArrowLeft", 11),
        ("PageDown", 12),
        ("PageUp", 11),
        ("ArrowDown", 11),
        ("ArrowUp", 11),
        ("End", LAST),
        ("ArrowRight", LAST),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("Shift+ArrowLeft", 0),
    ):
        page.keyboard.press(key)
        stage.at_step(step)
        stage.playing(False)
        assert scrolled(page) == before, key
    page.keyboard.press("Space")
    stage.playing(True)
    page.keyboard.press("Space")
    stage.playing(False)
    assert scrolled(page) == before
    page.get_by_role("button", name="options").press("End")  # not a key of the stage
    assert stage.step < LAST


def test_tab_reaches_the_stage_and_shows_the_focus(bare, page):
    stage = bare()
    outline = "root => getComputedStyle(root).outline"
    assert "solid" not in stage.root.evaluate(outline)
    page.get_by_role("button", name="options", exact=True).focus()
    page.keyboard.press("Tab")
    assert stage.root.evaluate("root => root.getRootNode().activeElement === root")
    assert "solid 2px" in stage.root.evaluate(outline)
    # Tab continues through its buttons; Space presses the focused one, once.
    page.keyboard.press("Tab")
    focused = "root => root.getRootNode().activeElement.dataset.do"
    while stage.root.evaluate(focused) != "forward":
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    stage.at_step(1)
    stage.playing(False)


# -- text form -----------------------------------------------------------------------------------
def test_the_caption_and_the_readings_equal_the_scene_s(bare, page):
    for params in ({"K": "3"}, PADDED, {"H": "32", "W": "32"}):
        scene, stage = truth(**params).scene, bare(query(params))
        for t in (0, 1, scene.steps // 2, scene.steps - 1):
            page.locator(".scrub").fill(str(t))
            stage.at_step(t)
            expect(stage.caption).to_have_text(scene.caption(t))
            expect(page.locator(".count")).to_have_text(f"{t + 1:,} / {scene.steps:,}")
            for reading in scene.readings:
                text = f"{reading.label} {int(reading.values[t]):,}"
                expect(page.locator("[data-part=readings]")).to_contain_text(text)
        expect(page.locator("[data-part=readings] .badge")).to_have_text(["counted"])
    expect(stage.caption).to_have_attribute("aria-live", "polite")
    stage.do("play")  # from the start again
    stage.playing(True)
    expect(stage.caption).to_have_attribute("aria-live", "off")  # a screen reader would read every step
    expect(stage.caption.locator("script, img")).to_have_count(0)


def test_the_lit_line_is_that_of_the_kernel_that_runs(bare, page):
    scene, stage = truth().scene, bare()
    file, lit = page.locator(".stage .file"), page.locator(".code-line.lit")
    for t in (0, 3, TOY_COLUMNS, TOY_COLUMNS + 1, TOY_COLUMNS - 1, LAST):
        page.locator(".scrub").fill(str(t))
        stage.at_step(t)
        source, line = scene.source_at(t)
        expect(file).to_contain_text(source.file)
        expect(lit).to_have_count(1)
        expect(lit.locator("code")).to_have_text(source.text.splitlines()[line - source.first])
        expect(lit).to_be_in_viewport()
        if t == 3:  # the line that copies, with its number in the file
            expect(lit).to_contain_text("column[")
            number = int(lit.get_attribute("data-line"))
            assert lit.locator("code").inner_text() == sources.text(FILE).splitlines()[number - 1]
    page.locator(".code-line.runs button").first.click()  # to the next step of that line, from the start
    stage.at_step(TOY_COLUMNS)


# -- motion --------------------------------------------------------------------------------------
# Steps forward, and collects the pictures until the step is complete.
MOVES = """root => {
  const canvas = root.querySelector("canvas"), picture = () => canvas.toDataURL(), seen = new Set([picture()]);
  root.querySelector("[data-do=forward]").click();
  seen.add(picture());
  return new Promise(done => {
    const look = () => {
      seen.add(picture());
      root.player.until !== null ? requestAnimationFrame(look) : done(seen.size);
    };
    requestAnimationFrame(look);
  });
}"""


def test_with_reduced_motion_nothing_is_animated(bare, page):
    stage = bare("step=5")
    assert stage.root.evaluate(MOVES) > 2 + 1  # more pictures than before and after
    page.emulate_media(reduced_motion="reduce")
    assert stage.root.evaluate(MOVES) == 2
    stage.at_step(7)
    stage.do("play")  # it still plays, a column at a time
    expect(stage.root).to_have_attribute("data-step", "8")


def test_the_first_screen_does_not_play_with_reduced_motion(bare, page):
    page.emulate_media(reduced_motion="reduce")
    stage = bare("", "")
    step = stage.step
    frames(page, 60)
    stage.playing(False)
    stage.at_step(step)
    stage.do("play")  # the button plays it
    stage.playing(True)
