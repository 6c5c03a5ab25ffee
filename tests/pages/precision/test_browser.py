"""Tests of the lesson on precision in a browser: a cold link, Play, a typed number, a topic, a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from pages.precision import address
from tests.helpers.harness import Stage

pytestmark = pytest.mark.browser
LESSON = "precision"


@pytest.mark.slow
def test_a_cold_link_opens_the_moment_that_it_names_and_plays_to_the_end(stage):
    scene = address.card({"topic": "gradients"})
    last = scene.steps - 1
    at = stage(f"topic=gradients&step={last - 2}")
    at.at_step(last - 2)
    expect(at.caption).to_have_text(scene.caption(last - 2))
    at.do("play")
    at.at_step(last)
    expect(at.caption).to_have_text(scene.caption(last))


@pytest.mark.slow
def test_a_typed_number_is_stored_bit_by_bit(stage, page):
    at = stage("topic=bits")
    field = page.get_by_label("x", exact=True)
    field.fill("2049")
    field.press("Enter")
    expect(at.root).to_have_attribute("data-scene", "bits FP16 2049.0")
    expect(page).to_have_url(re.compile(r"[?&]x=2049"))
    for _ in range(4):
        at.do("forward")
    at.at_step(4)
    expect(at.caption).to_have_text("Stored is 2048. The error is −1, that is 0.0488 % of x.")


@pytest.mark.slow
def test_a_topic_is_a_link_that_sets_the_url(stage, page):
    at = stage("topic=bits&format=BF16&x=3")
    page.get_by_role("link", name="INT8", exact=True).click()
    expect(at.root).to_have_attribute("data-scene", "int8 fc2 3 tensor")
    expect(page).to_have_url(re.compile(r"topic=int8"))
    page.go_back()
    expect(at.root).to_have_attribute("data-scene", "bits BF16 3.0")


@pytest.mark.slow
@pytest.mark.parametrize("topic", address.TITLES)
def test_a_phone_scrolls_only_down(phone, server, topic):
    phone.goto(f"{server}/precision?topic={topic}")
    stage = Stage(phone).ready()
    expect(phone.locator(".st-key-card_precision_0")).to_be_visible()
    assert phone.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    stage.do("forward")
    stage.at_step(1)
