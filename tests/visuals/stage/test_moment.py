"""The URL holds step, speed, pin, zoom and loop; invalid URLs and messages change nothing and have a notice."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TOY_STEPS, Stage, frames

pytestmark = pytest.mark.browser


def query_parameters(page):
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def notice(page):
    return page.locator(".stage .notice")


# -- there and back --------------------------------------------------------------------------------
# Where a cell is from the centre of the canvas, and its width, in CSS pixels.
PLACE = """(root, [name, index]) => {
  const box = root.querySelector("canvas").getBoundingClientRect(), cell = root.player.cellRect(name, index);
  return [cell.x - box.x - box.width / 2, cell.y - box.y - box.height / 2, cell.width];
}"""


def test_settings_are_in_the_url_and_open_again(bare, page, new_page):
    stage = bare("picture=numbers")
    stage.root.focus()
    for key in ("+", "Shift+ArrowRight", "[", "ArrowRight", "ArrowRight", "]", "ArrowLeft", "z", "z"):
        page.keyboard.press(key)
    stage.root.evaluate("root => root.player.setPin({ name: 'D', index: 11 })")  # it may be out of view
    expect(page).to_have_url(re.compile(r"pin=D:11"))
    parameters = query_parameters(page)
    zoom = parameters.pop("zoom")
    assert zoom.startswith("2.25,")
    assert parameters == {"picture": "numbers", "step": "11", "speed": "2", "loop": "10-12", "pin": "D:11"}
    other = new_page()
    other.goto(page.url)
    again = Stage(other).ready()
    again.at_step(11)
    expect(again.root).to_have_attribute("data-hover", "D:11")
    expect(again.root).to_have_attribute("data-pinned", "")
    expect(other.locator("[data-do=speed]")).to_have_text("2×")
    expect(other.locator("[data-do=loop]")).to_have_text("loop 11–13")
    place = stage.root.evaluate(PLACE, ["D", 11])
    assert again.root.evaluate(PLACE, ["D", 11]) == pytest.approx(place, abs=1.5)
    assert query_parameters(other) == parameters | {"zoom": zoom}  # opening does not rewrite the URL
    # Default settings are not in the URL.
    stage.root.focus()
    for key in ("Escape", "0", "\\", "-", "Home"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"\?picture=numbers$"))


def test_zoomed_cells_stay_while_the_window_has_another_size(bare, page):
    stage = bare()
    stage.root.evaluate("root => root.player.setPin({ name: 'D', index: 150 })")
    stage.root.focus()
    for _ in range(3):
        page.keyboard.press("z")
    expect(page).to_have_url(re.compile("zoom=3.375,"))
    before, zoom = stage.root.evaluate(PLACE, ["D", 150]), query_parameters(page)["zoom"]
    root = stage.root.element_handle()
    for width, height in ((1280, 720), (700, 1000), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(
            f"({{ player: {{ sizeKey, part }} }}) => innerWidth === {width} && sizeKey.startsWith(`${{part['canvas-box'].clientWidth}},`)",
            arg=root,
        )
    assert stage.root.evaluate(PLACE, ["D", 150]) == pytest.approx(before, abs=1)
    assert query_parameters(page)["zoom"] == zoom


# Adds a line above the stage; returns how far the stage's end is from the window's, beyond its margin, after a few frames.
GROW = """async (root) => {
  const line = document.createElement("div");
  line.style.minHeight = "60px";
  document.querySelector("[data-testid=stMainBlockContainer] > [data-testid=stVerticalBlock]").prepend(line);
  for (let frame = 0; frame < 5; frame++) await new Promise(requestAnimationFrame);
  return innerHeight - 10 - root.getBoundingClientRect().bottom;
}"""


def test_a_stage_ends_with_its_window_when_what_is_above_it_grows(bare, page):
    stage = bare()
    ends = "root => Math.abs(innerHeight - 10 - root.getBoundingClientRect().bottom) < 1"
    assert stage.root.evaluate(ends)
    assert abs(stage.root.evaluate(GROW)) < 1


# -- invalid URLs and messages ----------------------------------------------------------------------------
HOSTILE = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"


def test_invalid_values_in_the_url_have_one_notice(bare, page):
    """What each value says: tests/node/link.test.js."""
    stage = bare(f"step={HOSTILE}&speed=99&pin=no:1")
    for part in ("Step must be a whole number; got “<img src=x", "speed must be one of 0.25", "pin must be a tensor"):
        expect(notice(page)).to_contain_text(part)
    expect(notice(page).locator("img")).to_have_count(0)
    stage.root.press("ArrowRight")  # and the stage still works
    stage.at_step(1)
    notice(page).get_by_role("button").click()
    expect(notice(page)).to_be_hidden()
    bare("step=99")
    expect(notice(page)).to_contain_text(f"This scene has {TOY_STEPS} steps")


POST = "message => window.postMessage(message, '*')"


def test_messages_of_other_windows_change_nothing(bare, page):
    stage = bare("step=3")
    for message in ("hello", {"type": "SET_THEME"}, None, 5, "{broken", {"stage": 7}):
        page.evaluate(POST, message)
    frames(page, 2)
    expect(notice(page)).to_be_hidden()
    stage.at_step(3)
    for message in ({"stage": "goto", "step": 7}, {"stage": "step"}, {"stage": "<img src=x onerror=alert(1)>"}):
        for text in (message, json.dumps(message)):
            page.evaluate(POST, text)
            expect(notice(page)).to_contain_text("did not come from the embedding page")
            stage.at_step(3)
            stage.playing(False)
            notice(page).get_by_role("button").click()


BROKEN = """(root, meta) => {
  const head = JSON.stringify({ meta }), bytes = new Uint8Array(12 + head.length), view = new DataView(bytes.buffer);
  view.setUint32(0, head.length, true);
  view.setUint32(4, 4, true);
  bytes.set(new TextEncoder().encode(`${head}null`), 8);
  root.player.update(bytes);
}"""


def test_a_scene_that_breaks_the_contract_has_a_notice_and_the_next_one_is_shown(bare, page):
    stage = bare("step=5")
    for n, (meta, message_part) in enumerate(
        (
            ({"version": 99}, "this player reads scenes of version 3, this one is version 99"),
            ("text", "the scene is missing"),
            ({"version": 3, "tensors": [], "writes": [{"target": "<b>"}]}, "names a tensor <b>"),
        )
    ):
        stage.root.evaluate(BROKEN, meta)
        expect(stage.root).to_have_attribute("data-ready", "error")
        expect(notice(page)).to_contain_text(message_part)
        expect(notice(page).locator("b")).to_have_count(0)
        query = "?K=3" if n else ""  # the same scene as before, then another
        page.evaluate("query => show(query)", query)
        expect(stage.root).to_have_attribute("data-scene", re.compile("K=3" if n else "K=2"))
        expect(stage.root).to_have_attribute("data-ready", "true")
        expect(notice(page)).to_be_hidden()
        if not n:
            stage.at_step(5)
