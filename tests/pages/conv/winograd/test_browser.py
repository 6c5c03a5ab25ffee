"""Tests of the Winograd lesson in a real browser: steps, hover, kernels, the chooser, Run."""

import re

import pytest
from playwright.sync_api import expect

from kernels.conv import winograd_matrices
from pages.conv.winograd import address
from tests.helpers.harness import Stage, frames, idle

pytestmark = pytest.mark.browser
LESSON = "winograd"
RUN_MS = 60_000


def expected_scene(**params):
    return address.card(params)


@pytest.mark.slow
def test_each_step_has_the_caption_of_the_scene(watch):
    stage, scene = watch(), expected_scene()
    for step in range(scene.steps):
        stage.at_step(step)
        expect(stage.caption).to_have_text(scene.caption(step))
        stage.do("forward")
    expect(stage.root).to_contain_text(f"multiplications, direct {int(scene.readings[0].values[-1])}")


def test_pointing_at_v_names_the_terms_of_the_transform(watch):
    """V[0, 0] of F(2x2): d00 - d02 - d20 + d22, from the rows of B^T."""
    stage, scene = watch("step=6"), expected_scene()
    frames(stage.page, 60)
    d = scene.cells("d", 6).reshape(4, 4)
    BT = winograd_matrices.derive(2, 3).arrays("float64")[2]
    text = stage.point_at("V", 0).replace("−", "-")
    a, b, c, e = (f"{d[i, j]:g}" for i, j in ((0, 0), (0, 2), (2, 0), (2, 2)))
    assert f"= {a} - {b} - {c} + {e}" in text and f"= {(BT @ d @ BT.T)[0, 0]:g}" in text
    assert "It is a term of 2 cells" in text  # of both filters' Z
    copy_text = stage.point_at("x", 9)
    assert "Copied 1 of 1 time to d" in copy_text


@pytest.mark.slow
def test_another_kernel_changes_the_scene(stage, page):
    stage = stage("picture=digit")  # not this lesson's default
    expect(page.get_by_role("button", name="picture: digit")).to_be_visible()
    page.get_by_role("button", name="kernel: 2×2, fused").click()
    page.get_by_role("radio", name="6x6-steps").or_(page.get_by_role("button", name="6x6-steps")).first.click()
    expect(page).to_have_url(re.compile("kernel=6x6-steps"))
    expect(page).to_have_url(re.compile("picture=digit"))
    expect(stage.root).to_have_attribute("data-scene", re.compile(r"conv/winograd-nonfused 0,0 M=6,"))
    expect(page.locator(".st-key-params .kt-derived")).to_contain_text("1 tile of 8×8 pixels")
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    page.get_by_role("radio", name="4x4", exact=True).or_(
        page.get_by_role("button", name="4x4", exact=True)
    ).first.click()
    expect(stage.root).to_have_attribute("data-scene", re.compile("conv/winograd-4x4"))


def test_unsupported_shape_links_to_a_supported_one(page, server):
    page.goto(f"{server}/winograd?view=watch&R=5&S=5")
    expect(page.locator(".kt-note")).to_contain_text("R and S must be 3, got 5 and 5")
    expect(page.locator(".stage canvas")).to_be_hidden()  # the strip alone
    expect(page.locator(".strip")).to_be_visible()
    page.locator(".st-key-chips_fitting").get_by_role("link", name="Toy 8×8", exact=True).click()
    idle(page)  # until then the strip alone is still below the stage
    Stage(page).ready()
    expect(page.locator(".kt-note")).to_have_count(0)


def test_chooser_derives_the_chosen_matrices(page, server):
    page.goto(f"{server}/winograd?view=matrices&Fm=4")
    card = page.locator(".st-key-card_winograd_matrices")
    expect(card).to_contain_text(
        "F(4, 3), with m outputs and r taps, needs 4 + 3 − 1 = 6 multiplications instead of 4 · 3 = 12."
    )
    check = card.locator(".kt-why", has_text="Largest difference from direct")
    before = check.inner_text()
    card.get_by_role("button", name="Other random numbers").click()
    expect(check).not_to_have_text(before)
    expect(card).to_contain_text("1/24")


@pytest.mark.slow
def test_narrow_page_scrolls_only_vertically(stage, page):
    page.set_viewport_size({"width": 390, "height": 900})
    stage("Fm=6&Fr=5&kernel=4x4-steps")
    expect(page.locator(".st-key-card_winograd_matrices")).to_contain_text("F(6, 5)")
    expect(page.locator(".st-key-chart_winograd_errors .scatterlayer .trace")).not_to_have_count(0)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    for name in ("card_winograd_counts", "card_winograd_errors", "card_winograd_matrices"):
        box = page.locator(f".st-key-{name}").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 391, name


@pytest.mark.slow
def test_a_run_measures_the_kernels_on_this_processor(page, server):
    page.goto(f"{server}/winograd?view=run&engine=cpu&H=6&W=6&kernel=6x6-steps")
    page.get_by_role("button", name="Run here").click()
    card = page.locator(".st-key-card_time")
    expect(card.locator(".kt-badge-measured").first).to_be_visible(timeout=RUN_MS)
    expect(card).to_contain_text("effective")


def test_the_chooser_of_the_kernel_has_its_whole_name_on_a_tablet(stage, page):
    page.set_viewport_size({"width": 768, "height": 1024})
    stage("view=explore")
    name = page.locator(".st-key-kernel_chooser [data-testid=stMarkdownContainer]").first
    expect(name).to_be_visible()
    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")
