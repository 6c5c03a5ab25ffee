"""What ?hide= leaves out gives its place to the picture, on a story page, in Explore and in a frame."""

import re

import pytest
from playwright.sync_api import expect

from visuals import stage as stage_module

# The parts that have rows or columns. The others are controls in a line: none changes what two others do together.
LARGE = ["kernel", "explain", "transport", "caption", "readings", "strip"]
NAMES = re.search(r'HIDEABLE = "([^"]*)"', (stage_module.HERE / "link.js").read_text("utf-8"))[1].split()
SIZES = ((1440, 900), (1280, 720), (390, 844))
# For each set of names: whether they are hidden, the picture has at least its height and width, and what is outside the
# stage or the page.
OFFENDERS = """
async (root, [names, large, width]) => {
  do await new Promise(requestAnimationFrame); while (innerWidth !== width);
  const { player } = root;
  const parts = [...root.querySelectorAll(".body > *, canvas, .readings, .caption")];
  const boxes = (hide) => {
    root.dataset.hide = hide.join(" ");
    for (let n = 0; n < 2; n++) player.arrange(); // again at the height that the first one gave
    const { left, right, bottom } = root.getBoundingClientRect();
    const outside = parts.filter((part) => {
      const box = part.getBoundingClientRect();
      return box.width && box.height && (box.left < left - 1 || box.right > right + 1 || box.bottom > bottom + 1);
    });
    const picture = root.querySelector(".canvas-box").getBoundingClientRect();
    const left_in = hide.filter((name) => [...root.querySelectorAll(`.${name === "steps" ? "step" : name}`)].some((part) => part.getClientRects().length));
    return { picture, outside: [...outside.map((part) => part.className || part.tagName), ...left_in.map((name) => `${name} is shown`)], wide: document.documentElement.scrollWidth > innerWidth };
  };
  const { picture: whole } = boxes([]), found = [];
  const pairs = large.flatMap((a, n) => large.slice(n + 1).map((b) => [a, b]));
  const sets = [...names.map((name) => [name]), ...pairs, ["kernel", "explain", "readings"], names.filter((n) => n !== "readings"), names];
  for (const hide of sets) {
    const { picture, outside, wide } = boxes(hide);
    if (!(picture.height >= whole.height - 1 && picture.height > 100 && picture.width >= whole.width - 1) || outside.length || wide)
      found.push([hide.join(), Math.round(picture.width), Math.round(picture.height), ...outside, wide ? "the page scrolls" : ""]);
  }
  root.dataset.hide = "";
  return found;
}
"""


@pytest.mark.browser
@pytest.mark.parametrize("where", ["view=story&chapter=3", "view=explore", "embed=true&view=watch"])
def test_no_part_that_is_hidden_takes_height_from_the_picture(bare, page, where):
    root, found = bare(where).root, []
    for width, height in SIZES if "explore" in where else SIZES[::2]:
        page.set_viewport_size({"width": width, "height": height})
        found += [(width, *one) for one in root.evaluate(OFFENDERS, [NAMES if width == 1440 else LARGE, LARGE, width])]
    assert found == []


@pytest.mark.browser
@pytest.mark.parametrize("where", ["view=story&chapter=3", "view=explore"])
def test_without_kernel_and_explanation_the_picture_has_the_whole_width(bare, page, where):
    root = bare(f"{where}&hide=kernel,explain").root
    picture, readings, strip = (
        page.locator(f".stage {part}").bounding_box() for part in (".canvas-box", ".readings", ".strip")
    )
    box = root.bounding_box()
    chapter = page.locator(".chapter").bounding_box() if "story" in where else {"width": 0}
    assert picture["width"] > box["width"] - chapter["width"] - 4 and picture["height"] > 300
    assert readings["y"] >= picture["y"] + picture["height"] and strip["width"] > box["width"] - 4
    assert readings["x"] + readings["width"] <= box["x"] + box["width"]
    expect(page.locator(".stage .kernel")).to_be_hidden()


@pytest.mark.browser
def test_hide_in_the_url_hides_and_keys_still_work(bare, page):
    stage = bare("hide=transport,caption&step=3")
    for part in (".transport", ".caption"):
        expect(page.locator(f".stage {part}")).to_be_hidden()
    stage.root.press("ArrowRight")
    stage.at_step(4)


def test_every_name_is_in_the_readme():
    row = next(
        line
        for line in (stage_module.HERE.parents[1] / "README.md").read_text("utf-8").splitlines()
        if "hide=" in line and line.startswith("|")
    )
    assert re.findall(r"`(\w+)`", row.split("leaves out")[1]) == NAMES
