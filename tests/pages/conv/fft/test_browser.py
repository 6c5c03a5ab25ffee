"""Tests of the FFT lesson in a real browser: last step, hover, padding and transforms in the URL, Run, narrow page."""

import re

import pytest
from playwright.sync_api import expect

from kernels.conv.presets import CONV_PRESETS
from pages.conv.fft import address
from tests.helpers.harness import fits_width
from tests.helpers.printed import number
from visuals.conv.fft.arrays import arrays_of
from visuals.conv.inputs import Inputs

pytestmark = pytest.mark.browser
LESSON = "fft"
RUN_MS = 60_000
TOY = CONV_PRESETS["toy"].shape
INPUTS = Inputs(TOY, "digit", "sobel-x")


def test_last_step_and_hover_show_the_product_of_a_frequency(watch):
    stage = watch()
    scene, _ = address.scene(INPUTS, 0, "pad")
    expect(stage.caption).to_have_text(scene.caption(0))
    stage.root.focus()
    stage.page.keyboard.press("End")
    stage.at_step(scene.steps - 1)
    expect(stage.caption).to_have_text(scene.caption(scene.steps - 1))
    a = arrays_of(TOY, INPUTS.x(1, 1)[0], INPUTS.w(1, 1)[0], 0)
    text = stage.point_at("Y", 6)  # row 1, frequency 1
    assert text.startswith("|Y|[1, 1] = ")
    (x, w, y) = a.X[0, 0, 0, 1, 1], a.W[0, 1, 1], a.Y[0, 0, 1, 1]
    numbers = [number(n) for n in re.findall(r"−?\d+(?:\.\d+)?", text.partition("Y = ")[2])]
    assert numbers == pytest.approx([x.real, x.imag, w.real, w.imag, y.real, y.imag], rel=1e-3, abs=1e-3)
    assert "It is d[0, 3] / 64." in stage.point_at("y", 3)
    assert "this value is wrong. The output does not use it." in stage.point_at("d", 63)


@pytest.mark.slow
def test_padding_changes_url_and_scene(stage, page):
    stage = stage()
    expect(stage.root).to_have_attribute("data-scene", re.compile(" pad "))
    page.locator(".st-key-transform_chooser button").click()
    page.locator(".st-key-room").get_by_text("too small", exact=True).click()
    expect(page).to_have_url(re.compile(r"room=too(\+|%20)small"))
    expect(stage.root).to_have_attribute("data-scene", re.compile(" too small "))
    stage.root.focus()
    page.keyboard.press("End")
    assert "the correct value is" in stage.point_at("y", 35)
    expect(page.locator(".st-key-card_wrap")).to_contain_text("20 of 36 outputs wrap around")


@pytest.mark.slow
def test_transform_size_changes_url_and_scene(stage, page):
    stage = stage("H=30&W=30&pad_h=1&pad_w=1")
    page.locator(".st-key-transform_chooser button").click()
    page.locator(".st-key-transform").get_by_text("16", exact=True).click()
    expect(page).to_have_url(re.compile("transform=16"))
    expect(page.locator(".st-key-params_tiles")).to_contain_text("9 transforms of 16×16")
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"fft \(16, 16, 14, 14, 3, 3\)"))


@pytest.mark.slow
def test_run_measures_rows_on_cpu(page, server):
    page.goto(f"{server}/fft?engine=cpu&view=run")
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_time")
    expect(card.locator(".kt-badge-measured").first).to_be_visible(timeout=RUN_MS)
    for title in ("FFT (NumPy)", "FFT in tiles"):
        expect(card).to_contain_text(title, timeout=RUN_MS)
    expect(page.locator(".st-key-card_tilings")).to_contain_text("workspace, measured")


@pytest.mark.slow
def test_page_fits_its_width(stage, page):
    stage("N=32&C=64&H=56&W=56&K=64&pad_h=1&pad_w=1")
    expect(page.locator(".st-key-chart_curves .scatterlayer path").first).to_be_visible()
    for width in (1440, 390):
        fits_width(page, width, "card_spectra", "card_wrap", "card_tilings", "card_curves")
