"""The stage on the app's pages: what controls, reruns, the page's styles and the browser's history do to it."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import VGG, Stage, answered, idle, preset, query, scrolled, truth
from tests.helpers.page_runner import components, open_page, texts
from tests.visuals.stage.test_moment import query_parameters

MOMENT = {"step": "9", "speed": "4", "pin": "D:3", "zoom": "2,0.5,0.5"}
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


@pytest.mark.browser
def test_back_returns_to_the_earlier_step_and_pin_and_pictures_follow_the_last_change(stage, page):
    stage = stage("step=5&pin=x:9")
    stage.at_step(5)
    preset(page, "cuDNN paper").click()
    expect(stage.root).to_have_attribute("data-scene", re.compile("H=3"))
    stage.at_step(0)
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    expect(page).not_to_have_url(re.compile("pin=|step="))
    answered(page, "H=3")
    page.go_back()
    expect(stage.root).to_have_attribute("data-scene", re.compile("H=8"))
    stage.at_step(5)
    expect(stage.root).to_have_attribute("data-hover", "x:9")
    pictures = page.locator(".kt-pictures img")
    expect(pictures).to_have_count(2)
    idle(page)
    field = page.get_by_label("H", exact=True)
    for _ in range(4):  # each replaces the pictures, some before they are loaded
        field.press("ArrowUp")
    expect(field).to_have_value("12")
    expect(page.locator(".kt-pictures")).to_contain_text("Input: digit, 12 × 8")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.kt-pictures img')].every(i => i.complete && i.naturalWidth > 0)"
    )


@pytest.mark.browser
def test_keys_focus_theme_and_panels_on_a_page(stage, page):
    page.set_viewport_size({"width": 1440, "height": 600})  # so that the page can scroll
    page.emulate_media(color_scheme="dark")
    stage = stage()
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    expect(stage.root).to_have_attribute("data-theme", "dark")
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
    expect(stage.root).to_have_attribute("data-theme", "light")
    assert stage.root.evaluate("root => root.mark") == "the same"
    assert stage.step >= 10
    stage.playing(True)
    page.set_viewport_size({"width": 1440, "height": 900})  # the list of keys does not cover the title
    stage.root.press("?")
    keys = page.locator("[data-panel=help]")
    expect(keys).to_be_visible()
    page.locator("h1").click()
    expect(keys).to_be_hidden()


@pytest.mark.browser
def test_the_place_of_the_stage(page, server, stages):
    """It ends with the window, and bare.py gives it the place of a page with a story."""
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        boxes = []
        for address in (server, stages):
            page.goto(f"{address}/im2col?view=story&chapter=3")
            root = Stage(page).ready().root
            expect(page.locator(".strip-bars li").first).to_be_attached()
            ends = "([root, height]) => Math.abs(height - 10 - root.getBoundingClientRect().bottom) < 1"
            if width > 900:
                page.wait_for_function(ends, arg=[root.element_handle(), height])
            box = root.bounding_box()
            boxes.append((box["x"], box["width"], *((box["y"], box["height"]) if width > 900 else ())))
        assert boxes[0] == pytest.approx(boxes[1], abs=1)


@pytest.mark.browser
def test_a_phone_shows_the_whole_stage(stage, page):
    page.set_viewport_size({"width": 390, "height": 844})
    stage = stage(query(VGG | {"step": 5}))
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("(m => m.scrollWidth - m.clientWidth)(document.querySelector('[data-testid=stMain]'))") <= 0
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


def keys(block):
    """Yields the keys of the containers in a block of a page."""
    yield getattr(getattr(block, "proto", None), "id", "").rpartition("-")[2]
    for child in getattr(block, "children", {}).values():
        yield from keys(child)


def test_other_views_have_only_their_part():
    for view, own in VIEWS.items():
        at = open_page("conv/im2col.py", view=view)
        assert own <= set(keys(at.main)), view
        assert not {"kernels" if "cards" in own else "cards"} & set(keys(at.main)), view
        assert len(components(at)) == (view == "watch"), view
        assert not at.get("number_input") and "kt-title" not in texts(at), view
    whole = open_page("conv/im2col.py", view="<script>")
    assert set(PARTS) <= set(keys(whole.main)) and whole.get("number_input") and "kt-title" in texts(whole)
