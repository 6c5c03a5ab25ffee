"""The softmax lesson in a real browser: a row of the reader's own numbers."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import idle

pytestmark = pytest.mark.browser
LESSON = "softmax"


def test_custom_numbers_are_played_and_kept_in_the_url(stage, page):
    stage = stage("logits=own+numbers&rung=three-pass")
    field = page.get_by_label("your row")
    field.fill("1 2 nonsense")
    field.press("Enter")
    expect(page.locator(".kt-note")).to_contain_text("“nonsense” is not a number")
    idle(page)
    field.fill("3 -inf 100")
    field.press("Enter")
    expect(page.locator(".kt-note")).to_have_count(0)
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"softmax/three-pass BLOCK=8 3:"))
    expect(page).to_have_url(re.compile("numbers=3"))
    card = page.locator(".st-key-card_softmax_row")
    expect(card).to_contain_text("NaN in 1 of 3")
    page.reload()
    expect(page.get_by_label("your row")).to_have_value("3 -inf 100")
