"""The GEMM lesson in a real browser: a tile size, listings, the diff, the size of the cards."""

import re

import pytest
from playwright.sync_api import expect

from tests.helpers.harness import Stage, answered, idle, tile_size

pytestmark = pytest.mark.browser


def select_tile(page, name, value):
    tile_size(page, name).get_by_role("button").click()
    page.get_by_role("option", name=str(value), exact=True).click()


def test_a_reader_changes_the_tile_the_listing_and_the_size(page, server):
    page.goto(f"{server}/tiling?M=64&N=64&K=64")
    expect(page.locator(".st-key-kernels [data-testid=stCode]:visible").first).to_be_visible()
    stage = Stage(page).ready()
    a_tile_size_changes_url_kernel_figures_and_scene(page, stage)
    a_tab_shows_its_listing_and_keeps_the_stage(page, stage)
    a_diff_from_the_previous_rung_is_shown(page)
    cards_follow_the_size_of_the_strip(page)


def a_tile_size_changes_url_kernel_figures_and_scene(page, stage):
    figures = page.locator(".st-key-kernels [role=tabpanel]:visible .kt-figures")
    expect(stage.root).to_have_attribute("data-scene", re.compile("BM=32,BN=32"))
    expect(figures).to_contain_text("shared_tile with BM 32 BN 32 BK 32: 1,024 threads")
    select_tile(page, "BM", 8)
    expect(page).to_have_url(re.compile(r"BM=8"))
    expect(figures).to_contain_text("shared_tile with BM 8 BN 32 BK 32: 256 threads")
    expect(stage.root).to_have_attribute("data-scene", re.compile("BM=8,BN=32"))  # the stage shows what Run measures


def a_tab_shows_its_listing_and_keeps_the_stage(page, stage):
    listing = page.locator(".st-key-kernels [data-testid=stCode]")
    expect(listing).to_have_count(1)  # not those of the other tabs
    expect(listing).to_contain_text("shared_tile(")
    key = stage.root.get_attribute("data-scene")
    answered(page, "BM=8")
    page.get_by_role("tab", name="02_naive.cu").click()
    expect(listing.filter(has_text="naive(")).to_be_visible()
    expect(listing).to_have_count(1)  # that of the closed tab goes once the run is over
    expect(stage.root).to_have_attribute("data-scene", key)
    page.get_by_role("tab", name="03_").click()
    expect(listing.filter(has_text="shared_tile(")).to_be_visible()


def a_diff_from_the_previous_rung_is_shown(page):
    page.locator(".kt-changes summary:visible").click()
    diff = page.locator(".kt-diff:visible")
    expect(diff.locator(".kt-add").filter(has_text="__shared__").first).to_be_visible()
    box = diff.bounding_box()
    assert box["height"] <= 421 and box["width"] > 300


def cards_follow_the_size_of_the_strip(page):
    titles = page.locator(".st-key-cards .kt-card small")
    value = page.locator(".strip-value")
    page.locator("[data-strip=size-real]").click()
    expect(titles.first).to_have_text("4,096³")
    idle(page)
    real = value.text_content()
    page.locator("[data-strip=size-stage]").click()
    expect(titles).to_have_text(["64³, on the stage"] * 4)
    expect(value).not_to_have_text(real)
    expect(page).to_have_url(re.compile("size=stage"))
    idle(page)
    page.reload()
    expect(titles).to_have_text(["64³, on the stage"] * 4)
    expect(page.locator(".st-key-BM input")).to_have_value("8")
    expect(page.locator("[data-strip=size-stage]")).to_have_attribute("aria-pressed", "true")
