"""What ?hide= leaves out gives its place to the picture, on a story page, in Explore and in a frame."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import settled
from visuals import stage as stage_module

pytestmark = pytest.mark.browser
LARGE = ["kernel", "explain", "transport", "caption", "readings", "strip"]  # the parts that have rows or columns
NAMES = re.search(r'HIDEABLE = "([^"]*)"', (stage_module.HERE / "link.js").read_text("utf-8"))[1].split()
SIZES = {(1440, 900): NAMES, (1280, 720): LARGE, (390, 844): LARGE}
# For each set of names: whether the picture has at least its height and width, and what is outside the stage or the page.
OFFENDERS = """
async (root, names) => {
  const { player } = root, frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const parts = [...root.querySelectorAll(".body > *, canvas, .readings, .caption")];
  const boxes = async (hide) => {
    root.dataset.hide = hide.join(" ");
    player.arrange();
    await frame();
    const { left, right, bottom } = root.getBoundingClientRect();
    const outside = parts.filter((part) => {
      const box = part.getBoundingClientRect();
      return box.width && box.height && (box.left < left - 1 || box.right > right + 1 || box.bottom > bottom + 1);
    });
    const picture = root.querySelector(".canvas-box").getBoundingClientRect();
    return { picture, outside: outside.map((part) => part.className || part.tagName), wide: document.documentElement.scrollWidth > innerWidth };
  };
  const { picture: whole } = await boxes([]), found = [];
  const sets = [...names.flatMap((a, n) => [[a], ...names.slice(n + 1).map((b) => [a, b])]), ["kernel", "explain", "readings"], names.filter((n) => n !== "readings"), names];
  for (const hide of sets) {
    const { picture, outside, wide } = await boxes(hide);
    if (!(picture.height >= whole.height - 1 && picture.height > 100 && picture.width >= whole.width - 1) || outside.length || wide)
      found.push([hide.join(), Math.round(picture.width), Math.round(picture.height), ...outside, wide ? "the page scrolls" : ""]);
  }
  root.dataset.hide = "";
  return found;
}
"""


@pytest.mark.parametrize("where", ["view=story&chapter=3", "view=explore", "embed=true&view=watch"])
def test_no_part_that_is_hidden_takes_height_from_the_picture(stage, page, where):
    found = []
    root = stage(where).root
    for (width, height), names in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        settled(page, root.locator(".canvas-box").bounding_box)
        found += [(width, *one) for one in root.evaluate(OFFENDERS, names)]
    assert found == []


@pytest.mark.parametrize("where", ["view=story&chapter=3", "view=explore"])
def test_without_kernel_and_explanation_the_picture_has_the_whole_width(stage, page, where):
    root = stage(f"{where}&hide=kernel,explain").root
    picture, readings, strip = (
        page.locator(f".stage {part}").bounding_box() for part in (".canvas-box", ".readings", ".strip")
    )
    box = root.bounding_box()
    chapter = page.locator(".chapter").bounding_box() if "story" in where else {"width": 0}
    assert picture["width"] > box["width"] - chapter["width"] - 4 and picture["height"] > 300
    assert readings["y"] >= picture["y"] + picture["height"] and strip["width"] > box["width"] - 4
    assert readings["x"] + readings["width"] <= box["x"] + box["width"]
    expect(page.locator(".stage .kernel")).to_be_hidden()


def test_every_name_is_in_the_readme():
    row = next(
        line
        for line in (stage_module.HERE.parents[1] / "README.md").read_text("utf-8").splitlines()
        if "hide=" in line and line.startswith("|")
    )
    assert re.findall(r"`(\w+)`", row.split("leaves out")[1]) == NAMES
