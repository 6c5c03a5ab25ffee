"""Controls of a lesson in a real browser: the URL and the controls agree, also after Back."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import answered, preset

pytestmark = pytest.mark.browser


def field(page, name):
    return page.get_by_label(name, exact=True)


def test_presets_are_links_and_controls_follow_back(server, page):
    page.goto(server + "/im2col?H=32&W=32&K=6&R=5&S=5&picture=gradient")
    expect(preset(page, "LeNet conv1")).to_have_attribute("href", re.compile("H=32.*R=5.*picture=gradient"))
    page.evaluate("window.stayed = true")
    page.keyboard.press("Escape")
    in_a_popover(page, "gradient", "random")
    answered(page, "picture=random")
    page.go_back()
    expect(page.get_by_role("button", name="picture: gradient")).to_be_visible()
    answered(page, "picture=gradient")
    # A control changed after Back uses the values that Back restored, also in closed popovers.
    field(page, "N").press("ArrowUp")
    expect(page).to_have_url(re.compile(r"N=2.*picture=gradient|picture=gradient.*N=2"))
    expect(page.get_by_role("button", name="picture: gradient")).to_be_visible()
    assert page.evaluate("window.stayed")  # the page was never reloaded


def in_a_popover(page, before, after):
    page.get_by_role("button", name=f"picture: {before}").click()
    page.get_by_role("dialog").get_by_text(after, exact=True).click()
    expect(page).to_have_url(re.compile(f"picture={after}"))
    page.keyboard.press("Escape")


def test_invalid_parameters_are_named_and_escaped_also_after_back(server, page):
    page.goto(server + "/im2col?N=abc&H=inf&W=nan&C=1e400&R=99&K=5&mode=%3Cscript%3Ealert(1)%3C/script%3E")
    note = page.locator(".kt-note").first  # another one says which part is shown
    for message in ("N must be a whole number", "H must be 1 to 512", "R must be 1 to 11", "<script>"):
        expect(note).to_contain_text(message)
    expect(field(page, "K")).to_have_value("5")
    expect(page).to_have_url(re.compile(r"/im2col\?K=5$"))
    page.go_back()  # to the invalid URL, in the same session
    expect(field(page, "K")).to_have_value("5")
    expect(note).to_contain_text("H must be 1 to 512")
