"""The choice between cards in a browser: a press changes the whole page, and other lessons keep it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from kernels.ladders import LADDERS
from tests.helpers.harness import serving
from tests.helpers.recordings import own_recordings
from tests.pages.parts.test_card_choice import OTHER, other_rows

pytestmark = pytest.mark.browser
SLOW_MS = 60_000  # the first look reads two cards


def test_a_press_changes_the_page_and_other_pages_keep_the_card(page, tmp_path):
    rows = list(other_rows(LADDERS["softmax"].rungs[-1].name))
    with own_recordings(tmp_path, other=rows), serving() as server:
        page.goto(f"{server.url}/softmax?view=explore")
        choice = page.locator(".st-key-card")
        expect(choice).to_be_visible(timeout=SLOW_MS)
        choice.get_by_text("Other, own recording").click()
        expect(page.get_by_text("recorded · Other · cold")).to_be_visible(timeout=SLOW_MS)
        expect(page).to_have_url(re.compile(f"card={OTHER}"))
        expect(page.get_by_text("recorded NVIDIA Other, cold").first).to_be_visible(timeout=SLOW_MS)
        page.get_by_role("link", name="tiling").first.click()
        expect(page).to_have_url(re.compile(rf"/tiling\?card={OTHER}"), timeout=SLOW_MS)
        page.go_back()
        expect(page.get_by_text("recorded · Other · cold")).to_be_visible(timeout=SLOW_MS)
