"""What befalls a stage while it lives: windows and scenes that change under it, pointers that come and go,
focus whose place is taken away, readers who leave."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, frames

pytestmark = pytest.mark.browser

FOCUSED = "root => root.getRootNode().activeElement === root"
# A scene that the player holds, sent once more with its head changed: `how` gets the head.
RESEND = """(root, how) => {
  const { bytes, block } = root.player.data, length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  eval(how)(head);
  const text = new TextEncoder().encode(JSON.stringify(head)), sent = new Uint8Array(4 + text.length + block.length);
  new DataView(sent.buffer).setUint32(0, text.length, true);
  sent.set(text, 4);
  sent.set(block, 4 + text.length);
  root.player.update(sent);
}"""


# -- the window ------------------------------------------------------------------------------------
def test_what_is_zoomed_at_is_still_there_in_another_window(stage, page):
    stage = stage("zoom=4,0.9,0.8&pin=y:30")
    canvas = page.locator(".stage canvas")
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        expect(canvas).to_have_css("width", re.compile(r"^[34]..px$" if width == 390 else r"^[5-9]..px$"))
        centre = stage.root.evaluate(
            """({ player: { view: { scale, x, y }, layout: { width, height } } }) =>
              [(x + width / scale / 2) / width, (y + height / scale / 2) / height]"""
        )
        assert centre == pytest.approx([0.875, 0.8], abs=0.005)  # 0.9 would be past the edge


# -- other scenes ----------------------------------------------------------------------------------
def test_an_error_s_notice_goes_with_it(watch, page):
    stage = watch("step=5")
    notice = page.locator(".stage .notice")
    stage.root.evaluate(RESEND, "head => { head.meta.version = 99; }")
    expect(notice).to_contain_text("this one is version 99")
    stage.root.evaluate("root => root.player.update(root.player.data.bytes)")  # the same scene as before
    expect(stage.root).to_have_attribute("data-ready", "true")
    expect(notice).to_be_hidden()
    stage.at_step(5)


def test_a_pin_that_a_scene_of_the_same_key_has_no_room_for(watch, page):
    stage = watch("step=30&loop=20-33&pin=x:60")
    stage.root.evaluate(
        RESEND,
        """head => {
          const { meta } = head, x = meta.tensors.find(t => t.name === "x");
          for (const t of meta.tensors) t.values = t.name === "x" ? { ...x.values, length: 4 } : null;
          Object.assign(x, { rows: 2, cols: 2 });
          Object.assign(meta, { steps: 3, writes: [], matmuls: [], reads: [], source: null });
        }""",
    )
    expect(stage.root).to_have_attribute("data-ready", "true")
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    expect(page.locator("[data-do=loop]")).to_have_text("loop")
    stage.do("play")
    stage.at_step(2)
    stage.playing(False)


def test_a_scene_that_comes_takes_the_hand_off_the_cell(watch, page):
    stage = watch()
    stage.point_at("x", 9)
    canvas = page.locator(".stage canvas")
    expect(canvas).to_have_class(re.compile("over-cell"))
    stage.root.evaluate(RESEND, "head => { head.meta.key = 'another'; }")
    expect(canvas).not_to_have_class(re.compile("over-cell"))


# -- the address -----------------------------------------------------------------------------------
UNTIL_BACK = """(root, yes) => new Promise(done => {
  const look = () => Boolean(root.player.back) === yes ? done() : requestAnimationFrame(look);
  look();
})"""


def test_a_scene_after_going_back_to_the_same_one_starts_anew(stage, page):
    stage = stage("step=3")
    page.evaluate("history.pushState(history.state, '', '?other=1&step=3')")
    stage.root.evaluate("root => root.player.writeLink()")  # it has seen that
    page.evaluate("history.back()")
    for back in (
        True,
        False,
    ):  # it waits for the scene that was there; nothing comes: the address is followed
        stage.root.evaluate(UNTIL_BACK, back)
    stage.at_step(3)
    stage.root.press("End")
    page.get_by_label("K", exact=True).press("ArrowUp")
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=3"))
    stage.at_step(0)


def test_a_stage_that_is_gone_leaves_the_address_alone(stage, page):
    stage = stage("step=3")
    page.evaluate("history.pushState(history.state, '', '?other=1')")  # it means to put its step back
    stage.root.evaluate(
        """root => {
          window.left = root.player;
          root.player.close();
          window.after = [];
          for (const name of ["arrange", "writeLink", "follow"]) window.left[name] = () => window.after.push(name);
          root.querySelector(".canvas-box").style.width = "200px";
        }"""
    )
    page.wait_for_timeout(2500)
    assert page.evaluate("window.after") == []
    assert page.url.endswith("?other=1")


def test_a_loop_in_the_address_is_the_one_that_plays(page, server):
    page.goto(f"{server}/?embed=true&view=watch&loop=3-5")
    stage = Stage(page).ready()
    stage.playing(True)
    assert stage.root.evaluate("root => root.player.loop") == [3, 5]


# -- pins, pointers, fingers -----------------------------------------------------------------------
def test_a_pin_outlives_the_slider(watch, page):
    stage = watch("pin=x:18")
    page.locator(".scrub").click(position={"x": 40, "y": 10})
    expect(stage.root).not_to_have_attribute("data-step", "0")
    expect(stage.root).to_have_attribute("data-pinned", "")


def test_a_press_of_the_other_button_holds_nothing(watch, page):
    stage = watch("zoom=2,0.5,0.5")
    canvas = page.locator(".stage canvas")
    box = canvas.bounding_box()
    canvas.evaluate(  # its release went to a menu
        "(c, [clientX, clientY]) => c.dispatchEvent(new PointerEvent('pointerdown', { pointerId: 1, button: 2, clientX, clientY }))",
        [box["x"] + 300, box["y"] + 200],
    )
    before = stage.cell("x", 0)
    for x in (320, 380):
        page.mouse.move(box["x"] + x, box["y"] + 200)
    assert stage.cell("x", 0) == before


class Fingers:
    """Touches as the browser takes them: it may scroll instead."""

    def __init__(self, page):
        self.session = page.context.new_cdp_session(page)

    def send(self, kind, *points):
        points = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@pytest.fixture
def telephone(phone, server):
    """A page of a telephone and its stage, in the middle of the window."""
    phone.goto(f"{server}/im2col?step=5")
    stage = Stage(phone).ready()
    expect(phone.locator(".st-key-card_why table")).to_be_visible()
    phone.locator(".stage canvas").scroll_into_view_if_needed()
    return phone, stage, Fingers(phone)


@pytest.mark.parametrize("way", ["across", "down"])
def test_fingers_pinch_in_any_direction(telephone, way):
    page, stage, fingers = telephone
    box = page.locator(".stage canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 150
    at = lambda d: [(x + d, y), (x - d, y)] if way == "across" else [(x, y + d), (x, y - d)]  # noqa: E731
    before = stage.cell("x", 0)["width"]
    fingers.send("touchStart", *at(20))
    for d in range(25, 85, 5):
        fingers.send("touchMove", *at(d))
    fingers.send("touchEnd")
    frames(page, 3)
    assert stage.cell("x", 0)["width"] > 2.5 * before


def test_a_finger_scrolls_the_page_pans_what_is_zoomed_and_taps_pin(telephone):
    page, stage, fingers = telephone

    def drag(dy):
        box = page.locator(".stage canvas").bounding_box()
        x, y = box["x"] + 100, box["y"] + 220
        fingers.send("touchStart", (x, y))
        for n in range(1, 11):
            fingers.send("touchMove", (x, y + dy * n / 10))
        fingers.send("touchEnd")
        frames(page, 5)

    top = stage.root.bounding_box()["y"]
    drag(-120)
    assert stage.root.bounding_box()["y"] < top - 40
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    page.locator(".stage canvas").scroll_into_view_if_needed()
    at = stage.cell("x", 18)
    page.touchscreen.tap(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    expect(stage.root).to_have_attribute("data-hover", "x:18")
    expect(stage.root).to_have_attribute("data-pinned", "")
    for _ in range(3):
        stage.root.press("z")
    top, cell = stage.root.bounding_box()["y"], stage.cell("x", 18)
    drag(-60)
    assert stage.root.bounding_box()["y"] == top
    assert stage.cell("x", 18)["y"] < cell["y"] - 40


# -- keys and focus --------------------------------------------------------------------------------
def test_focus_stays_on_the_stage_when_its_button_goes(watch, page):
    stage = watch("zoom=2,0.5,0.5&speed=99")
    for name in ("fit", "dismiss"):
        stage.root.locator(f"[data-do={name}]").press("Enter")
        expect(stage.root.locator(f"[data-do={name}]")).to_be_hidden()
        frames(page, 2)
        assert stage.root.evaluate(FOCUSED), name


def test_the_cell_one_walks_to_is_read_aloud(watch, page):
    stage = watch("step=4")
    spoken = lambda: [part.get_attribute("aria-live") for part in (stage.caption, stage.explanation)]  # noqa: E731
    stage.point_at("x", 9)
    assert spoken() == ["polite", "off"]  # the mouse may wander
    stage.root.press("p")
    assert spoken() == ["polite", "polite"]
    stage.do("play")
    assert spoken() == ["off", "off"]
    stage.do("play")
    stage.root.press("Escape")
    assert spoken() == ["polite", "off"]


def test_escape_closes_a_panel_from_its_text_too(watch, page):
    stage = watch("step=2")
    stage.do("link")
    page.locator("[data-copy=slide]").click()
    text = page.locator(".copied")
    expect(text).not_to_have_value("")
    text.press("ArrowRight")
    text.press("c")
    stage.at_step(2)
    expect(page.locator("[data-panel=link]")).to_be_visible()
    text.press("Escape")
    expect(page.locator("[data-panel=link]")).to_be_hidden()
    assert stage.root.evaluate("root => root.getRootNode().activeElement.dataset.do") == "link"


def test_arrows_scroll_a_long_explanation(watch, page):
    page.set_viewport_size({"width": 1440, "height": 900})
    stage = watch("C=3&H=12&W=12&pin=y:0&step=9")
    explain = page.locator(".explain")
    explain.evaluate("box => { box.style.maxHeight = box.style.minHeight = box.style.flexBasis = '60px'; }")
    explain.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.activeElement.shadowRoot.querySelector('.explain').scrollTop > 0")
    stage.at_step(9)


# -- forced colours --------------------------------------------------------------------------------
def test_what_colour_alone_tells_is_told_in_forced_colours(stage, page):
    page.emulate_media(forced_colors="active", color_scheme="dark")
    try:
        stage = stage("order=warps&step=3")
        ground = "node => getComputedStyle(node).backgroundColor"
        for one, other in (
            (".code-line.lit", ".code-line:not(.lit)"),
            (".lane.active", ".lane:not(.active)"),
        ):
            assert page.locator(one).first.evaluate(ground) != page.locator(other).first.evaluate(ground)
        stage.do("colours")
        hues = [
            page.locator(f".legend .hue-{name}").evaluate(ground) for name in ("input", "filter", "output")
        ]
        assert len(set(hues)) == 3
        assert page.locator(".scrub").evaluate("node => getComputedStyle(node).forcedColorAdjust") == "none"
        page.keyboard.press("Escape")
        page.get_by_role("button", name="more", exact=True).focus()
        page.keyboard.press("Tab")
        assert stage.root.evaluate("root => getComputedStyle(root).outlineStyle") == "solid"
    finally:
        page.emulate_media(forced_colors="none")
