"""Tests in a real browser that the URL and the controls agree."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import fits_width, idle, preset

pytestmark = pytest.mark.browser


def field(page, name):
    return page.get_by_label(name, exact=True)


def chip(page, name):
    return preset(page, name)


@pytest.mark.slow
def test_presets_are_links_that_back_undoes(server, page):
    page.goto(server + "/im2col?picture=gradient")
    expect(chip(page, "LeNet conv1")).to_have_attribute("href", re.compile("H=32.*R=5.*picture=gradient"))
    page.evaluate("window.stayed = true")
    chip(page, "LeNet conv1").click()
    expect(field(page, "R")).to_have_value("5")
    expect(page).to_have_url(re.compile(r"\?H=32&W=32&K=6&R=5&S=5&picture=gradient$"))
    chip(page, "cuDNN paper").click()
    expect(field(page, "R")).to_have_value("2")
    expect(page.get_by_text("filter flipped")).to_be_visible()
    page.go_back()
    expect(field(page, "R")).to_have_value("5")
    expect(page.get_by_text("filter flipped")).to_have_count(0)
    # A control changed after Back uses the values that Back restored, also in closed popovers.
    field(page, "K").press("ArrowUp")
    expect(page).to_have_url(re.compile(r"H=32&K=7&R=5&S=5&W=32&picture=gradient$"))
    expect(page.get_by_text("filter flipped")).to_have_count(0)
    page.go_back()  # undoes the change of K
    expect(field(page, "K")).to_have_value("6")
    expect(field(page, "R")).to_have_value("5")
    page.go_back()
    expect(field(page, "R")).to_have_value("3")
    expect(page).to_have_url(re.compile(r"/im2col\?picture=gradient$"))
    assert page.evaluate("window.stayed")  # the page was never reloaded


@pytest.mark.slow
def test_controls_in_popovers_write_the_address_and_follow_back(server, page):
    page.goto(server + "/im2col?view=explore")
    page.get_by_role("button", name="picture: digit").click()
    page.get_by_role("dialog").get_by_text("numbers", exact=True).click()
    expect(page).to_have_url(re.compile("picture=numbers"))
    page.keyboard.press("Escape")
    chip(page, "LeNet conv1").click()
    expect(page).to_have_url(re.compile("H=32.*picture=numbers"))
    page.get_by_role("button", name="picture: numbers").click()
    page.get_by_role("dialog").get_by_text("random", exact=True).click()
    expect(page).to_have_url(re.compile("picture=random"))
    page.keyboard.press("Escape")
    page.go_back()
    expect(page.get_by_role("button", name="picture: numbers")).to_be_visible()
    field(page, "N").press("ArrowUp")
    expect(page).to_have_url(re.compile(r"N=2.*picture=numbers|picture=numbers.*N=2"))
    expect(page.get_by_role("button", name="picture: numbers")).to_be_visible()


@pytest.mark.slow
def test_controls_keep_url_parameters_of_the_stage(server, page):
    page.goto(server + "/im2col?view=explore")
    expect(field(page, "K")).to_have_value("2")
    for mark in ("a", "b"):  # not `step`: the stage itself manages it
        page.evaluate("mark => history.replaceState({}, '', location.pathname + '?other=' + mark)", mark)
        field(page, "K").press("ArrowUp")
        expect(page).to_have_url(re.compile(rf"K=\d&other={mark}$"))
        idle(page)
        field(page, "K").press("ArrowDown")
        expect(page).to_have_url(re.compile(rf"\?other={mark}$"))


def test_field_bounds_are_enforced(server, page):
    page.goto(server + "/im2col?H=9")
    field(page, "R").fill("10")
    field(page, "R").press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("between 1 and 9")
    field(page, "R").fill("9")
    field(page, "R").press("Enter")
    expect(page).to_have_url(re.compile("R=9"))
    expect(page.get_by_text("R ≤ 9 here: dilation*(R-1)+1 <= H+2*pad")).to_be_visible()


def test_invalid_parameters_are_named_and_escaped(server, page):
    page.goto(server + "/im2col?N=abc&H=inf&W=nan&C=1e400&R=99&K=5&mode=%3Cscript%3Ealert(1)%3C/script%3E")
    note = page.locator(".kt-note")
    for message in ("N must be a whole number", "H must be 1 to 512", "R must be 1 to 11", "<script>"):
        expect(note).to_contain_text(message)
    expect(field(page, "K")).to_have_value("5")
    expect(page).to_have_url(re.compile(r"/im2col\?K=5$"))
    page.go_back()  # to the invalid URL, in the same session
    expect(field(page, "K")).to_have_value("5")
    expect(note).to_contain_text("H must be 1 to 512")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/im2col?view=explore"])
def test_page_fits_its_width_and_the_stage_is_near_the_top(server, page, path):
    page.goto(server + path)
    page.locator("h1").wait_for()
    page.locator(".st-key-nav a:visible").first.wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(page.locator(".stage").first).to_have_attribute("data-theme", scheme)
        for width in (1440, 1280, 390):
            fits_width(page, width)
            if path == "/":
                continue
            # On a phone the controls are folded.
            part, top = (".stage", 220) if width < 1280 else (".kt-derived", 235)
            page.locator(part).wait_for()
            assert page.locator(part).bounding_box()["y"] < top


@pytest.mark.slow
def test_home_links_to_a_real_size(server, page):
    page.goto(server + "/")
    expect(page.get_by_text("Watch a CUDA kernel, then measure it.")).to_be_visible()
    page.get_by_role("link", name="GEMM at a real size").click()
    expect(page).to_have_url(re.compile(r"/tiling\?M=4096"))
    expect(field(page, "K")).to_have_value("4096")
    page.go_back()
    expect(page.get_by_text("Watch a CUDA kernel, then measure it.")).to_be_visible()
