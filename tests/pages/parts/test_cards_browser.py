"""Measured values in a browser: every text is inside its chart, at any width, light and dark."""

import re

import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from tests.helpers.harness import idle
from tests.pages.parts.test_run_browser import (  # noqa: F401
    RUN_MS,
    TITLES,
    bars,
    lesson,
    measured,
    run,
    run_button,
    stop_button,
    suspended,
)
from visuals.charts import bars as bar_charts

pytestmark = pytest.mark.browser

CHARTS = ("chart_times_measured", "chart_memory", "chart_roofline")
NOT_RECORDED = "N=2"  # there is no recording with this N


def dots(page, symbol_colour):
    """Returns (x, y, opacity) of the markers of one colour in the roofline, x and y in pixels."""
    return page.locator(".st-key-chart_roofline .scatterlayer").evaluate(
        """(layer, colour) => [...layer.querySelectorAll(".points path")]
            .filter(dot => getComputedStyle(dot).fill === colour)
            .map(dot => { const r = dot.getBoundingClientRect();
                          let opacity = 1;
                          for (let e = dot; e !== layer; e = e.parentElement) opacity *= getComputedStyle(e).opacity;
                          return [r.x + r.width / 2, r.y + r.height / 2, opacity]; })""",
        symbol_colour,
    )


def colour(page, name):
    return page.evaluate(
        """name => { const a = document.createElement("a"); document.querySelector(".stApp").append(a);
                     a.style.color = `var(--kt-${name})`; const colour = getComputedStyle(a).color; a.remove(); return colour; }""",
        name,
    )


def spilled(page, chart):
    """Returns the texts of a chart that extend beyond it."""
    return page.locator(f".st-key-{chart}").evaluate(
        """root => { const box = root.querySelector(".main-svg").getBoundingClientRect();
            return [...root.querySelectorAll("text")].filter(text => text.textContent.trim()).filter(text => {
                const r = text.getBoundingClientRect();
                return r.width && (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1);
            }).map(text => text.textContent); }"""
    )


def overlapping(page, chart, texts):
    """Returns pairs of texts of a chart that overlap."""
    return page.locator(f".st-key-{chart}").evaluate(
        """(root, texts) => { const all = [...root.querySelectorAll(texts)].filter(t => t.textContent.trim());
            const boxes = all.map(t => t.getBoundingClientRect()), found = [];
            for (let i = 0; i < all.length; i++) for (let j = 0; j < i; j++) {
                const [a, b] = [boxes[i], boxes[j]];
                if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
                    found.push([all[i].textContent, all[j].textContent]);
            } return found; }""",
        texts,
    )


# The width in pixels of a text in the font of an SVG element.
WIDTH = """(tspan, text) => { const copy = tspan.cloneNode(); copy.textContent = text; tspan.after(copy);
    const width = copy.getComputedTextLength(); copy.remove(); return width; }"""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (800, "dark"), (400, "light")])
def test_no_text_is_cut_off_or_overlaps(lesson, page, width, scheme):  # noqa: F811
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    lesson()
    run(page)
    for chart in CHARTS:
        expect(page.locator(f".st-key-{chart} .main-svg").first).to_be_visible()
        page.locator(f".st-key-{chart}").scroll_into_view_if_needed()
        assert spilled(page, chart) == [], chart
        assert (
            overlapping(page, chart, ".annotation-text, .xtick text, .ytick text, .x2tick text, .x3tick text") == []
        ), chart
    max_width = page.locator(".st-key-chart_times_measured .annotation-text tspan").last.evaluate(
        WIDTH, "88.8 µs to 8.88 ms"
    )
    assert 60 < max_width <= bar_charts.TEXT_PX - 8, "whatever is measured"  # it begins 8 px from the bars
    for card in ("time", "memory", "roofline"):
        overflow = page.locator(f".st-key-card_{card}").evaluate("card => card.scrollWidth - card.clientWidth")
        assert overflow <= 0, card


@pytest.mark.slow
def test_roof_is_measured_and_dots_fade_when_a_control_changes(lesson, page):  # noqa: F811
    lesson()
    run(page)
    card = page.locator(".st-key-card_roofline")
    expect(card.locator(".kt-badge-measured")).to_be_visible()
    expect(card).to_contain_text(
        re.compile(r"Peak bandwidth is [\d.]+ [GT]B/s .*Peak FP32 rate is [\d.]+ [GT]FLOP/s .*Below [\d.]+ FLOP/byte")
    )
    green = colour(page, "output")
    fresh = dots(page, green)
    assert len(fresh) == 3 and {opacity for *_, opacity in fresh} == {1}
    expect(card).not_to_contain_text("faded")
    page.get_by_label("K", exact=True).press("ArrowUp")
    expect(card).to_contain_text("faded: other settings")
    expect(card).to_contain_text(
        re.compile(r"Without a time at these settings: the roof of .* allows at most direct, .* [\d.]+ [GM]FLOP/s")
    )
    # The text appears before the chart is drawn.
    expect(page.locator(".st-key-chart_roofline .scatterlayer .js-line[style*=dash]")).to_have_count(3)
    faded = dots(page, green)
    assert len(faded) == 3 and all(opacity < 0.5 for *_, opacity in faded)
    page.get_by_label("K", exact=True).press("ArrowDown")
    expect(card).not_to_contain_text("faded")


def test_shares_are_under_the_bars_and_memory_is_shown_per_stage(lesson, page):  # noqa: F811
    lesson()
    run(page)
    table = page.locator(".st-key-fresh_measured .kt-shares")
    expect(table.locator("th[scope=col]")).to_have_text(
        [
            "speed, relative to the fastest library",
            "rate, relative to the roof",
            "rate, relative to the FP32 peak",
            "call overhead",
        ]
    )
    expect(table.locator("tr").nth(3).locator("td").first).to_have_text("100 %")
    expect(page.locator(".st-key-card_time")).to_contain_text(
        re.compile(r"is fastest on .* That is [\d.]+× the time of .* on NVIDIA")
    )

    details = page.locator(".st-key-card_memory .kt-details")
    details.locator("summary").click()
    expect(details.locator(".kt-bars dt")).to_have_text(
        [
            TITLES[0],
            "inputs",
            "output",
            "direct",
            TITLES[1],
            "inputs",
            "output",
            "workspace",
            "im2col",
            "gemm",
            TITLES[2],
            "inputs",
            "output",
            "workspace",
            "im2col",
            "product",
        ]
    )
    expect(details.locator(".kt-bars dd").last).to_have_text("1.91 KB")
    expect(details.locator(".kt-bars .kt-bar").last).to_be_visible()


def test_nearest_recording_names_its_shape_and_is_no_dot(lesson, page):  # noqa: F811
    lesson(f"{NOT_RECORDED}&size=stage")
    time = page.locator(".st-key-card_time")
    shape = CONV_PRESETS["toy"].shape.with_(N=2)
    nearest = records.nearest("conv/direct", shape, {"BLOCK": 256})
    assert nearest.row["shape"]["N"] != 2
    expect(time).to_contain_text(f"not this shape, the nearest: {nearest.caption}")
    expect(bars(page, "chart_times_nearest")).to_have_count(3)
    assert float(page.locator(".st-key-stale_nearest").evaluate("e => getComputedStyle(e).opacity")) < 0.6
    expect(page.locator(".st-key-chart_roofline .main-svg").first).to_be_visible()  # the recorded roof, no dot under it
    assert dots(page, colour(page, "workspace")) == []
    expect(page.locator(".st-key-card_memory .kt-badge")).to_have_count(0)


@pytest.mark.slow
def test_progress_keeps_the_charts(lesson, page, app):  # noqa: F811
    """What a run tells while it goes on does not draw the charts anew."""
    lesson("N=4&C=8&H=40&W=40&K=8&size=stage")
    plot = page.locator(".st-key-chart_times_nearest .js-plotly-plot")
    expect(plot).to_be_visible()
    run_button(page).click()
    with suspended(app):
        expect(stop_button(page)).to_be_visible()
        idle(page)  # the press on Run draws the cards once more
        plot.evaluate("plot => { plot.mark = 'the same'; }")
    page.locator(".strip-run", has_text="timing").wait_for(timeout=RUN_MS)  # looks at each frame
    assert plot.evaluate("plot => plot.mark") == "the same"
    expect(measured(page)).to_be_visible(timeout=RUN_MS)
