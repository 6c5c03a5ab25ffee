"""Tests of the lesson on threads and memory in a browser: topic links, controls that set the URL, page width."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import TIMEOUT_MS, fits_width

pytestmark = pytest.mark.browser
LESSON = "threads"


def test_topics_are_links_that_change_the_scene(stage, page):
    stage = stage()
    expect(stage.caption).to_contain_text("Block 0, warp 0: its first thread has i = 0 × 64 + 0 = 0.")
    page.get_by_role("link", name="banks", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Banks", timeout=TIMEOUT_MS)
    expect(page).to_have_url(re.compile(r"[?&]topic=banks"))
    expect(stage.caption).to_contain_text("Bank 0 must deliver 4 words", timeout=TIMEOUT_MS)


def test_stride_sets_the_url_and_the_number_of_steps(stage, page):
    stage("topic=coalescing")
    field = page.get_by_label("stride", exact=True)
    field.fill("8")
    field.press("Enter")
    expect(page).to_have_url(re.compile(r"[?&]stride=8"), timeout=TIMEOUT_MS)
    expect(page.locator(".stage")).to_contain_text("1 / 33", timeout=TIMEOUT_MS)


@pytest.mark.slow
def test_padding_reduces_eight_wavefronts_to_one(stage):
    padded = stage("topic=banks&stride=8&row=33&step=1")
    expect(padded.caption).to_contain_text("Pass 1 of 1: 32 lanes get a word.")
    plain = stage("topic=banks&stride=8&step=8")
    expect(plain.caption).to_contain_text("Pass 8 of 8: 4 lanes get a word.")


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["threads", "divergence", "coalescing", "banks", "layout"])
def test_page_fits_its_width(stage, page, topic):
    stage(f"topic={topic}")
    expect(page.get_by_text("Levels of memory")).to_be_visible(timeout=TIMEOUT_MS)
    for width in (1440, 800, 400):
        fits_width(page, width)
