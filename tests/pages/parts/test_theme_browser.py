"""A page that is open while the system changes between light and dark."""

import pytest
from playwright.sync_api import expect

from visuals.palette import DARK, LIGHT

pytestmark = pytest.mark.browser
PALETTES = {"light": LIGHT, "dark": DARK}


def rgb(colour):
    """Returns "rgb(r, g, b)" of "#rrggbb", as a browser computes it."""
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def shows(page, scheme):
    """Waits until the ground, a title, the bar, a chart's text and the stage have the colours of a scheme."""
    colours = PALETTES[scheme]
    expect(page.get_by_test_id("stApp")).to_have_css("background-color", rgb(colours["ground"]))
    expect(page.locator("h1.kt-title")).to_have_css("color", rgb(colours["ink"]))
    expect(page.locator(".kt-group:not([data-current])").first).to_have_css("color", rgb(colours["dim"]))
    chart = page.locator(".st-key-card_time .js-plotly-plot .annotation-text").first
    expect(chart).to_have_css("fill", rgb(colours["ink"]))
    expect(page.locator(".stage")).to_have_attribute("data-theme", scheme)


def test_an_open_page_and_a_list_over_it_follow_the_system(stage, page):
    page.emulate_media(color_scheme="dark")
    stage("preset=toy&view=explore")
    for scheme in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=scheme)
        shows(page, scheme)
    page.get_by_test_id("stPopoverButton").first.click()
    body = page.get_by_test_id("stPopoverBody")
    expect(body).to_have_css("border-top-color", rgb(DARK["line"]))
    expect(body.locator("a p:not(:has(strong))").first).to_have_css("color", rgb(DARK["ink"]))
