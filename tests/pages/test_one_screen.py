"""In the app a lesson's stage begins where test_chapters_browser.py has it, and controls take as few lines as there are."""

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, idle, settled

pytestmark = pytest.mark.browser
IN_SIGHT = ("canvas", ".play", ".caption", ".strip-value", ".strip [data-strip=run]", ".strip-legend", ".strip-limits")
# Whether the picture is no higher than its frame, so not cut off.
IS_WHOLE = """(root) => {
  const height = (part) => root.querySelector(part).getBoundingClientRect().height;
  return height("canvas") <= height(".canvas-box") + 1;
}"""
BEGINS = {(1280, 720): 170, (1440, 900): 190, (390, 844): 155}  # px: where a stage begins, at most


def test_a_stage_begins_high_enough_to_be_on_one_screen(page, server):
    """The controls of this lesson take the most room."""
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server}/hopper?view=explore")
    stage = Stage(page).ready()
    expect(page.locator(".strip-value")).not_to_be_empty()
    for (width, height), begins in BEGINS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(IS_WHOLE, arg=stage.root.element_handle())
        for selector in IN_SIGHT if width > 390 else IN_SIGHT[:3]:
            expect(page.locator(f".stage {selector}").first).to_be_in_viewport(ratio=0.99)
        assert settled(page, stage.root.bounding_box)["y"] <= begins, width


def test_choosing_has_its_controls_in_one_line_and_folds_them_on_a_phone(page, server):
    page.goto(f"{server}/choose?view=explore")
    chip = page.locator(".st-key-controls [data-testid=stPopoverButton]").first
    field = page.get_by_label("N", exact=True)
    expect(chip).to_be_visible()
    expect(field).to_be_visible()
    idle(page)
    top, low = chip.bounding_box(), field.bounding_box()
    assert top["y"] <= low["y"] + low["height"] / 2 <= top["y"] + top["height"]
    page.set_viewport_size({"width": 390, "height": 844})
    expect(field).to_be_hidden()
    expect(page.get_by_text("Controls", exact=True)).to_be_in_viewport()
    names_end_before_the_start_of_their_lanes(page)
    a_long_chip_is_not_cut(page)


def names_end_before_the_start_of_their_lanes(page):
    lanes = page.locator("[class*=st-key-lanes_] a")
    expect(lanes.first).to_be_visible()
    crossed = lanes.evaluate_all(
        """lanes => lanes.filter((lane) => {
          const box = lane.getBoundingClientRect(), start = getComputedStyle(lane).getPropertyValue("--kt-name");
          return lane.querySelector("p").getBoundingClientRect().right > box.left + (box.width * parseFloat(start)) / 100;
        }).map((lane) => lane.textContent)"""
    )
    assert crossed == []


CUT = """chips => chips.filter((chip) => {
  const text = document.createRange();
  text.selectNodeContents(chip);
  const outer = chip.getBoundingClientRect(), inner = text.getBoundingClientRect();
  return inner.right > outer.right || inner.bottom > outer.bottom || chip.querySelector("span").scrollWidth > outer.width;
}).map((chip) => chip.textContent)"""


def a_long_chip_is_not_cut(page):
    chips = page.locator(".st-key-chips_smaller a")
    expect(chips.first).to_be_visible()
    assert chips.evaluate_all(CUT) == []
    assert chips.first.bounding_box()["height"] > 26  # two lines
