"""Run in a real browser, on a machine without a GPU: measured beside recorded values, marked when stale, every text inside
its chart. What a run measures is shown without a browser, in test_run.py and test_cards.py."""

import csv
import io
import json
import re
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import LADDERS
from kernels.machine.processor import device_name
from pages.conv import address as conv_address
from tests.helpers.harness import Stage, answered, idle, settled
from visuals import units
from visuals.charts import bars as bar_charts

pytestmark = pytest.mark.browser

RUNGS = ["conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"]
TITLES = [rung.title_on("cpu") for rung in conv_address.ladder("im2col").rungs]
CHARTS = ("chart_times_measured", "chart_memory", "chart_roofline")
RUN_MS = 60_000
SHARES = [
    "speed, relative to the fastest library",
    "rate, relative to the roof",
    "rate, relative to the FP32 peak",
    "call overhead",
]


@pytest.fixture
def lesson(page, server):
    """Returns a function that opens the lesson on the cpu engine, which is not the default on a machine with a GPU."""

    def open_(query):
        page.goto(f"{server}/im2col?engine=cpu&{query}")
        Stage(page).ready()
        expect(run_button(page)).to_be_visible()
        return page

    return open_


def run_button(page):
    return page.get_by_role("button", name="Run here")


def stop_button(page):
    return page.get_by_role("button", name="Stop")


def measured(page):
    """Returns the badge over the times of a finished run."""
    return page.locator(".st-key-card_time .kt-badge-measured").last


def part(page, key):
    """Returns a part of the page. While a run draws the page anew, the part from before may still be there too, ahead of it."""
    return page.locator(f".st-key-{key}").last


def bars(page, chart):
    return page.locator(f".st-key-{chart} .bars .point")


def download(page, name):
    with page.expect_download() as file:
        page.locator(".st-key-downloads").get_by_role("button", name=name, exact=True).click()
    assert file.value.suggested_filename == f"kernel-theatre.{name.lower()}"
    return Path(file.value.path()).read_text(encoding="utf-8")


def runners(app):
    """Returns the processes that run jobs for the server."""
    return [
        child
        for child in psutil.Process(app.pid).children(recursive=True)
        if child.cmdline()[1:3] == ["-m", "kernels.jobs.child"]  # not the service, which starts it
    ]


@contextmanager
def suspended(app):
    """Suspends the process that runs jobs as soon as there is one, so that the page shows its run during the block.

    A run of the smallest shape lasts about a second, which a busy machine may let pass between two looks at the page.
    """
    while not (found := runners(app)):
        time.sleep(0.01)
    for process in found:
        process.suspend()
    try:
        yield
    finally:
        for process in found:
            process.resume()


def choose(page, name, choice):
    page.get_by_role("button", name="options").click()
    pills = page.get_by_role("dialog").locator(f".st-key-{name}")
    pills.get_by_text(choice, exact=True).click()
    answered(page, f"{name}={choice}")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


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
    return part(page, chart).evaluate(
        """root => { const box = root.querySelector(".main-svg").getBoundingClientRect();
            return [...root.querySelectorAll("text")].filter(text => text.textContent.trim()).filter(text => {
                const r = text.getBoundingClientRect();
                return r.width && (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1);
            }).map(text => text.textContent); }"""
    )


def overlapping(page, chart, texts):
    """Returns pairs of texts of a chart that overlap."""
    return part(page, chart).evaluate(
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


# -- one run, from the press to a change of a control -----------------------------------------------
def test_a_run_is_shown_beside_recordings_and_becomes_stale(lesson, app):
    page = lesson("step=5&BLOCK=512")  # no other test requests this, so it is really run
    stage, plot = page.locator(".stage"), page.locator(".st-key-chart_times_recorded .js-plotly-plot")
    expect(measured(page)).to_have_count(0)
    expect(page.locator(".st-key-card_time .kt-badge-recorded").first).to_contain_text("recorded NVIDIA")
    expect(plot).to_be_visible()
    stage.evaluate("root => { root.mark = 'the same'; }")

    run_button(page).click()
    with suspended(app):
        expect(stop_button(page)).to_be_visible()
        expect(run_button(page)).to_have_count(0)  # one run at a time
        expect(page.locator(".strip-progress")).to_be_visible()
        idle(page)  # the press on Run draws the cards once more
        plot.evaluate("plot => { plot.mark = 'the same'; }")
    page.locator(".strip-run", has_text="timing").wait_for(timeout=RUN_MS)  # looks at each frame
    assert plot.evaluate("plot => plot.mark") == "the same"  # what a run tells while it goes on draws no chart
    expect(measured(page)).to_be_visible(timeout=RUN_MS)
    expect(stop_button(page)).to_have_count(0)
    expect(page.locator(".strip-progress")).to_have_count(0)
    assert stage.evaluate("root => root.mark") == "the same"  # the stage was not redrawn
    assert Stage(page).step == 5

    cards_have_the_measured_times(page)
    the_card_of_memory_shows_each_stage(page)
    files_have_the_rows_that_are_shown(page)
    for width, scheme in ((800, "dark"), (400, "light")):
        no_text_is_cut_off_or_overlaps(page, width, scheme)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    a_changed_control_marks_the_run_stale_until_changed_back(page)


def cards_have_the_measured_times(page):
    device = re.escape(device_name())
    # Beside other tests the times are marked: "n = 100, disturbed: other programs used the cores".
    expect(measured(page)).to_have_text(re.compile(rf"^measured {device}, cold, n = \d+(, disturbed: [\w ]+)?$"))
    expect(bars(page, "chart_times_measured")).to_have_count(3)
    for title in TITLES:
        expect(part(page, "chart_times_measured")).to_contain_text(title.replace(" + ", " +"))  # two lines
    expect(page.locator(".st-key-card_time .kt-badge-recorded").first).to_contain_text("recorded NVIDIA")
    expect(bars(page, "chart_times_recorded")).to_have_count(3)
    expect(page.locator(".st-key-card_memory .kt-badge")).to_have_text(re.compile(rf"^measured {device}, peak$"))
    expect(bars(page, "chart_memory")).to_have_count(9)
    expect(page.locator(".kt-stale")).to_have_count(0)
    expect(page.locator(".strip-head .badge")).to_contain_text("measured here")
    expect(page.locator("[data-strip=size-stage]")).to_have_attribute("aria-pressed", "true")

    why = page.locator(".st-key-card_why table")
    page.locator(".st-key-card_why summary").click()
    expect(why.locator(".kt-badge-measured")).to_be_visible()
    expect(why).to_contain_text("relative L2 error")

    table = page.locator(".st-key-fresh_measured .kt-shares")
    expect(table.locator("th[scope=col]")).to_have_text(SHARES)
    expect(table.locator("tr").nth(3).locator("td").first).to_have_text("100 %")
    roof = page.locator(".st-key-card_roofline")
    expect(roof.locator(".kt-badge-measured")).to_be_visible()
    fresh = dots(page, colour(page, "output"))
    assert len(fresh) == 3 and {opacity for *_, opacity in fresh} == {1}


def the_card_of_memory_shows_each_stage(page):
    details = page.locator(".st-key-card_memory .kt-details")
    details.locator("summary").click()
    parts = (["inputs", "output", "direct"], ["inputs", "output", "workspace", "im2col", "gemm"])
    parts = (*parts, ["inputs", "output", "workspace", "im2col", "product"])
    names = [name for title, of in zip(TITLES, parts, strict=True) for name in (title, *of)]
    expect(details.locator(".kt-bars dt")).to_have_text(names)
    expect(details.locator(".kt-bars dd").last).to_have_text("1.91 KB")
    expect(details.locator(".kt-bars .kt-bar").last).to_be_visible()


def files_have_the_rows_that_are_shown(page):
    rows = json.loads(download(page, "JSON"))
    table = list(csv.DictReader(io.StringIO(download(page, "CSV"))))
    shape = CONV_PRESETS["toy"].shape
    recorded = [
        records.recorded(name, shape, LADDERS["conv"].rung(name).default_tiles | {"BLOCK": 512}, "cold")
        for name in RUNGS
    ]
    assert [row["rung"] for row in rows] == RUNGS * 2 and rows[3:] == recorded
    chart_text = part(page, "chart_times_measured").inner_text()
    n = int(re.search(r"n = (\d+)", measured(page).inner_text())[1])
    for row in rows[:3]:
        assert row["shape"] == shape.params() and row["engine"] == "cpu" and row["mode"] == "cold"
        assert row["device"] == device_name() and row["n"] == len(row["samples_ms"]) == n >= 3
        assert row["p20_ms"] <= row["median_ms"] <= row["p80_ms"] and row["error"] < 1e-4
        assert units.time_(row["median_ms"]) in chart_text  # the figure on the page is the one in the file
        assert row["peak_bytes"] == row["input_bytes"] + row["output_bytes"] + row["workspace_bytes"]
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        for name, value in row.items():
            assert line[name] == str(value) if not isinstance(value, (dict, list)) else json.loads(line[name]) == value


def no_text_is_cut_off_or_overlaps(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    expect(page.locator(".stage")).to_have_attribute("data-theme", scheme)
    for chart in CHARTS:
        expect(page.locator(f".st-key-{chart} .main-svg").first).to_be_visible()
        while None in settled(page, lambda chart=chart: drawn_width(page, chart)):
            pass  # a new theme draws it anew
        assert spilled(page, chart) == [], chart
        assert overlapping(page, chart, ".annotation-text, .xtick text, .ytick text, .x2tick text, .x3tick text") == []
    max_width = page.locator(".st-key-chart_times_measured .annotation-text tspan").last.evaluate(
        WIDTH, "88.8 µs to 8.88 ms"
    )
    assert 60 < max_width <= bar_charts.TEXT_PX - 8, "whatever is measured"  # it begins 8 px from the bars
    for card in ("time", "memory", "roofline"):
        overflow = page.locator(f".st-key-card_{card}").evaluate("card => card.scrollWidth - card.clientWidth")
        assert overflow <= 0, card


def drawn_width(page, chart):
    """Returns the width of a chart's box and of the picture in it: after a change of the window the picture comes later."""
    return part(page, chart).evaluate(
        "root => [root, root.querySelector('.main-svg')].map((e) => e && Math.round(e.getBoundingClientRect().width))"
    )


def a_changed_control_marks_the_run_stale_until_changed_back(page):
    settled(page, lambda: drawn_width(page, CHARTS[0]))
    time_labels = page.locator(".st-key-chart_times_measured .annotation-text")
    expect(time_labels).to_have_count(3)
    times_before = time_labels.all_inner_texts()
    k_field, roof = page.get_by_label("K", exact=True), page.locator(".st-key-card_roofline")
    expect(roof).not_to_contain_text("faded")
    k_field.press("ArrowUp")
    stale = page.locator(".st-key-card_time .kt-stale")
    expect(stale).to_have_text("stale: measured at N1 C1 8x8 K2 3x3, BLOCK 512, TILE 16, cold, cpu")
    expect(page.locator(".st-key-stale_measured")).to_be_visible()
    assert float(page.locator(".st-key-stale_measured").evaluate("e => getComputedStyle(e).opacity")) < 0.6
    expect(page.locator(".st-key-card_memory .kt-stale")).to_be_visible()
    expect(page.locator(".st-key-card_why .kt-badge-measured")).to_have_count(0)
    expect(page.locator(".strip-stale")).to_contain_text("stale")
    expect(page.locator(".strip")).to_have_class("strip stale")
    assert time_labels.all_inner_texts() == times_before  # not hidden, and not measured anew
    expect(run_button(page)).to_be_visible()
    expect(stop_button(page)).to_have_count(0)
    # The text appears before the chart is drawn.
    expect(roof).to_contain_text("faded: other settings")
    expect(page.locator(".st-key-chart_roofline .scatterlayer .js-line[style*=dash]")).to_have_count(3)
    faded = dots(page, colour(page, "output"))
    assert len(faded) == 3 and all(opacity < 0.5 for *_, opacity in faded)

    answered(page, "K=3")
    k_field.press("ArrowDown")
    expect(page.locator(".kt-stale")).to_have_count(0)
    expect(page.locator(".st-key-fresh_measured")).to_be_visible()
    expect(roof).not_to_contain_text("faded")
    expect(page.locator(".st-key-card_why .kt-badge-measured")).to_have_count(1)
    idle(page)
    assert time_labels.all_inner_texts() == times_before
    choose(page, "caches", "hot")  # an option is a control as well
    expect(stale).to_be_visible()
