"""The lesson on Hopper in a real browser: a shape that no kernel runs."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, answered

pytestmark = pytest.mark.browser


def test_a_shape_that_no_kernel_runs_ends_playing_until_another_does(page, server):
    """The `page` fixture reports exceptions: the player had no scene whose steps it could count."""
    page.goto(f"{server}/hopper?view=explore&rung=wgmma-ring")
    stage = Stage(page).ready()
    stage.do("play")
    K = page.locator(".st-key-params").get_by_role("spinbutton", name="K", exact=True)
    K.fill("65")
    K.press("Enter")
    expect(page.get_by_text("K % 8 == 0, got 65 % 8")).to_be_visible()
    expect(page.locator(".stage.strip-only")).to_be_visible()
    answered(page, "K=65")
    K.fill("128")
    K.press("Enter")
    stage = Stage(page).ready()
    expect(stage.caption).to_be_visible()
    stage.do("forward")
    expect(page).to_have_url(re.compile("step="))
