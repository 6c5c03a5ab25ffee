"""Downloads of the stage: each file is downloaded as a reader would, opened, and compared with the scene."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.helpers.harness import PADDED, Stage, faster, query, truth
from visuals.palette import LIGHT
from visuals.stage.routes import LAST_FRAME_EXTRA_MS

pytestmark = pytest.mark.browser

STEP = 7
TAKE_MS = 240_000  # a GIF of 300 frames takes 20 s on an idle machine
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def take(page, tmp_path):
    """Returns a function that downloads the file of a menu button and returns its path."""

    def download(kind):
        if not page.locator("[data-panel=take]").is_visible():
            Stage(page).do("take")
        with page.expect_download(timeout=TAKE_MS) as started:
            page.locator(f"[data-take={kind}]").click()
        path = tmp_path / started.value.suggested_filename
        started.value.save_as(path)
        return path

    return download


def menu_message(page):
    return page.locator("[data-panel=take] .status")


# -- the menu --------------------------------------------------------------------------------------
def test_nothing_is_loaded_before_a_download_which_leaves_the_stage_unchanged(bare, page, take):
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    stage = bare(f"step={STEP}")
    page.locator("[data-do=take]").press("Enter")
    assert not [url for url in urls if "takeaway" in url]
    with page.expect_download() as started:  # by keyboard
        page.locator("[data-take=svg]").press("Enter")
    assert started.value.suggested_filename == "im2col-step-8.svg"
    stage.at_step(STEP)
    assert [url.split("/stage/")[1] for url in urls if "takeaway" in url] == ["takeaway.js"]
    take("json")
    expect(menu_message(page)).to_contain_text("im2col.json")
    page.keyboard.press("Escape")
    expect(page.locator("[data-panel=take]")).to_be_hidden()


# -- pictures --------------------------------------------------------------------------------------
def test_a_png_has_twice_the_resolution_and_the_caption_below(bare, page, take):
    stage = bare(f"step={STEP}")
    cell, canvas = stage.cell("D", STEP), page.locator(".stage canvas").bounding_box()
    path = take("png")
    assert path.name == "im2col-step-8.png"
    with Image.open(path) as image:
        width, height = image.size
        pixels = np.asarray(image.convert("RGB"), int)
    assert width == 2 * round(canvas["width"]) and height > 2 * canvas["height"] + 80
    canvas_pixel = page.locator(".stage canvas").evaluate(
        "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x * canvas.width, y * canvas.height, 1, 1).data].slice(0, 3)",
        [
            (cell["x"] + 4 - canvas["x"]) / canvas["width"],
            (cell["y"] + cell["height"] - 5 - canvas["y"]) / canvas["height"],
        ],
    )
    position = (round(2 * (cell["y"] + cell["height"] - 5 - canvas["y"])), round(2 * (cell["x"] + 4 - canvas["x"])))
    assert np.abs(pixels[position] - canvas_pixel).max() <= 2
    below = pixels[round(2 * canvas["height"]) + 4 :]
    for role in ("ground", "ink", "dim", "input", "workspace", "output"):
        assert (np.abs(below - rgb(LIGHT[role])).max(axis=2) <= 4).any(), role


def rgb(colour):
    return [int(colour[k : k + 2], 16) for k in (1, 3, 5)]


@pytest.mark.parametrize("params", [PADDED, {"H": "32", "W": "32"}], ids=["padded", "900 columns"])
def test_an_svg_has_every_cell_and_word(bare, take, params):
    scene = truth(**params).scene
    bare(query(params | {"step": STEP}))
    drawing = ElementTree.parse(take("svg")).getroot()
    assert drawing.find(f"{SVG}title").text == f"im2col, step {STEP + 1} of {scene.steps:,}"
    assert drawing.find(f"{SVG}desc").text == scene.caption(STEP)
    texts = [element.text for element in drawing.iter(f"{SVG}text")]
    assert {tensor.title for tensor in scene.tensors} <= set(texts)
    words = " ".join(texts[texts.index("im2col") + 2 :])
    caption = re.sub(r"\s", "", scene.caption(STEP))
    strip = re.sub(r"\s", "", words).removeprefix(caption)
    assert strip != re.sub(r"\s", "", words) and "Memory" in strip and "Whatlimitsit" in strip
    # Neighbours of one colour may be merged into one rectangle, so the test does not count rectangles.
    width, height = float(drawing.get("width")), float(drawing.get("height"))
    boxes = [box for element in drawing.iter() for box in rectangles(element)]
    assert len(boxes) > 100
    assert all(x >= -3 and x + w <= width + 3 and y >= -3 and y + h <= height + 3 for x, y, w, h in boxes)
    assert not [element for element in drawing.iter() if element.tag.endswith(("image", "script", "foreignObject"))]


def rectangles(element):
    if element.tag == f"{SVG}rect":
        yield tuple(float(element.get(name)) for name in ("x", "y", "width", "height"))
    for left, top, right, bottom in re.findall(
        r"M([-\d.]+) ([-\d.]+)H([-\d.]+)V([-\d.]+)H[-\d.]+Z", element.get("d", "")
    ):
        yield float(left), float(top), float(right) - float(left), float(bottom) - float(top)


# -- moving pictures -------------------------------------------------------------------------------
def gif_of(path):
    """Returns the frames of a GIF, int[height, width, 3], and their times in ms."""
    with Image.open(path) as image:
        assert (image.format, image.info["loop"]) == ("GIF", 0)
        frames, durations = [], []
        for k in range(image.n_frames):
            image.seek(k)
            durations.append(image.info["duration"])
            frames.append(np.asarray(image.convert("RGB"), int))
    return frames, durations


def test_a_gif_has_a_frame_for_each_step_of_the_loop(bare, page, take):
    """Which steps have a frame without a loop: tests/node/takeaway.test.js."""
    page.set_viewport_size({"width": 480, "height": 600})
    stage = bare("H=3&W=4&loop=1-3&step=2&speed=8")
    path = take("gif")
    assert path.name == "im2col-2-4.gif"
    frames, durations = gif_of(path)
    assert len(frames) == 3
    frame_ms = round(stage.root.evaluate("root => root.player.msPerStep"))
    assert all(abs(ms - frame_ms) <= 10 for ms in durations[:-1])  # a GIF has hundredths of a second
    assert abs(durations[-1] - durations[0] - LAST_FRAME_EXTRA_MS) <= 10
    assert (np.abs(frames[0] - frames[-1]).max(axis=2) > 20).mean() > 0.01


def test_a_video_plays_the_loop(bare, page, take):
    page.set_viewport_size({"width": 640, "height": 700})
    bare("loop=3-9&speed=8")
    path = take("video")
    assert path.stem == "im2col-4-10"
    head = path.read_bytes()[:16]
    assert head[4:8] == b"ftyp" if path.suffix == ".mp4" else head[:4] == b"\x1a\x45\xdf\xa3"
    assert path.stat().st_size > 20_000


# -- data ------------------------------------------------------------------------------------------
def test_the_json_equals_the_scene(bare, take):
    scene = truth(**PADDED).scene
    bare(query(PADDED))
    data = json.loads(take("json").read_text(encoding="utf-8"))
    assert (data["format"], data["version"], data["key"]) == ("kernel-theatre scene", scene.version, scene.key)
    assert data["captions"] == [scene.caption(t) for t in range(scene.steps)]
    for tensor, other in zip(scene.tensors, data["tensors"], strict=True):
        assert (tensor.name, tensor.planes, tensor.rows, tensor.cols) == tuple(
            other[name] for name in ("name", "planes", "rows", "cols")
        )
        check_equal(tensor.values, other["values"])
    for write, other in zip(scene.writes, data["writes"], strict=True):
        assert (write.target, write.source) == (other["target"], other["source"])
        for name in ("steps", "cells", "values", "index"):
            check_equal(getattr(write, name), other[name])
    for read, other in zip(scene.reads, data["reads"], strict=True):
        check_equal(read.start, other["start"])
        check_equal(read.cells, other["cells"])
    for reading, other in zip(scene.readings, data["readings"], strict=True):
        check_equal(reading.values, other["values"])
    check_equal(scene.source.lines, data["source"]["lines"])


def check_equal(array, data):
    if array is None:
        assert data is None
    elif np.asarray(array).dtype.kind == "f":
        np.testing.assert_array_equal(np.ravel(array).astype("f4"), np.array(data, "f4"))
    else:
        np.testing.assert_array_equal(np.ravel(array), data)


# -- standalone page -------------------------------------------------------------------------------
def test_the_page_plays_from_a_file_without_a_network(bare, take, new_page):
    bare(f"{query(PADDED)}&step={STEP}")
    path, scene = take("html"), truth(**PADDED).scene
    assert path.name == "im2col.html"
    page = new_page(offline=True, color_scheme="dark")
    urls = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto(path.as_uri())
    stage = Stage(page).ready()
    expect(page).to_have_title("im2col · Kernel Theatre")
    expect(page.get_by_text("Made with Kernel Theatre")).to_be_visible()
    expect(stage.root).to_have_attribute("data-theme", "dark")
    expect(stage.root).to_have_attribute("data-scene", scene.key)
    stage.at_step(STEP)
    expect(stage.caption).to_have_text(scene.caption(STEP))
    stage.do("forward")
    stage.at_step(STEP + 1)
    assert scene.tensor("x").symbol in stage.point_at("x", 8)
    faster(stage)
    stage.do("play")
    stage.playing(True)
    expect(stage.root).not_to_have_attribute("data-step", str(STEP + 1))
    stage.do("play")
    stage.playing(False)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(stage.root).to_have_attribute("data-theme", scheme)
    # Downloads that need no server work here too; the others are hidden.
    stage.do("take")
    with page.expect_download() as started:
        page.locator("[data-take=svg]").click()
    assert started.value.suggested_filename.startswith("im2col-step-")
    for selector in ("[data-take=gif]", "[data-take=html]", "[data-do=link]"):
        expect(page.locator(selector)).to_be_hidden()
    assert [url for url in urls if not url.startswith(("data:", "blob:"))] == urls[:1] == [path.as_uri()]


def test_the_template_alone_says_that_it_has_no_scene(page, stages):
    page.goto(f"{stages}/stage/standalone.html")
    expect(page.get_by_role("alert")).to_contain_text("This scene cannot be shown")
