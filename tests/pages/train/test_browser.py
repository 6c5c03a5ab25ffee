"""Tests of the lesson on training in a browser: a cold link, Play, a box, the chart, a training that is stopped and resumed."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from pages.train import address
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
LESSON = "train"
FAST = "network=residual&batch=300&epochs=1"


def scene(**values):
    found, _ = address.scene(address.FIELDS.defaults | values, {})
    return found


@pytest.mark.slow
def test_a_cold_link_opens_its_launch_and_plays_to_the_update(stage):
    s = scene(network="residual")
    last = s.steps - 1
    at = stage(f"network=residual&step={last - 2}")
    at.at_step(last - 2)
    expect(at.caption).to_have_text(s.caption(last - 2))
    at.do("play")
    at.at_step(last)
    expect(at.caption).to_have_text(s.caption(last))


@pytest.mark.slow
def test_a_box_explains_itself_and_the_chart_leads_to_a_launch(stage, page):
    at = stage("batch=32&step=4")
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


@pytest.mark.slow
def test_a_training_is_stopped_and_resumed_while_the_page_stays_alive(stage, page):
    at = stage("network=residual&batch=50&epochs=2")
    page.locator("[data-strip=run]").click()
    expect(page.locator(".strip-curve")).to_contain_text(re.compile(r"Step \d+ of 60, loss"))
    at.do("forward")  # the picture answers while the processor trains
    at.at_step(1)
    page.locator("[data-strip=stop]").click()
    expect(page.locator("[data-strip=run]")).to_have_text("Resume")
    expect(page.locator(".strip-curve")).to_contain_text("Resume continues bit for bit")
    page.locator("[data-strip=run]").click()
    expect(page.locator(".strip-curve")).to_contain_text("Step 60 of 60")
    expect(page.locator("[data-strip=run]")).to_have_text("Train")
    points = page.locator(".strip-curve .curve-write").first.get_attribute("points")
    assert len(points.split()) == 60
    at.at_step(1)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 1280])
def test_no_box_leaves_the_picture_and_none_covers_another(stage, page, width):
    page.set_viewport_size({"width": width, "height": 720})
    at = stage("network=residual")
    overlaps = """stage => { const { boxes, chart } = stage.player.inView.diagram, { width, height } = stage.player.layout;
      const out = boxes.filter((b) => b.x < 0 || b.y < 0 || b.x + b.w > width || b.y + b.h > chart.y);
      const hit = (a, b) => a.x + a.w > b.x + 0.5 && b.x + b.w > a.x + 0.5 && a.y + a.h > b.y + 0.5 && b.y + b.h > a.y + 0.5;
      return out.length + boxes.filter((a, n) => boxes.slice(n + 1).some((b) => hit(a, b))).length + Number(chart.y + chart.h > height); }"""
    assert at.root.evaluate(overlaps) == 0


@pytest.mark.slow
def test_a_phone_shows_the_curve_of_a_training(phone, server):
    phone.goto(f"{server}/train?view=explore&{FAST}")
    Stage(phone).ready()
    expect(phone.locator(".strip-curve svg")).to_have_count(1)
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_the_step_can_be_taken_away_as_picture_data_and_page(stage, page, tmp_path):
    at = stage("batch=32&step=20")
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
