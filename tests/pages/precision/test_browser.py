"""The lesson on precision in a browser: a typed number, a topic, Back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import answered

pytestmark = pytest.mark.browser
LESSON = "precision"


def test_a_typed_number_is_stored_bit_by_bit_and_a_topic_is_a_link(stage, page):
    at = stage("topic=bits")
    field = page.get_by_label("x", exact=True)
    field.fill("2049")
    field.press("Enter")
    expect(at.root).to_have_attribute("data-scene", "bits FP16 2049.0")
    answered(page, "x=2049")
    page.get_by_role("link", name="INT8", exact=True).click()
    expect(at.root).to_have_attribute("data-scene", "int8 fc2 3 tensor")
    expect(page).to_have_url(re.compile(r"topic=int8"))
    answered(page, "topic=int8")
    page.go_back()
    expect(at.root).to_have_attribute("data-scene", "bits FP16 2049.0")
