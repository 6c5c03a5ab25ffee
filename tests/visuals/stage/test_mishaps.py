"""Events while the stage runs: windows and scenes change, pointers come and go, a focused button disappears, the
reader leaves the page."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, frames

pytestmark = pytest.mark.browser

FOCUSED = "root => root.getRootNode().activeElement === root"
# Sends the player's scene again with its head changed: `how` gets the head.
RESEND = """(root, how) => {
  const { bytes, block } = root.player.data, view = new DataView(bytes.buffer, bytes.byteOffset);
  const [length, stripLength] = [view.getUint32(0, true), view.getUint32(4, true)];
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  eval(how)(head);
  const text = new TextEncoder().encode(JSON.stringify(head)), rest = bytes.subarray(8 + length);
  const sent = new Uint8Array(8 + text.length + rest.length), sizes = new DataView(sent.buffer);
  sizes.setUint32(0, text.length, true);
  sizes.setUint32(4, stripLength, true);
  sent.set(text, 8);
  sent.set(rest, 8 + text.length);
  root.player.update(sent);
}"""


# -- the window ------------------------------------------------------------------------------------
def test_zoom_keeps_its_centre_when_the_window_changes(bare, page):
    stage = bare("zoom=4,0.9,0.8&pin=y:30")
    canvas = page.locator(".stage canvas")
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        expect(canvas).to_have_css("width", re.compile(r"^[34]..px$" if width == 390 else r"^[5-9]..px$"))
        centre = stage.root.evaluate(
            """({ player: { view: { scale, x, y }, layout: { width, height } } }) =>
              [(x + width / scale / 2) / width, (y + height / scale / 2) / height]"""
        )
        assert centre == pytest.approx([0.875, 0.8], abs=0.005)  # 0.9 would be beyond the edge


# -- other scenes ----------------------------------------------------------------------------------
def test_a_pin_outside_a_new_scene_of_the_same_key_is_removed(bare, page):
    stage = bare("step=30&loop=20-33&pin=x:60")
    stage.root.evaluate(
        RESEND,
        """head => {
          const { meta } = head, x = meta.tensors.find(t => t.name === "x");
          for (const t of meta.tensors) t.values = null;
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


def test_a_new_scene_resets_the_pointer(bare, page):
    stage = bare()
    stage.point_at("x", 9)
    canvas = page.locator(".stage canvas")
    expect(canvas).to_have_class(re.compile("over-cell"))
    stage.root.evaluate(RESEND, "head => { head.meta.key = 'another'; }")
    expect(canvas).not_to_have_class(re.compile("over-cell"))


def test_a_shape_that_no_kernel_runs_ends_playing_until_another_does(bare, page):
    """The `page` fixture reports exceptions: the player had no scene whose steps it could count."""
    stage = bare("view=explore&rung=wgmma-ring", "hopper")
    stage.do("play")
    page.evaluate("show('?view=explore&rung=wgmma-ring&K=65')")
    expect(page.locator(".stage.strip-only")).to_be_visible()
    page.evaluate("show('?view=explore&rung=wgmma-ring&K=128')")
    expect(page.locator(".stage.strip-only")).to_have_count(0)
    expect(stage.ready().caption).to_be_visible()
    stage.do("forward")
    expect(page).to_have_url(re.compile("step="))


# -- the URL ---------------------------------------------------------------------------------------
UNTIL_BACK = """root => new Promise(done => {
  const look = () => root.player.wentBack ? done() : requestAnimationFrame(look);
  look();
})"""


def test_a_scene_after_going_back_starts_at_step_0(bare, page):
    stage = bare("step=3")
    page.evaluate("history.pushState(history.state, '', '?other=1&step=3')")
    stage.root.evaluate("root => root.player.writeLink()")  # the player stores this URL
    page.evaluate("history.back()")
    # It waits for the earlier scene; none comes, so it applies the URL.
    stage.root.evaluate(UNTIL_BACK)
    stage.at_step(3)
    stage.root.press("End")
    page.evaluate("show('?K=3')")
    expect(stage.root).to_have_attribute("data-scene", re.compile("K=3"))
    stage.at_step(0)


LEAVE = """(root, closes) => {
  window.after = [];
  for (const name of ["arrange", "writeLink", "applyLink"]) root.player[name] = () => window.after.push(name);
  history.pushState(history.state, "", `?other=${closes}&step=3`); // an open player would write its step back
  history.replaceState(history.state, "", `?other=${closes}`);
  if (closes) root.player.close();
  root.querySelector(".canvas-box").style.width = closes ? "200px" : "300px";
}"""


def test_a_closed_stage_does_not_change_the_url(new_page, stages):
    page = new_page()
    page.clock.install()
    page.goto(f"{stages}/im2col?step=3")
    stage = Stage(page).ready()
    for closes, heard in ((False, {"arrange", "writeLink"}), (True, set())):
        stage.root.evaluate(LEAVE, closes)
        page.clock.fast_forward(2500)  # longer than a player waits after Back
        frames(page, 3)
        assert set(page.evaluate("after")) == heard
        assert page.url.endswith(f"?other={str(closes).lower()}")


def test_a_loop_in_the_url_is_played(bare):
    stage = bare("embed=true&view=watch&loop=3-5", "")
    stage.playing(True)
    assert stage.root.evaluate("root => root.player.loop") == [3, 5]


# -- pins, pointers, fingers -----------------------------------------------------------------------
def test_a_pin_stays_when_the_slider_moves(bare, page):
    stage = bare("pin=x:18")
    page.locator(".scrub").click(position={"x": 40, "y": 10})
    expect(stage.root).not_to_have_attribute("data-step", "0")
    expect(stage.root).to_have_attribute("data-pinned", "")


def test_the_right_mouse_button_does_not_drag(bare, page):
    stage = bare("zoom=2,0.5,0.5")
    canvas = page.locator(".stage canvas")
    box = canvas.bounding_box()
    canvas.evaluate(  # a context menu received its release
        "(c, [clientX, clientY]) => c.dispatchEvent(new PointerEvent('pointerdown', { pointerId: 1, button: 2, clientX, clientY }))",
        [box["x"] + 300, box["y"] + 200],
    )
    before = stage.cell("x", 0)
    for x in (320, 380):
        page.mouse.move(box["x"] + x, box["y"] + 200)
    assert stage.cell("x", 0) == before


class Fingers:
    """Touches sent through the browser, which may scroll instead."""

    def __init__(self, page):
        self.session = page.context.new_cdp_session(page)

    def send(self, kind, *points):
        points = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@pytest.fixture
def phone_stage(phone, stages):
    """Returns a phone's page, its stage in the middle of the window, and Fingers."""
    phone.goto(f"{stages}/im2col?step=5")
    stage = Stage(phone).ready()
    phone.locator(".stage canvas").scroll_into_view_if_needed()
    return phone, stage, Fingers(phone)


def test_fingers_pinch_in_any_direction(phone_stage):
    page, stage, fingers = phone_stage
    box = page.locator(".stage canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 150
    for across, down in ((1, 0), (0, 1)):
        before = stage.cell("x", 0)["width"]
        for d in range(20, 85, 5):
            touches = [(x + n * d * across, y + n * d * down) for n in (1, -1)]
            fingers.send("touchStart" if d == 20 else "touchMove", *touches)
        fingers.send("touchEnd")
        frames(page, 3)
        assert stage.cell("x", 0)["width"] > 2.5 * before
        stage.do("fit")


def test_a_finger_scrolls_the_page_pans_a_zoomed_stage_and_pins_by_a_tap(phone_stage):
    page, stage, fingers = phone_stage

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
    cell_box = stage.cell("x", 18)
    page.touchscreen.tap(cell_box["x"] + cell_box["width"] / 2, cell_box["y"] + cell_box["height"] / 2)
    expect(stage.root).to_have_attribute("data-hover", "x:18")
    expect(stage.root).to_have_attribute("data-pinned", "")
    for _ in range(3):
        stage.root.press("z")
    top, cell = stage.root.bounding_box()["y"], stage.cell("x", 18)
    drag(-60)
    assert stage.root.bounding_box()["y"] == top
    assert stage.cell("x", 18)["y"] < cell["y"] - 40


# -- keys and focus --------------------------------------------------------------------------------
def test_focus_stays_on_the_stage_when_its_button_disappears(bare, page):
    stage = bare("zoom=2,0.5,0.5&speed=99")
    for name in ("fit", "dismiss"):
        stage.root.locator(f"[data-do={name}]").press("Enter")
        expect(stage.root.locator(f"[data-do={name}]")).to_be_hidden()
        frames(page, 2)
        assert stage.root.evaluate(FOCUSED), name


def test_the_cell_selected_by_keyboard_is_read_aloud(bare, page):
    stage = bare("step=4")

    def are_live(caption, explanation):
        expect(stage.caption).to_have_attribute("aria-live", caption)
        expect(stage.explanation).to_have_attribute("aria-live", explanation)

    stage.point_at("x", 9)
    are_live("polite", "off")  # the mouse may wander
    stage.root.press("p")
    are_live("polite", "polite")
    stage.do("play")
    are_live("off", "off")
    stage.do("play")
    stage.root.press("Escape")
    are_live("polite", "off")


def test_escape_closes_a_panel_from_its_text_field(bare, page):
    stage = bare("step=2")
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


def test_arrows_scroll_a_long_explanation(bare, page):
    page.set_viewport_size({"width": 1440, "height": 900})
    stage = bare("C=3&H=12&W=12&pin=y:0&step=9")
    explain = page.locator(".explain")
    explain.evaluate("box => { box.style.maxHeight = box.style.minHeight = box.style.flexBasis = '60px'; }")
    explain.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.activeElement.shadowRoot.querySelector('.explain').scrollTop > 0")
    stage.at_step(9)


# -- forced colours --------------------------------------------------------------------------------
def test_forced_colours_keep_distinctions_made_by_colour(bare, page):
    page.emulate_media(forced_colors="active", color_scheme="dark")
    try:
        stage = bare("order=warps&step=9")
        ground = "node => getComputedStyle(node).backgroundColor"
        for one, other in ((".code-line.lit", ".code-line:not(.lit)"), (".lane.active", ".lane:not(.active)")):
            assert page.locator(one).first.evaluate(ground) != page.locator(other).first.evaluate(ground)
        stage.do("colours")
        hues = [page.locator(f".legend .hue-{name}").evaluate(ground) for name in ("input", "filter", "output")]
        assert len(set(hues)) == 3
        assert page.locator(".scrub").evaluate("node => getComputedStyle(node).forcedColorAdjust") == "none"
        page.keyboard.press("Escape")
        page.get_by_role("button", name="options", exact=True).focus()
        page.keyboard.press("Tab")
        assert stage.root.evaluate("root => getComputedStyle(root).outlineStyle") == "solid"
    finally:
        page.emulate_media(forced_colors="none")
