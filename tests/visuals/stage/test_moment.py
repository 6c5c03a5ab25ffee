"""The URL holds step, speed, pin, zoom and loop; invalid URLs and messages change nothing and have a notice."""

import json
import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TIMEOUT_MS, TOY_STEPS, Stage, frames, preset

pytestmark = pytest.mark.browser


def query_parameters(page):
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def notice(page):
    return page.locator(".stage .notice")


# -- there and back --------------------------------------------------------------------------------
def place(stage, name, index):
    """Returns where a cell is from the centre of the canvas, and its width, in CSS pixels."""
    cell, box = stage.cell(name, index), stage.root.locator("canvas").first.bounding_box()
    return cell["x"] - box["x"] - box["width"] / 2, cell["y"] - box["y"] - box["height"] / 2, cell["width"]


def wait_for_place(stage, name, index, expected, abs):
    """Waits until a cell is where it is expected: a stage is laid out again while what is above it loads."""
    end = time.monotonic() + TIMEOUT_MS / 1000
    while (now := place(stage, name, index)) != pytest.approx(expected(), abs=abs) and time.monotonic() < end:
        stage.page.wait_for_timeout(50)
    assert now == pytest.approx(expected(), abs=abs)


@pytest.mark.slow
def test_settings_are_in_the_url_and_open_again(stage, page, new_page):
    stage = stage("picture=numbers")
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()  # the page has its height
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    stage.root.focus()
    for key in ("+", "Shift+ArrowRight", "[", "ArrowRight", "ArrowRight", "]", "ArrowLeft"):
        page.keyboard.press(key)
    page.keyboard.press("z")
    page.keyboard.press("z")
    stage.root.evaluate("root => root.player.setPin({ name: 'D', index: 11 })")  # it may be out of view
    expect(page).to_have_url(re.compile(r"pin=D:11"))
    parameters = query_parameters(page)
    assert {name: parameters[name] for name in ("picture", "step", "speed", "loop", "pin")} == {
        "picture": "numbers",
        "step": "11",
        "speed": "2",
        "loop": "10-12",
        "pin": "D:11",
    }
    assert parameters["zoom"].startswith("2.25,")
    other = new_page()
    other.goto(page.url)
    again = Stage(other).ready()
    again.at_step(11)
    expect(again.root).to_have_attribute("data-hover", "D:11")
    expect(again.root).to_have_attribute("data-pinned", "")
    expect(other.locator("[data-do=speed]")).to_have_text("2×")
    expect(other.locator("[data-do=loop]")).to_have_text("loop 11–13")
    wait_for_place(again, "D", 11, lambda: place(stage, "D", 11), abs=1.5)
    assert query_parameters(other) == parameters  # opening does not rewrite the URL
    # Default settings are not in the URL.
    stage.root.focus()
    for key in ("Escape", "0", "\\", "-", "Home"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"\?picture=numbers$"))


@pytest.mark.slow
def test_zoomed_cells_stay_while_the_window_has_another_size(stage, page):
    stage = stage()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    stage.root.evaluate("root => root.player.setPin({ name: 'D', index: 150 })")
    stage.root.focus()
    for _ in range(3):
        page.keyboard.press("z")
    expect(page).to_have_url(re.compile("zoom=3.375,"))
    before, zoom = place(stage, "D", 150), query_parameters(page)["zoom"]
    root = stage.root.element_handle()
    for width, height in ((1280, 720), (700, 1000), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(f"root => root.player.part.canvas.clientWidth <= {width}", arg=root)
    wait_for_place(stage, "D", 150, lambda: before, abs=1)
    assert query_parameters(page)["zoom"] == zoom


def test_a_stage_ends_with_its_window_when_what_is_above_it_grows(stage, page):
    stage = stage()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    ends = "root => Math.abs(innerHeight - 10 - root.getBoundingClientRect().bottom) < 1"
    root = stage.root.element_handle()
    page.wait_for_function(ends, arg=root)
    bottom = page.evaluate(
        """async (root) => {
            const block = document.querySelector("[data-testid=stMainBlockContainer] > [data-testid=stVerticalBlock]");
            const line = document.createElement("div");
            line.style.minHeight = "60px";
            block.prepend(line);
            for (let frame = 0; frame < 5; frame++) await new Promise(requestAnimationFrame);
            return innerHeight - 10 - root.getBoundingClientRect().bottom;
        }""",
        root,
    )
    assert abs(bottom) < 1


@pytest.mark.slow
def test_back_returns_to_the_earlier_step_and_pin(stage, page):
    stage = stage("step=5&pin=x:9")
    stage.at_step(5)
    preset(page, "cuDNN paper").click()
    expect(stage.root).to_have_attribute("data-scene", re.compile("H=3"))
    stage.at_step(0)
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    expect(page).not_to_have_url(re.compile("pin=|step="))
    page.go_back()
    expect(stage.root).to_have_attribute("data-scene", re.compile("H=8"))
    stage.at_step(5)
    expect(stage.root).to_have_attribute("data-hover", "x:9")


def test_a_control_keeps_step_pin_and_zoom_if_the_scene_stays(stage, page):
    stage = stage("step=9&speed=4&pin=D:3&zoom=2,0.5,0.5")
    page.get_by_role("button", name="picture: digit").click()
    page.get_by_role("dialog").get_by_text("gradient", exact=True).click()
    expect(page).to_have_url(re.compile("picture=gradient"))
    page.keyboard.press("Escape")
    stage.at_step(9)
    moment = {"step": "9", "speed": "4", "pin": "D:3", "zoom": "2,0.5,0.5"}
    assert query_parameters(page) == moment | {"picture": "gradient"}
    expect(page.locator(".stage .fit")).to_be_visible()


# -- invalid URLs and messages ----------------------------------------------------------------------------
HOSTILE = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "message_part"),
    [
        (f"step={HOSTILE}", "Step must be a whole number; got “<img src=x"),
        ("speed=99", "Speed must be one of 0.25"),
        (f"pin={HOSTILE}", "Pin must be a tensor and a cell of it"),
        ("pin=x:99999", "Pin must be a tensor"),
        ("zoom=1e9,0,0", "Zoom must be scale"),
        ("loop=5-99", "Loop must be the first and the last step"),
        ("hide=everything", "Hide must be some of kernel"),
        ("version=99", "This link was made by a newer version (“99”; this is"),
        ("step=99", f"This scene has {TOY_STEPS} steps"),
    ],
)
def test_an_invalid_value_in_the_url_has_a_notice(watch, page, query, message_part):
    stage = watch(query)
    expect(notice(page)).to_contain_text(message_part)
    expect(notice(page).locator("img")).to_have_count(0)
    stage.root.press("Home")
    stage.root.press("ArrowRight")  # and the stage still works
    stage.at_step(1)
    notice(page).get_by_role("button").click()
    expect(notice(page)).to_be_hidden()


def test_several_errors_are_in_one_notice(watch, page):
    watch("speed=99&pin=no:1")
    expect(notice(page)).to_contain_text("Speed must be")
    expect(notice(page)).to_contain_text("pin must be")


POST = "message => window.postMessage(message, '*')"


@pytest.mark.parametrize(
    "message", [{"stage": "goto", "step": 7}, {"stage": "step"}, {"stage": "<img src=x onerror=alert(1)>"}]
)
def test_a_message_from_another_window_changes_nothing(watch, page, message):
    stage = watch("step=3")
    for text in (message, json.dumps(message)):
        page.evaluate(POST, text)
    expect(notice(page)).to_contain_text("did not come from the embedding page")
    frames(page, 5)
    stage.at_step(3)
    stage.playing(False)


def test_messages_for_others_are_ignored(watch, page):
    stage = watch("step=3")
    for message in ("hello", {"type": "SET_THEME"}, None, 5, "{broken", {"stage": 7}):
        page.evaluate(POST, message)
    frames(page, 5)
    expect(notice(page)).to_be_hidden()
    stage.at_step(3)


BROKEN = """root => {
  const head = JSON.stringify(HEAD), bytes = new Uint8Array(12 + head.length), view = new DataView(bytes.buffer);
  view.setUint32(0, head.length, true);
  view.setUint32(4, 4, true);
  bytes.set(new TextEncoder().encode(`${head}null`), 8);
  root.player.update(bytes);
}"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "message_part"),
    [
        ({"meta": {"version": 99}}, "this player reads scenes of version 3, this one is version 99"),
        ({"meta": "text"}, "the scene is missing"),
        ({"meta": {"version": 3, "tensors": [], "writes": [{"target": "<b>"}]}}, "names a tensor <b>"),
    ],
)
def test_a_scene_that_breaks_the_contract_has_a_notice(stage, page, head, message_part):
    stage = stage()
    stage.root.evaluate(BROKEN.replace("HEAD", json.dumps(head)))
    expect(stage.root).to_have_attribute("data-ready", "error")
    expect(notice(page)).to_contain_text(message_part)
    expect(notice(page).locator("b")).to_have_count(0)
    # The page still works, and the next scene is shown.
    page.get_by_label("K", exact=True).press("ArrowUp")
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=3"))
    expect(stage.root).to_have_attribute("data-ready", "true")
    expect(notice(page)).to_be_hidden()
