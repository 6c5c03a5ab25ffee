"""Where a chapter pins a cell, pointing at another one explains that; the pinned one keeps its outline, and returns."""

import re

import pytest
from playwright.sync_api import expect

from pages.attention.backward.chapters import STORY as BACKWARD
from pages.attention.chapters import STORY as FORWARD
from tests.helpers.bare import message_of
from tests.helpers.harness import frames
from tests.helpers.page_runner import head_of

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

# The name of another tensor whose cells are large enough to point at.
LARGE_ENOUGH = """
(root, name) => Object.values(root.player.scene.tensors).find((t) => t.name !== name && root.player.inView.blocks[t.name].cell > 5).name
"""


def opened(bare, lesson, number):
    stage = bare(f"view=story&chapter={number}", lesson)
    name, index = LESSONS[lesson].chapters[number - 1].pin.split(":")
    expect(stage.root).to_have_attribute("data-hover", f"{name}:{index}")
    return stage, name, int(index)


@pytest.mark.browser
def test_pointing_at_the_output_spells_out_its_mean_although_another_cell_is_pinned(bare, page):
    stage, name, index = opened(bare, "attention", 2)
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


def test_every_pin_is_a_cell_of_its_chapter_s_scene():
    for lesson, number in PINNED:
        head = head_of(message_of(lesson, view="story", chapter=str(number)))
        name, index = head["chapter"]["pin"].split(":")
        (tensor,) = (one for one in head["meta"]["tensors"] if one["name"] == name)
        assert int(index) < tensor["planes"] * tensor["rows"] * tensor["cols"], (lesson, number)


@pytest.mark.browser
def test_chapters_with_a_pin_explain_what_is_pointed_at(bare, page):
    for lesson, number in {lesson: (lesson, number) for lesson, number in PINNED}.values():  # one of each lesson
        stage, name, index = opened(bare, lesson, number)
        other = stage.root.evaluate(LARGE_ENOUGH, name)
        pinned = stage.explanation.inner_text()
        assert stage.point_at(other, 0) != pinned
        page.mouse.move(2, 2)
        expect(stage.root).to_have_attribute("data-hover", f"{name}:{index}")
