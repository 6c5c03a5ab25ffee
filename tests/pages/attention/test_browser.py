"""Attention in a real browser: two changes at once, while the server's answer to the first is under way."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import HOLD, RELEASE, Stage, idle

pytestmark = pytest.mark.browser


def test_a_link_from_before_the_last_change_keeps_the_change(page, server):
    """The reader changes the numbers, and presses a kernel before the browser has its new link."""
    page.add_init_script(HOLD)
    page.goto(f"{server}/attention?causal=1")
    stage = Stage(page).ready()
    idle(page)
    link = page.get_by_role("link", name="1 naive", exact=True)
    page.get_by_role("button", name="values: whole").click()
    page.evaluate("() => { window.held = []; }")
    page.get_by_role("radio", name="large").or_(page.get_by_role("button", name="large")).first.click()
    expect(page).to_have_url(re.compile("values=large"))
    page.keyboard.press("Escape")
    page.get_by_role("button", name="kernel 4").click()
    link.click()
    page.evaluate(RELEASE)
    expect(page).to_have_url(re.compile(r"(?=.*values=large)(?=.*causal=1)(?=.*rung=naive)"))
    expect(stage.root).to_have_attribute("data-scene", re.compile("attention/naive"))
