"""The fusion lesson in a real browser: a chain is edited by links and fields, also before the server has answered."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import HOLD, RELEASE, Stage, idle

pytestmark = pytest.mark.browser
LESSON = "fusion"


def test_chain_is_edited_by_links_and_fields_and_back_undoes_it(stage, page):
    stage = stage()
    page.get_by_role("button", name="+ block").click()
    page.get_by_role("link", name="maxpool, the largest value of each window").click()
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"bn relu maxpool:2 of "))
    expect(page).to_have_url(re.compile("chain=conv.*relu.maxpool"))
    page.keyboard.press("Escape")
    idle(page)
    page.get_by_role("button", name="conv K=2 R=3").click()
    page.get_by_role("spinbutton", name="stride", exact=True).fill("2")
    page.keyboard.press("Enter")
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3:stride=2 bias"))
    expect(page).to_have_url(re.compile("stride"))
    idle(page)
    page.go_back()
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv:K=2:R=3 bias bn relu maxpool:2 of "))


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
