"""Tests of the lesson on parallel training in a browser: a cold link plays to its end, a comparison shows its result."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from pages.parallel import address

pytestmark = pytest.mark.browser
LESSON = "parallel"


def scene(**values):
    found, _ = address.scene(address.FIELDS.defaults | values)
    return found


@pytest.mark.slow
def test_a_cold_link_opens_its_moment_and_plays_to_the_update(stage):
    s = scene(network="lenet5", gpus=2)
    last = s.steps - 1
    at = stage(f"network=lenet5&gpus=2&step={last - 2}")
    at.at_step(last - 2)
    expect(at.caption).to_have_text(s.caption(last - 2))
    at.do("play")
    at.at_step(last)
    expect(at.caption).to_have_text(s.caption(last))


@pytest.mark.slow
def test_compare_shows_how_far_the_gpus_are_from_one(stage, page):
    stage("network=lenet5&way=1f1b&gpus=2")
    page.locator("[data-strip=run]").click()
    expect(page.locator(".strip-note")).to_have_text("a step in parts, bit by bit")
    expect(page.locator(".strip-curve")).to_contain_text("10,000 GPUs")
