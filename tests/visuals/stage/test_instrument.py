"""The stage as an instrument: loop, lines, zoom, cells by keyboard, panels, links to copy."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import truth
from tests.visuals.stage.test_stage import STEPS_WHILE
from visuals.conv.im2col.scene import FILE

pytestmark = pytest.mark.browser

WARPS = "order=warps"


# -- loop ------------------------------------------------------------------------------------------
def test_a_loop_repeats_its_steps(bare, page):
    stage = bare("step=4&speed=8")
    loop = page.locator("[data-do=loop]")
    expect(loop).to_have_text("loop")
    stage.do("loop")
    expect(loop).to_have_text("loop from 5 …")
    page.locator(".scrub").fill("6")
    stage.do("loop")
    expect(loop).to_have_text("loop 5–7")
    expect(page).to_have_url(re.compile("loop=4-6"))
    steps = stage.root.evaluate(STEPS_WHILE, "(steps) => steps.length > 9")
    assert set(steps) <= {3, 4, 5, 6} and steps.count(4) >= 2  # 3: before the first step of the loop
    stage.do("loop")
    expect(loop).to_have_text("loop")
    expect(page).not_to_have_url(re.compile("loop="))

    page.locator(".scrub").fill("20")
    stage.root.focus()
    for key, text in (("]", "loop 1–21"), ("[", "loop from 21 …"), ("\\", "loop")):
        page.keyboard.press(key)
        expect(loop).to_have_text(text)


# -- lines -----------------------------------------------------------------------------------------
def test_a_click_on_a_line_goes_to_its_next_step(bare, page):
    stage = bare(WARPS)
    lines = page.locator(".code-line.runs")
    expect(lines).not_to_have_count(0)
    line = int(lines.first.get_attribute("data-line"))
    stage.do("forward")
    before = stage.step
    lines.first.locator("code").click()
    expect(page.locator(".code-line.lit")).to_have_attribute("data-line", str(line))
    stage.at_step(before + 1)
    # By keyboard: the line number is a button, and L goes to the next step of the lit line.
    lines.first.get_by_role("button").press("Enter")
    stage.at_step(before + 2)
    stage.root.press("l")
    stage.at_step(before + 3)
    page.locator(".scrub").fill("17")  # the last store of this kernel
    stage.root.press("l")
    stage.at_step(0)
    assert FILE.endswith(page.locator(".file").inner_text().split()[0])
    expect(page.locator(".code-line:not(.runs)").first.get_by_role("button")).to_have_count(0)  # a line without steps


# -- zoom ------------------------------------------------------------------------------------------
WHEEL = """(canvas, [x, y, deltaY, ctrlKey]) => !canvas.dispatchEvent(
  new WheelEvent("wheel", { clientX: x, clientY: y, deltaY, ctrlKey, bubbles: true, cancelable: true }))"""


def wheel(page, cell, delta, ctrl):
    x, y = cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2
    return page.locator(".stage canvas").evaluate(WHEEL, [x, y, delta, ctrl])


def test_ctrl_wheel_zooms_at_the_mouse_and_wheel_alone_scrolls_the_page(bare, page):
    stage = bare("H=32&W=32&step=450")
    cell = stage.cell("D", 4 * 900 + 450)
    assert not wheel(page, cell, -50, False)  # scrolls the page
    assert stage.cell("D", 4 * 900 + 450) == cell
    for _ in range(8):
        assert wheel(page, cell, -50, True)
    zoomed = stage.cell("D", 4 * 900 + 450)
    assert zoomed["width"] > 10 * cell["width"]
    half_a_pixel = 0.5 * zoomed["width"] / cell["width"]  # the browser gives the mouse in whole pixels
    centre = cell["x"] + cell["width"] / 2
    assert zoomed["x"] + zoomed["width"] / 2 == pytest.approx(centre, abs=1.5 + half_a_pixel)
    expect(page).to_have_url(re.compile("zoom="))
    text = stage.point_at("D", 4 * 900 + 450)  # hover finds the cells where they are now
    assert "D[4, 450]" in text
    stage.do("fit")
    assert stage.cell("D", 4 * 900 + 450) == cell
    expect(page).not_to_have_url(re.compile("zoom="))
    expect(page.locator(".stage .fit")).to_be_hidden()


def test_dragging_pans_and_does_not_click(bare, page):
    stage = bare("zoom=4,0.5,0.5")
    index = 100
    before = stage.cell("D", index)
    box = page.locator(".stage canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y - 30, steps=6)
    page.mouse.up()
    after = stage.cell("D", index)
    assert after["x"] - before["x"] == pytest.approx(60, abs=1)
    assert after["y"] - before["y"] == pytest.approx(-30, abs=1)
    expect(stage.root).not_to_have_attribute("data-pinned", "")
    expect(page).to_have_url(re.compile("zoom=4,"))


PINCH = """canvas => {
  const box = canvas.getBoundingClientRect(), at = (id, x) => ({ pointerId: id, pointerType: "touch", bubbles: true,
    clientX: box.x + x, clientY: box.y + 100 });
  canvas.setPointerCapture = () => {};
  const send = (type, id, x) => canvas.dispatchEvent(new PointerEvent(type, at(id, x)));
  send("pointerdown", 1, 180); send("pointerdown", 2, 220);
  for (let d = 20; d <= 80; d += 10) { send("pointermove", 1, 200 - d); send("pointermove", 2, 200 + d); }
  send("pointerup", 1, 120); send("pointerup", 2, 280);
}"""


def test_pinching_with_two_fingers_zooms(bare, page):
    page.set_viewport_size({"width": 390, "height": 844})
    stage = bare()
    before = stage.cell("x", 0)
    page.locator(".stage canvas").evaluate(PINCH)
    assert stage.cell("x", 0)["width"] == pytest.approx(4 * before["width"], rel=0.05)
    expect(page).to_have_url(re.compile("zoom="))


def test_numbers_appear_as_cells_grow_and_titles_stay(bare, page):
    stage = bare("H=32&W=32&step=899")
    before_zoom = page.locator(".stage canvas").screenshot()
    stage.root.focus()
    page.keyboard.press("p")
    for _ in range(6):
        page.keyboard.press("z")
    assert stage.cell("y", 0)["width"] > 20
    assert page.locator(".stage canvas").screenshot() != before_zoom
    page.keyboard.press("0")
    expect(page.locator(".stage .fit")).to_be_hidden()


# -- cells by keyboard -----------------------------------------------------------------------------
def test_the_keyboard_moves_over_cells_and_tensors(bare, page):
    expected = truth()
    stage = bare("step=7")
    stage.root.focus()
    page.keyboard.press("p")
    expect(stage.root).to_have_attribute("data-hover", "D:7")  # what the step wrote
    for key, cell in (
        ("d", "D:8"),
        ("s", "D:44"),
        ("a", "D:43"),
        ("w", "D:7"),
        ("t", "w:0"),
        ("t", "C:0"),
        ("t", "tile_a:0"),
        ("t", "tile_b:0"),
        ("t", "sum:0"),
        ("t", "y:0"),
        ("t", "x:0"),
        ("w", "x:0"),
    ):
        page.keyboard.press(key)
        expect(stage.root).to_have_attribute("data-hover", cell)
    for _ in range(2):
        page.keyboard.press("s")
    steps = expected.steps_of(16)
    expect(stage.explanation).to_contain_text(f"{(steps <= 7).sum()} of {len(steps)} cells")
    page.keyboard.press("p")
    expect(stage.root).not_to_have_attribute("data-pinned", "")


# -- panels ----------------------------------------------------------------------------------------
def test_question_mark_opens_the_list_of_keys(bare, page):
    stage = bare()
    stage.root.press("?")
    keys = page.locator("[data-panel=help]")
    expect(keys).to_be_visible()
    for word in ("play, pause", "faster, slower", "loop", "zoom in", "pin a cell"):
        expect(keys).to_contain_text(word)
    expect(page.locator("[data-do=help]")).to_have_attribute("aria-expanded", "true")
    stage.root.press("Escape")
    expect(keys).to_be_hidden()
    stage.do("help")
    expect(keys).to_be_visible()
    stage.do("colours")  # one at a time
    expect(keys).to_be_hidden()
    expect(page.locator("[data-panel=colours]")).to_be_visible()
    page.locator("h1").click()
    expect(page.locator("[data-panel=colours]")).to_be_hidden()


def test_the_legend_explains_the_colours_in_use(bare, page):
    common = {"input", "filter", "output", "workspace", "read", "write", "ghost", "negative", "line"}
    for query, more in (
        ("order=library", {"lanes"}),
        ("pad_h=1", {"padding", "lanes", "registers-ground", "shared-ground"}),
    ):
        bare(query).do("colours")
        rows = page.locator("[data-legend]")
        shown = {row.get_attribute("data-legend") for row in rows.all() if row.is_visible()}
        assert shown - {"workspace-ground", "global-ground"} >= common | more
        assert not shown & ({"padding", "lanes", "registers-ground", "shared-ground", "workspace-ground"} - more), query


def test_links_to_copy(bare, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stage = bare("K=3&step=9")
    stage.do("link")
    for name, pattern in (
        ("link", r"/im2col\?K=3&step=9&version=3$"),
        ("iframe", r'^<iframe src="[^"]*embed=true&amp;view=watch" title="Kernel Theatre: im2col"'),
        ("slide", r'^<section>\n  <iframe data-src="[^"]*present=1"'),
    ):
        page.locator(f"[data-copy={name}]").click()
        expect(page.locator("[data-panel=link] .status")).to_have_text("Copied.")
        text = page.evaluate("navigator.clipboard.readText()")
        assert re.search(pattern, text)
        expect(page.locator(".copied")).to_have_value(text)


def test_without_a_clipboard_the_text_is_there_to_copy(bare, page):
    stage = bare("step=2")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    stage.do("link")
    page.locator("[data-copy=link]").click()
    expect(page.locator("[data-panel=link] .status")).to_contain_text("Copy the text above")
    expect(page.locator(".copied")).to_have_value(re.compile(r"step=2&version=3$"))
