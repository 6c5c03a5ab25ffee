"""The fusion lesson in a real browser: a field of a chain changes before the server has answered."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import HOLD, RELEASE, Stage, idle

pytestmark = pytest.mark.browser
LESSON = "fusion"


def test_an_option_is_kept_while_the_server_answers_late(page, server):
    page.add_init_script(HOLD)
    page.goto(f"{server}/fusion?N=2")
    stage = Stage(page).ready()
    idle(page)
    page.get_by_role("button", name="conv K=2 R=3").click()
    stride = page.get_by_role("spinbutton", name="stride", exact=True)
    stride.fill("2")
    page.evaluate("() => { window.held = []; window.sent = 0; }")
    stride.press("Enter")
    page.wait_for_function("sent >= 1 && held.length >= 1")
    page.keyboard.press("Escape")
    page.evaluate(RELEASE)
    for _ in range(2):  # also once the page is at rest
        expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3:stride=2 bias"))
        expect(page).to_have_url(re.compile(r"(?=.*\bN=2\b)(?=.*stride)"))
        idle(page)
