"""Tests of the lesson on layers in a browser: a cold link, Play, the switch of the pass, Run, a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from pages.layers import address
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
LESSON = "layers"
BACK = {"layer": "max-pool", "pass": "backward"}


def query(params: dict[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in params.items())


@pytest.mark.slow
def test_a_cold_link_opens_the_moment_that_it_names_and_plays_to_the_end(stage):
    scene = address.card(BACK)
    last = scene.steps - 1
    at = stage(f"{query(BACK)}&step={last - 2}")
    at.at_step(last - 2)
    expect(at.caption).to_have_text(scene.caption(last - 2))
    at.do("play")
    at.at_step(last)
    expect(at.caption).to_have_text(scene.caption(last))
    assert re.search(r"= 3\b", at.point_at("dx", 6))


@pytest.mark.slow
def test_the_pass_and_the_layer_are_links_that_set_the_url(stage, page):
    at = stage("layer=max-pool&H=7&R=2&pad_h=0")
    page.get_by_role("link", name="backward", exact=True).last.click()  # the first is a lesson
    expect(at.root).to_have_attribute("data-scene", re.compile(r"^max-pool-backward/scatter N1 C1 7x5 window 2x3"))
    expect(page).to_have_url(re.compile(r"pass=backward"))
    expect(page.get_by_label("H", exact=True)).to_have_value("7")
    page.get_by_role("link", name="forward", exact=True).click()
    expect(at.root).to_have_attribute("data-scene", re.compile(r"^max-pool/window N1 C1 7x5 window 2x3"))
    page.get_by_role("button", name="layer: max pooling").click()
    page.get_by_role("link", name="bias", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Bias")
    expect(at.root).to_have_attribute("data-scene", re.compile(r"^bias/scalar N1 C3 4x5 nchw"))
    page.go_back()
    expect(at.root).to_have_attribute("data-scene", re.compile(r"^max-pool/window N1 C1 7x5"))


@pytest.mark.slow
def test_a_field_sets_the_shape_and_the_url(stage, page):
    at = stage("layer=max-pool")
    field = page.get_by_label("W", exact=True)
    field.fill("8")
    field.press("Enter")
    expect(at.root).to_have_attribute("data-scene", re.compile(r"^max-pool/window N1 C1 5x8 "))
    expect(page).to_have_url(re.compile(r"[?&]W=8"))


@pytest.mark.slow
def test_run_here_measures_on_this_processor(page, server):
    page.goto(f"{server}/layers?{query(BACK)}&engine=cpu")
    Stage(page).ready()
    page.get_by_role("button", name="Run here").click()
    expect(page.locator(".st-key-card_time")).to_contain_text("measured")


@pytest.mark.slow
@pytest.mark.parametrize(
    "params", [{"layer": "relu", "keep": "bits"}, BACK, {"layer": "cross-entropy", "pass": "step"}], ids=str
)
def test_a_phone_scrolls_only_down(phone, server, params):
    phone.goto(f"{server}/layers?{query(params)}")
    stage = Stage(phone).ready()
    expect(phone.locator(".st-key-card_time")).to_be_visible()
    assert phone.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    stage.do("forward")
    stage.at_step(1)
