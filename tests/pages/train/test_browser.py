"""The lesson on training in a browser: the chart leads to a launch, a training is stopped, a step is taken away."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from pages.train import address
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
LESSON = "train"


def scene(**values):
    found, _ = address.scene(address.FIELDS.defaults | values, {})
    return found


def test_a_box_explains_itself_and_the_chart_leads_to_a_launch(bare, page):
    at = bare("view=watch&batch=32&step=4", LESSON)
    places = """stage => ({ chart: stage.player.inView.diagram.chart, box: stage.player.inView.diagram.boxes.find((b) => b.lines[0] === "conv2"),
      shrink: stage.player.shrink })"""
    found = at.root.evaluate(places)
    canvas = page.locator(".stage canvas").bounding_box()
    box, shrink = found["box"], found["shrink"]
    page.mouse.move(canvas["x"] + (box["x"] + box["w"] / 2) / shrink, canvas["y"] + (box["y"] + box["h"] / 2) / shrink)
    expect(page.locator(".explanation")).to_contain_text("conv2: implicit GEMM. 1 launch: implicit_gemm.")
    chart = found["chart"]
    page.mouse.click(
        canvas["x"] + (chart["x"] + 0.999 * chart["w"]) / shrink, canvas["y"] + (chart["y"] + chart["h"] / 2) / shrink
    )
    at.at_step(scene(batch=32).steps - 1)
    expect(page).to_have_url(re.compile(r"step=43"))


def test_a_training_is_stopped_while_the_page_stays_alive(stage, page):
    at = stage("network=residual&batch=50&epochs=20")
    page.locator("[data-strip=run]").click()
    expect(page.locator(".strip-curve")).to_contain_text(re.compile(r"Step \d+ of 600, loss"))
    at.do("forward")  # the picture answers while the processor trains
    at.at_step(1)
    page.locator("[data-strip=stop]").click()
    expect(page.locator("[data-strip=run]")).to_have_text("Resume")
    expect(page.locator(".strip-curve")).to_contain_text("Resume continues bit for bit")
    expect(page.locator(".strip-curve .curve-write").first).to_have_attribute("points", re.compile(r"\d"))
    at.at_step(1)


def test_the_step_can_be_taken_away_as_picture_data_and_page(bare, page, tmp_path):
    at = bare("view=watch&batch=32&step=20", LESSON)
    at.do("take")
    for kind in ("svg", "png", "json", "html"):
        with page.expect_download() as started:
            page.locator(f"[data-take={kind}]").click()
        path = tmp_path / started.value.suggested_filename
        started.value.save_as(path)
        assert path.stat().st_size > 5_000, kind
        if kind == "svg":
            text = path.read_text("utf-8")
            assert "conv1" in text and "optimiser state" in text and "max_patch" not in text
            assert "It learns" in text and text.count("stroke-dasharray") >= 2  # the recorded loss and accuracy
    page.goto(path.as_uri())
    offline = Stage(page)
    offline.ready()
    offline.at_step(20)
    expect(page.locator(".strip-curve .curve-faint")).to_have_count(2)
    offline.do("forward")
    offline.at_step(21)
    expect(offline.caption).to_have_text(scene(batch=32).caption(21))
