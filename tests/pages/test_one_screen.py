"""Each lesson holds its promise on one screen: picture, Play, caption, Run, a time and bytes, without scrolling."""

import re

import pytest
from playwright.sync_api import expect

from pages._lessons import LESSONS
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
SIZES = [(1280, 720), (1440, 900)]
# Whether the picture is no higher than its frame, so not cut off.
IS_WHOLE = """(root) => {
  const height = (part) => root.querySelector(part).getBoundingClientRect().height;
  return height("canvas") <= height(".canvas-box") + 1;
}"""
PATHS = [
    f"{lesson.path}?view=explore" for lesson in LESSONS if lesson.path != "choose"
]  # whose first screen is its race
CUT = "labels => labels.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
IN_SIGHT = ("canvas", ".play", ".caption", ".strip-value", ".strip [data-strip=run]", ".strip-legend", ".strip-limits")


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PATHS, "im2col?view=story&chapter=7"])
def test_time_memory_and_limits_are_in_sight_of_the_picture(page, server, path):
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/{path}")
    stage = Stage(page).ready()
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator(".strip-value")).not_to_be_empty()
        for selector in IN_SIGHT:
            expect(page.locator(f".stage {selector}").first).to_be_in_viewport(ratio=0.99)
        # After a change of the window's size it is drawn in a later frame.
        page.wait_for_function(IS_WHOLE, arg=stage.root.element_handle())
        expect(page.locator(".strip-legend")).to_contain_text(re.compile(r"\d [KMG]?B"))
        assert page.locator(".strip-label").evaluate_all(CUT) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_a_phone_shows_picture_play_and_caption_together(phone, server, path):
    phone.goto(f"{server}/{path}")
    Stage(phone).ready()
    expect(phone.locator(".strip-value")).not_to_be_empty()
    for selector in ("canvas", ".play", ".caption"):
        expect(phone.locator(f".stage {selector}")).to_be_in_viewport(ratio=0.99)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "size", "shown"),
    [
        ("im2col?view=explore", (1440, 900), True),
        ("im2col?embed=true&view=watch", (900, 600), False),
        ("tiling?view=explore&rung=double-buffer", (1440, 900), False),
        ("hopper?view=explore", (1440, 900), False),
    ],
)
def test_the_transport_is_one_line(page, server, path, size, shown):
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    page.goto(f"{server}/{path}")
    stage = Stage(page).ready()
    loop, play = stage.root.locator("[data-do=loop]"), page.locator(".stage .play")
    expect(loop).to_be_visible(visible=shown)
    expect(stage.root.locator("[data-do=more]")).to_be_visible(visible=not shown)
    assert page.locator(".stage .transport").bounding_box()["height"] <= play.bounding_box()["height"] + 24
    assert page.locator(".stage .transport").evaluate("box => box.scrollWidth <= box.clientWidth")


@pytest.mark.slow
def test_facts_share_the_last_line_of_controls(page, server):
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/winograd?view=explore")
    Stage(page).ready()
    facts = page.locator(".kt-derived").first.bounding_box()
    kernel = page.locator(".st-key-controls [data-testid=stPopoverButton]").last.bounding_box()
    assert kernel["y"] <= facts["y"] + facts["height"] / 2 <= kernel["y"] + kernel["height"]


@pytest.mark.slow
def test_a_refusal_is_one_line_that_says_why_and_what_can_run(page, server):
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/tiling?view=explore&dtype=fp16&rung=shared-tile")
    line = page.locator(".st-key-chips_legal")
    expect(line).to_contain_text("Shared-memory tile cannot run with these settings")
    reason, other, way = (
        line.locator(".kt-quiet").first,
        line.get_by_text("Kernels that can:"),
        line.get_by_role("link").first,
    )
    for part in (reason, other, way):
        expect(part).to_be_in_viewport()
    left, middle, right = (part.bounding_box() for part in (reason, other, way))
    assert left["x"] < middle["x"] < right["x"]
    assert line.bounding_box()["height"] <= 60


@pytest.mark.slow
def test_choosing_has_its_controls_in_one_line_and_folds_them_on_a_phone(page, server):
    page.goto(f"{server}/choose?view=explore")
    chip = page.locator(".st-key-controls [data-testid=stPopoverButton]").first
    field = page.get_by_label("N", exact=True)
    expect(chip).to_be_visible()
    expect(field).to_be_visible()
    top, low = chip.bounding_box(), field.bounding_box()
    assert top["y"] <= low["y"] + low["height"] / 2 <= top["y"] + top["height"]
    page.set_viewport_size({"width": 390, "height": 844})
    expect(field).to_be_hidden()
    expect(page.get_by_text("Controls", exact=True)).to_be_in_viewport()


FOUR_LINES = 100  # px of a caption: few are longer
# The height of the picture, the side of its smallest cell and the size of its titles, all in pixels.
PICTURE = """(root) => {
  const { layout, shrink, part } = root.player;
  const cells = Object.values(layout.blocks).map(({ cell }) => cell / shrink);
  return [part["canvas-box"].clientHeight, Math.min(...cells), (14 * layout.scale) / shrink];
}"""


@pytest.mark.parametrize(
    ("chapter", "most"), [("direct?view=story&chapter=1", 500), ("tiling?view=story&chapter=8", 650)]
)
def test_a_picture_of_many_cells_is_higher_on_a_phone(page, server, chapter, most):
    """With Play and its caption it fills the window, so that its cells can be seen and its titles be read."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/{chapter}")
    height, cell, title = Stage(page).ready().root.evaluate(PICTURE)
    assert height <= most and cell >= 4 and title >= 11
    top, last = (page.locator(f".stage {part}").bounding_box() for part in ("canvas", ".caption"))
    assert last["y"] + min(last["height"], FOUR_LINES) - top["y"] <= 844


def test_run_turns_the_strip_to_measured_and_a_change_makes_it_stale(page, server):
    page.goto(f"{server}/im2col?engine=cpu")
    Stage(page).ready()
    page.locator("[data-strip=run]").click()
    badge = page.locator(".strip-head .badge")
    expect(badge).to_contain_text("measured here", timeout=120_000)
    expect(page.locator("[data-strip=size-stage]")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("H", exact=True).fill("9")
    page.get_by_label("H", exact=True).press("Enter")
    expect(page.locator(".strip-stale")).to_contain_text("stale")
    expect(page.locator(".strip")).to_have_class("strip stale")


@pytest.mark.slow
def test_the_size_of_the_strip_is_in_the_url(page, server):
    page.goto(f"{server}/im2col?C=3")
    Stage(page).ready()
    own, real = (page.locator(f"[data-strip=size-{size}]") for size in ("stage", "real"))
    value = page.locator(".strip-value")
    expect(own).to_have_attribute("aria-pressed", "true")  # the reader's own shape comes first
    first = value.text_content()
    real.click()
    expect(page).to_have_url(re.compile(r"[?&]size=real"))
    page.reload()
    Stage(page).ready()
    expect(real).to_have_attribute("aria-pressed", "true")
    expect(value).not_to_have_text(first)
    own.click()  # the page's own size is not in the URL
    expect(page).to_have_url(re.compile(r"\?C=3$"))
    expect(value).to_have_text(first)


@pytest.mark.slow
def test_a_guess_is_answered_by_the_figures(page, server):
    page.goto(f"{server}/im2col?view=story&chapter=7")
    Stage(page).ready()
    reveal = page.locator(".chapter .reveal")
    expect(reveal).to_be_empty()
    page.get_by_role("button", name="Faster").press("Enter")
    expect(reveal).to_contain_text(re.compile(r"\d× the time of “direct”"))
    expect(page.locator(".answer.right")).to_contain_text("Slower")
    page.get_by_role("button", name="Next:").click()
    expect(page.locator(".chapter h2")).to_have_text("At a real size")
    expect(page.locator("[data-strip=size-real]")).to_have_attribute("aria-pressed", "true")


def test_a_chapter_that_does_not_exist_opens_the_first_with_a_note(page, server):
    page.goto(f"{server}/im2col?view=story&chapter=99")
    Stage(page).ready()
    expect(page.locator(".kt-note")).to_contain_text("chapter must be a number from 1 to 9")
    expect(page.locator(".chapter h2")).to_have_text("A window becomes a column")
