"""The stage in a real browser: playing, controls and texts."""

import re

import pytest
from playwright.sync_api import expect

from kernels import sources
from tests.helpers.harness import (
    PADDED,
    TOY_COLUMNS,
    TOY_STEPS,
    VGG,
    Stage,
    faster,
    frames,
    query,
    scrolled,
    serving,
    truth,
)
from visuals.conv.im2col.scene import FILE

pytestmark = pytest.mark.browser


# -- opening -------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_first_deep_link_opens_at_its_shape_and_step(new_page):
    page = new_page()
    with serving() as app:  # a server without earlier visits
        page.goto(app.url + "/im2col?H=12&W=10&K=3&step=7")
        stage = Stage(page).ready()
        stage.at_step(7)
        expect(page.get_by_label("H", exact=True)).to_have_value("12")
        expect(page.locator(".kt-derived")).to_contain_text("output 10×8")
        expect(page.locator(".st-key-card_why")).to_be_visible()
        assert stage.root.get_attribute("data-scene").startswith("im2col 0,0 N=1,C=1,H=12,W=10,K=3")
        assert page.url.endswith("?H=12&W=10&K=3&step=7")  # opening does not rewrite the URL
        stage.playing(False)
        page.goto("about:blank")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "step"),
    [
        ("abc", 0),
        ("-1", 0),
        ("3.5", 0),
        ("", 0),
        ("%3Cimg%20src=x%20onerror=alert(1)%3E", 0),
        ("9" * 40, TOY_STEPS - 1),
        ("999999999", TOY_STEPS - 1),
        (str(TOY_STEPS), TOY_STEPS - 1),
        ("007", 7),
    ],
)
def test_a_hostile_step_opens_a_valid_step(watch, value, step):
    stage = watch(f"step={value}")
    stage.at_step(step)
    stage.do("back")
    stage.at_step(max(0, step - 1))


@pytest.mark.slow
def test_the_step_survives_reload_and_controls_keep_the_other_parameters(stage, page):
    stage = stage("picture=gradient&other=mine")
    stage.root.press("End")
    expect(page).to_have_url(re.compile(rf"step={TOY_STEPS - 1}$"))
    stage.root.press("ArrowLeft")
    page.reload()
    before_last = TOY_STEPS - 2
    stage.ready().at_step(before_last)
    assert page.url.endswith(f"?picture=gradient&other=mine&step={before_last}")
    # Another picture changes only numbers of the scene: the step stays.
    page.get_by_role("button", name="picture: gradient").click()
    page.get_by_role("dialog").get_by_text("numbers", exact=True).click()
    expect(page).to_have_url(re.compile("picture=numbers"))
    expect(page).to_have_url(re.compile("other=mine"))
    expect(page).to_have_url(re.compile(rf"step={before_last}\b"))
    page.keyboard.press("Escape")
    stage.at_step(before_last)
    # Another shape is another scene: it starts at step 0, and the rest of the URL stays.
    page.get_by_label("K", exact=True).press("ArrowUp")
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=3"))
    stage.at_step(0)
    expect(page).not_to_have_url(re.compile("step="))
    assert "picture=numbers" in page.url and "other=mine" in page.url


# -- transport -----------------------------------------------------------------------------------
def test_play_advances_and_pause_stops(watch, page):
    stage = watch()
    stage.playing(False)
    faster(stage)
    stage.do("play")
    stage.playing(True)
    expect(stage.root.get_by_role("button", name="Pause")).to_be_visible()
    expect(stage.root).to_have_attribute("data-step", re.compile("^([2-9]|1.)$"))
    assert "step=" not in page.url  # the URL is written when it stops, not sixty times a second
    stage.do("play")
    stage.playing(False)
    stopped = stage.step
    frames(page, 30)  # a step lasts 7 of them
    assert stage.step == stopped
    expect(page).to_have_url(re.compile(rf"step={stopped}&"))


def test_play_ends_at_the_last_step_and_begins_again(watch):
    stage = watch(f"step={TOY_STEPS - 3}")
    faster(stage)
    stage.do("play")
    stage.at_step(TOY_STEPS - 1)
    stage.playing(False)
    expect(stage.root.get_by_role("button", name="Play")).to_be_visible()
    stage.do("play")
    stage.playing(True)
    assert stage.step < 9


def test_step_buttons_go_both_ways_and_stop_at_the_ends(watch):
    stage = watch("step=1")
    stage.do("forward")
    stage.at_step(2)
    for step in (1, 0, 0):
        stage.do("back")
        stage.at_step(step)
    stage.root.press("End")
    stage.do("forward")
    stage.at_step(TOY_STEPS - 1)
    stage.playing(False)


def test_scrubbing_shows_the_step_and_pauses(watch, page):
    stage = watch()
    stage.do("play")
    stage.playing(True)
    page.locator(".scrub").fill("20")
    stage.at_step(20)
    stage.playing(False)
    expect(page.locator(".count")).to_have_text(f"21 / {TOY_STEPS}")
    expect(page).to_have_url(re.compile(r"step=20$"))


def test_speed(watch, page):
    stage = watch("step=3")
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


def test_the_order_has_a_name_and_its_note_closes(watch, page):
    stage = watch()
    stage.do("order")
    panel = page.locator("[data-panel=order]")
    expect(panel).to_contain_text("one launch fills the whole data matrix")
    stage.root.press("Escape")
    expect(panel).to_be_hidden()


# -- keyboard ------------------------------------------------------------------------------------
# px: an arrow scrolls by 40. A line of a card below that is drawn later moves the page by a few.
LESS_THAN_A_KEY = 20


def test_keys_control_the_stage_and_the_page_does_not_scroll(stage, page):
    page.set_viewport_size({"width": 1440, "height": 600})  # so that the page can scroll
    stage = stage()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
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
        ("End", TOY_STEPS - 1),
        ("ArrowRight", TOY_STEPS - 1),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("Shift+ArrowLeft", 0),
    ):
        page.keyboard.press(key)
        stage.at_step(step)
        stage.playing(False)
        assert scrolled(page) == pytest.approx(before, abs=LESS_THAN_A_KEY)
    page.keyboard.press("Space")
    stage.playing(True)
    page.keyboard.press("Space")
    stage.playing(False)
    assert scrolled(page) == pytest.approx(before, abs=LESS_THAN_A_KEY)
    # Keys typed in other controls do not reach the stage.
    step = stage.step
    page.get_by_label("K", exact=True).press("ArrowRight")
    page.get_by_label("K", exact=True).press("End")
    assert stage.step == step


def test_tab_reaches_the_stage_and_shows_the_focus(stage, page):
    stage = stage()
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
@pytest.mark.parametrize("params", [{}, PADDED, {"H": "32", "W": "32"}], ids=["toy", "padded", "900 columns"])
def test_the_caption_equals_the_scene_s(watch, page, params):
    scene = truth(**params).scene
    stage = watch(query(params))
    for t in (0, 1, scene.steps // 2, scene.steps - 1):
        page.locator(".scrub").fill(str(t))
        stage.at_step(t)
        expect(stage.caption).to_have_text(scene.caption(t))
        expect(page.locator(".count")).to_have_text(f"{t + 1:,} / {scene.steps:,}")
    expect(stage.caption).to_have_attribute("aria-live", "polite")
    stage.do("play")  # from the start again
    stage.playing(True)
    expect(stage.caption).to_have_attribute("aria-live", "off")  # a screen reader would read every step
    expect(stage.caption.locator("script, img")).to_have_count(0)


def test_the_lit_line_is_the_one_that_copies(watch, page):
    watch("step=3")
    lit = page.locator(".code-line.lit")
    expect(lit).to_have_count(1)
    expect(lit).to_contain_text("column[")
    line = int(lit.get_attribute("data-line"))
    assert lit.locator("code").inner_text() == sources.text(FILE).splitlines()[line - 1]
    expect(lit).to_be_in_viewport()


def test_the_second_act_shows_the_file_and_the_line_of_its_kernel(watch, page):
    scene, stage = truth().scene, watch()
    file, lit = page.locator(".stage .file"), page.locator(".code-line.lit")
    for t in (0, TOY_COLUMNS, TOY_COLUMNS + 1, TOY_COLUMNS - 1, TOY_STEPS - 2):
        page.locator(".scrub").fill(str(t))
        stage.at_step(t)
        source, line = scene.source_at(t)
        expect(file).to_contain_text(source.file)
        expect(lit).to_have_count(1)
        expect(lit.locator("code")).to_have_text(source.text.splitlines()[line - source.first])
        expect(lit).to_be_in_viewport()
    stage.root.press("End")
    expect(lit).to_have_count(0)  # no line runs for the reshape
    expect(file).to_contain_text("03_gemm.cu")
    page.locator(".code-line.runs button").first.click()  # to the next step of that line, from the start
    stage.at_step(TOY_COLUMNS)


# -- surroundings --------------------------------------------------------------------------------
def test_light_and_dark_and_a_change_while_playing(stage, page):
    page.emulate_media(color_scheme="dark")
    stage = stage()
    expect(stage.root).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(stage.root).to_have_attribute("data-theme", "light")
    stage.root.evaluate("root => { root.mark = 'the same'; }")
    stage.root.press("Shift+ArrowRight")
    stage.do("play")
    page.emulate_media(color_scheme="dark")
    expect(stage.root).to_have_attribute("data-theme", "dark")
    assert stage.root.evaluate("root => root.mark") == "the same"
    assert stage.step >= 10
    stage.playing(True)


MOVES = """root => {
  const canvas = root.querySelector("canvas"), picture = () => canvas.toDataURL(), start = performance.now();
  root.querySelector("[data-do=forward]").click();
  return new Promise(done => {
    const seen = new Set([picture()]);
    const look = () => {
      seen.add(picture());
      performance.now() - start < 900 ? requestAnimationFrame(look) : done(seen.size);
    };
    requestAnimationFrame(look);
  });
}"""


def test_with_reduced_motion_nothing_is_animated(watch, page):
    stage = watch("step=5")
    assert stage.root.evaluate(MOVES) > 5
    page.emulate_media(reduced_motion="reduce")
    assert stage.root.evaluate(MOVES) == 1
    stage.at_step(7)
    stage.do("play")  # it still plays, a column at a time
    expect(stage.root).to_have_attribute("data-step", "8")


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, PADDED, VGG], ids=["toy", "padded", "vgg"])
def test_a_phone_shows_the_whole_stage(stage, page, params):
    page.set_viewport_size({"width": 390, "height": 844})
    stage = stage(query(params | {"step": 5}))
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("(m => m.scrollWidth - m.clientWidth)(document.querySelector('[data-testid=stMain]'))") <= 0
    box = stage.root.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    scene = truth(**params).scene
    for tensor in scene.tensors:
        last = stage.cell(tensor.name, tensor.size - 1)
        assert last["x"] >= 0 and last["x"] + last["width"] <= 390
    for name in ("play", "back", "forward", "speed", "more"):
        button_box = page.locator(f"[data-do={name}]").bounding_box()
        assert button_box["x"] >= 0 and button_box["x"] + button_box["width"] <= 390
    expect(stage.caption).to_have_text(scene.caption(5))


def test_embedded_page_has_only_the_stage(stage, page):
    stage = stage("embed=true&view=watch&C=3&step=4")
    stage.at_step(4)
    stage.do("forward")
    stage.at_step(5)
    for hidden in ("h1", ".st-key-nav", ".st-key-cards", "[data-testid=stPageLink]", "[data-testid=stNumberInput]"):
        expect(page.locator(hidden)).to_have_count(0)
    assert "embed=true&view=watch&C=3" in page.url


@pytest.mark.parametrize(
    ("view", "visible", "hidden"),
    [
        ("run", ".st-key-card_time", (".stage", "h1", "[data-testid=stNumberInput]", ".st-key-kernels")),
        ("why", ".st-key-card_why", (".stage", "h1", "[data-testid=stNumberInput]", ".st-key-kernels")),
        ("kernel", ".st-key-kernels", (".stage", "h1", "[data-testid=stNumberInput]", ".st-key-cards")),
    ],
)
def test_other_views_have_only_their_part(server, page, view, visible, hidden):
    page.goto(f"{server}/im2col?view={view}")
    expect(page.locator(visible)).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    for part in hidden:
        expect(page.locator(part)).to_have_count(0)


def test_an_unknown_view_is_the_whole_page(stage, page):
    stage("view=%3Cscript%3E")
    expect(page.locator(".st-key-card_time")).to_be_visible()
    expect(page.locator("h1")).to_be_visible()


@pytest.mark.slow
def test_the_pictures_below_belong_to_the_last_change(stage, page):
    stage("C=3")
    pictures = page.locator(".kt-pictures img")
    expect(pictures).to_have_count(2)
    for _ in range(4):  # each replaces the pictures, some before they are loaded
        page.get_by_label("H", exact=True).press("ArrowUp")
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    rows = page.get_by_label("H", exact=True).input_value()
    expect(page.locator(".kt-pictures")).to_contain_text(f"Input: digit, {rows} × 8")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.kt-pictures img')].every(i => i.complete && i.naturalWidth > 0)"
    )
