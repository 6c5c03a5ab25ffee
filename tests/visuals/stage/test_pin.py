"""Where a chapter pins a cell, pointing at another one explains that; the pinned one keeps its outline, and returns."""

import re

import pytest
from playwright.sync_api import expect

from pages.attention.backward.chapters import STORY as BACKWARD
from pages.attention.chapters import STORY as FORWARD
from tests.helpers.harness import Stage, frames

pytestmark = pytest.mark.browser
LESSONS = {"attention": FORWARD, "attention_backward": BACKWARD}
PINNED = [(lesson, n + 1) for lesson, story in LESSONS.items() for n, c in enumerate(story.chapters) if c.pin]
# Whether the picture has the colour of the pin's outline at the left edge of a cell.
OUTLINED = """
(root, [name, index]) => {
  const { player } = root, { canvas } = player.part, box = canvas.getBoundingClientRect(), at = player.cellRect(name, index), k = canvas.width / box.width;
  const write = player.theme.tokens.write.match(/\\w\\w/g).map((hex) => parseInt(hex, 16));
  const { data } = canvas.getContext("2d").getImageData(Math.floor((at.x - box.x) * k) - 2, Math.floor((at.y - box.y + at.height / 2) * k), 5, 1);
  return [0, 1, 2, 3, 4].some((p) => write.every((value, c) => Math.abs(data[4 * p + c] - value) < 12));
}
"""


def opened(page, server, lesson, number):
    page.goto(f"{server}/{lesson}?view=story&chapter={number}")
    stage = Stage(page).ready()
    name, index = LESSONS[lesson].chapters[number - 1].pin.split(":")
    expect(stage.root).to_have_attribute("data-hover", f"{name}:{index}")
    return stage, name, int(index)


def test_pointing_at_the_output_spells_out_its_mean_although_another_cell_is_pinned(page, server):
    stage, name, index = opened(page, server, "attention", 2)
    stage.root.press("End")
    pinned = stage.explanation.inner_text()
    output = stage.root.evaluate(
        "root => Object.values(root.player.scene.tensors).findLast((t) => t.role === 'output').name"
    )
    text = stage.point_at(output, 0)
    frames(page, 2)
    assert re.search(r"^\S+\[0, 0\]\n= \S+·", text), text
    assert stage.root.evaluate(OUTLINED, [output, 0]) and stage.root.evaluate(OUTLINED, [name, index])
    page.mouse.move(2, 2)
    expect(stage.root).to_have_attribute("data-hover", f"{name}:{index}")
    assert stage.explanation.inner_text() == pinned and stage.root.evaluate(OUTLINED, [name, index])
    stage.point_at(output, 0)
    stage.root.press("d")  # a key moves the pin, and explains it although the mouse rests on a cell
    expect(stage.root).to_have_attribute("data-hover", f"{name}:{index + 1}")


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "number"), PINNED)
def test_every_chapter_with_a_pin_explains_what_is_pointed_at(page, server, lesson, number):
    stage, name, index = opened(page, server, lesson, number)
    other = stage.root.evaluate(
        "(root, name) => Object.values(root.player.scene.tensors).find((t) => t.name !== name && root.player.inView.blocks[t.name].cell > 5).name",
        name,
    )
    pinned = stage.explanation.inner_text()
    assert stage.point_at(other, 0) != pinned
    page.mouse.move(2, 2)
    expect(stage.root).to_have_attribute("data-hover", f"{name}:{index}")
