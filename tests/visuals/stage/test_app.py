"""The stage on the app's pages: what controls, reruns, the page's styles and the browser's history do to it."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import PALETTES, VGG, Stage, answered, idle, query, rgb, scrolled, settled, truth
from tests.helpers.page_runner import components, keys, open_page, texts
from tests.visuals.stage.test_moment import query_parameters

MOMENT = {"step": "9", "speed": "4", "pin": "D:3", "zoom": "2,0.5,0.5"}
PICTURES_LOADED = "[...document.querySelectorAll('.kt-pictures img')].every(i => i.complete && i.naturalWidth > 0)"
LESS_THAN_A_KEY = 20  # px: an arrow scrolls by 40. A line of a card that is drawn later moves the page by a few.


@pytest.mark.browser
def test_controls_links_and_back_keep_what_belongs_to_the_reader(stage, page):
    stage = stage(f"picture=numbers&other=mine&{query(MOMENT)}")
    stage.at_step(9)
    page.reload()
    stage.ready().at_step(9)
    assert query_parameters(page) == MOMENT | {"picture": "numbers", "other": "mine"}  # opening rewrites nothing
    # Another picture changes only numbers of the scene: the stage stays as it is.
    page.get_by_role("button", name="picture: numbers").click()
    page.get_by_role("dialog").get_by_text("gradient", exact=True).click()
    expect(page).to_have_url(re.compile("picture=gradient"))
    page.keyboard.press("Escape")
    answered(page, "picture=gradient")
    stage.at_step(9)
    assert query_parameters(page) == MOMENT | {"picture": "gradient", "other": "mine"}
    expect(page.locator(".stage .fit")).to_be_visible()
    # Keys typed in other controls do not reach the stage.
    field = page.get_by_label("K", exact=True)
    for key in ("ArrowRight", "End"):
        field.press(key)
    stage.at_step(9)
    # Another shape is another scene: it starts at step 0, and the rest of the URL stays.
    field.press("ArrowUp")
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=3"))
    stage.at_step(0)
    expect(page).not_to_have_url(re.compile("step=|pin="))
    assert "picture=gradient" in page.url and "other=mine" in page.url
    answered(page, "K=3", "picture=gradient")
    # Back leads to the earlier scene, step and pin.
    page.go_back()
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=2"))
    stage.at_step(9)
    expect(stage.root).to_have_attribute("data-hover", "D:3")
    idle(page)
    field = page.get_by_label("H", exact=True)
    for _ in range(4):  # each replaces the pictures, some before they are loaded
        field.press("ArrowUp")
    expect(field).to_have_value("12")
    expect(page.locator(".kt-pictures")).to_contain_text("Input: gradient, 12 × 8")
    page.wait_for_function(PICTURES_LOADED)


def shows(page, scheme):
    """Waits until the ground, a title, the bar, a chart's text and the stage have the colours of a scheme."""
    colours = PALETTES[scheme]
    expect(page.get_by_test_id("stApp")).to_have_css("background-color", rgb(colours["ground"]))
    expect(page.locator("h1.kt-title")).to_have_css("color", rgb(colours["ink"]))
    expect(page.locator(".kt-group:not([data-current])").first).to_have_css("color", rgb(colours["dim"]))
    chart = page.locator(".st-key-card_time .js-plotly-plot .annotation-text").first
    expect(chart).to_have_css("fill", rgb(colours["ink"]))
    expect(page.locator(".stage")).to_have_attribute("data-theme", scheme)


@pytest.mark.browser
def test_keys_focus_and_panels_on_a_page_that_follows_the_system(stage, page):
    page.set_viewport_size({"width": 1440, "height": 600})  # so that the page can scroll
    page.emulate_media(color_scheme="dark")
    stage = stage()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    shows(page, "dark")
    page.get_by_role("button", name="options", exact=True).focus()
    page.keyboard.press("Tab")
    assert stage.root.evaluate("root => root.getRootNode().activeElement === root")
    assert "solid 2px" in stage.root.evaluate("root => getComputedStyle(root).outline")
    before = scrolled(page)
    for key in ("ArrowDown", "PageDown", "End", "Space", "Space", "Home"):
        page.keyboard.press(key)
        assert scrolled(page) == pytest.approx(before, abs=LESS_THAN_A_KEY), key
    stage.at_step(0)
    stage.root.evaluate("root => { root.mark = 'the same'; }")
    stage.root.press("Shift+ArrowRight")
    stage.do("play")
    page.emulate_media(color_scheme="light")
    shows(page, "light")
    assert stage.root.evaluate("root => root.mark") == "the same"
    assert stage.step >= 10
    stage.playing(True)
    page.set_viewport_size({"width": 1440, "height": 900})  # the list of keys does not cover the title
    stage.root.press("?")
    keys = page.locator("[data-panel=help]")
    expect(keys).to_be_visible()
    page.locator("h1").click()
    expect(keys).to_be_hidden()
    page.emulate_media(color_scheme="dark")
    shows(page, "dark")
    idle(page)
    page.get_by_test_id("stPopoverButton").first.click()  # a list over the page
    body = page.get_by_test_id("stPopoverBody")
    expect(body).to_have_css("border-top-color", rgb(PALETTES["dark"]["line"]))
    expect(body.locator("a p:not(:has(strong))").first).to_have_css("color", rgb(PALETTES["dark"]["ink"]))


@pytest.mark.browser
def test_the_place_of_the_stage(page, server, stages):
    """It ends with the window, and bare.py gives it the place of a page with a story."""
    boxes = []
    for address in (server, stages):
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(f"{address}/im2col?view=story&chapter=3")
        root = Stage(page).ready().root
        expect(page.locator(".strip-bars li").first).to_be_attached()
        ends = "(root) => Math.abs(890 - root.getBoundingClientRect().bottom) < 1"
        page.wait_for_function(ends, arg=root.element_handle())
        box = root.bounding_box()
        page.set_viewport_size({"width": 390, "height": 844})
        narrow = settled(page, root.bounding_box)
        boxes.append((box["x"], box["width"], box["y"], box["height"], narrow["x"], narrow["width"]))
    assert boxes[0] == pytest.approx(boxes[1], abs=1)


@pytest.mark.browser
def test_a_phone_shows_the_whole_stage(bare, page):
    page.set_viewport_size({"width": 390, "height": 844})
    stage = bare(query(VGG | {"view": "explore", "step": 5}))
    within(stage.root.bounding_box())
    for name in ("play", "back", "forward", "speed", "more"):
        within(page.locator(f"[data-do={name}]").bounding_box())
    scene = truth(**VGG).scene
    for tensor in scene.tensors:
        within(stage.cell(tensor.name, tensor.size - 1))
    expect(stage.caption).to_have_text(scene.caption(5))


def within(box):
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390


# -- without a browser -----------------------------------------------------------------------------
PARTS = ("card_time", "card_why", "kernels", "cards")
VIEWS = {"watch": set(), "run": {"card_time", "cards"}, "why": {"card_why", "cards"}, "kernel": {"kernels"}}


def test_other_views_have_only_their_part():
    for view, own in VIEWS.items():
        at = open_page("conv/im2col.py", view=view)
        assert own <= keys(at), view
        assert not {"kernels" if "cards" in own else "cards"} & keys(at), view
        assert len(components(at)) == (view == "watch"), view
        assert not at.get("number_input") and "kt-title" not in texts(at), view
    whole = open_page("conv/im2col.py", view="<script>")
    assert set(PARTS) <= keys(whole) and whole.get("number_input") and "kt-title" in texts(whole)
