"""Tests of the lesson on convolution backward in a real browser: cold link, play, gradients, Run, phone."""

import re

import pytest
from playwright.sync_api import expect

from pages.conv.backward import address
from pages.conv.backward.chapters import CHAPTERS
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
LESSON = "backward"
RUN_MS = 60_000


def test_a_cold_link_shows_its_step_and_its_counts(watch):
    stage, scene = watch("rung=gemm-atomics&step=6"), address.card({"rung": "gemm-atomics"})
    expect(stage.caption).to_have_text(scene.caption(6))
    added, shared = (int(reading.values[6]) for reading in scene.readings)
    expect(stage.root).to_contain_text(f"atomic additions {added}")
    expect(stage.root).to_contain_text(f"of them to a pixel that already had one {shared}")
    additions = int(scene.cells("adds")[7])
    text = stage.point_at("dx", 7)
    assert f"This pixel is in {additions} windows." in text and "their additions collide" in text


@pytest.mark.slow
def test_play_reaches_the_last_step(watch):
    stage, scene = (
        watch("gradient=filters&rung=implicit-gemm"),
        address.card({"gradient": "filters", "rung": "implicit-gemm"}),
    )
    stage.at_step(0)
    stage.do("play")
    stage.at_step(scene.steps - 1)
    expect(stage.caption).to_have_text(scene.caption(scene.steps - 1))


@pytest.mark.slow
def test_another_gradient_keeps_the_convolution_and_back_returns(stage, page):
    stage = stage("H=7&rung=gemm-gather")
    expect(stage.root).to_have_attribute("data-scene", re.compile("conv-dinput/gemm-gather .*H=7"))
    tab = page.get_by_role("tab", name="23_col2im_gather.cu")
    expect(tab).to_have_attribute("aria-selected", "true")
    page.get_by_role("link", name="filters", exact=True).click()
    expect(page).to_have_url(re.compile("gradient=filters"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("conv-dweight/direct .*H=7"))
    page.get_by_role("link", name="transposed", exact=True).click()
    expect(page).to_have_url(re.compile("gradient=transposed"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("conv-transpose/direct .*H=7"))
    page.go_back()
    expect(page).to_have_url(re.compile("gradient=filters"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("conv-dweight/direct .*H=7"))


@pytest.mark.slow
def test_a_preset_keeps_the_kernel_and_the_page_says_that_the_stage_is_smaller(stage, page):
    stage = stage("rung=gemm-atomics")
    page.get_by_role("button", name="Toy, stride 2", exact=True).click()
    page.get_by_role("link", name="res3 3×3", exact=True).click()
    expect(stage.root).to_have_attribute("data-scene", re.compile("conv-dinput/gemm-atomics .*C=2,H=8"))
    expect(page.locator(".kt-note")).to_contain_text("N2 C2 8x8 K2 3x3 pad 1")
    expect(page).to_have_url(re.compile("K=128"))


@pytest.mark.slow
def test_a_run_measures_the_kernels_on_this_processor(stage, page):
    stage("engine=cpu&gradient=transposed")
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_time")
    expect(card.locator(".kt-badge-measured").first).to_be_visible(timeout=RUN_MS)
    expect(page.get_by_role("button", name="Run here")).to_be_visible()


@pytest.mark.slow
def test_a_phone_shows_the_stage_and_the_story_without_scrolling_sideways(phone, server):
    for query in ("gradient=input&step=9", "view=story&chapter=4"):
        phone.goto(f"{server}/backward?{query}")
        Stage(phone).ready()
        expect(phone.locator(".stage canvas")).to_be_visible()
        expect(phone.get_by_test_id("stCode").or_(phone.locator(".strip")).first).to_be_visible()
        assert phone.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    expect(phone.get_by_text(CHAPTERS[3].title, exact=True).first).to_be_visible()
