"""Run in a real browser, on a machine without a GPU: measured beside recorded values, and marked when stale."""

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
from tests.helpers.harness import Stage, preset
from visuals import units

pytestmark = pytest.mark.browser

RUNGS = ["conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"]
TITLES = [rung.title_on("cpu") for rung in conv_address.ladder("im2col").rungs]
LONG = "N=16&C=64&H=224&W=224&K=64&pad_h=1&pad_w=1"  # minutes of float64 reference
HUGE = "N=64&C=1024&H=512&W=512&K=1&R=1&S=1"
RUN_MS = 60_000


@pytest.fixture
def lesson(page, server):
    """Returns a function that opens the lesson on the cpu engine, which is not the default on a machine with a GPU."""

    def open_(query="", of=None):
        of = of or page
        of.goto(f"{server}/im2col?engine=cpu&{query}")
        Stage(of).ready()
        expect(run_button(of)).to_be_visible()
        return of

    return open_


def run_button(page):
    return page.get_by_role("button", name="Run here")


def stop_button(page):
    return page.get_by_role("button", name="Stop")


def measured(page):
    """Returns the badge over the times of a finished run."""
    return page.locator(".st-key-card_time .kt-badge-measured")


def bars(page, chart):
    return page.locator(f".st-key-{chart} .bars .point")


def run(page):
    run_button(page).click()  # results measured for another test are returned at once
    expect(measured(page)).to_be_visible(timeout=RUN_MS)
    expect(run_button(page)).to_be_visible()


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
    expect(page).to_have_url(re.compile(rf"\b{name}={choice}\b"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.slow
def test_run_is_shown_beside_recordings_and_downloaded(lesson, app):
    page = lesson("step=5&BLOCK=512")  # no other test requests this, so it is really run
    expect(measured(page)).to_have_count(0)
    expect(page.locator(".st-key-card_time .kt-badge-recorded").first).to_contain_text("recorded NVIDIA")
    page.locator(".stage").evaluate("root => { root.mark = 'the same'; }")

    run_button(page).click()
    with suspended(app):
        expect(stop_button(page)).to_be_visible()
        expect(run_button(page)).to_have_count(0)  # one run at a time
        expect(page.locator(".strip-progress")).to_be_visible()
    expect(measured(page)).to_be_visible(timeout=RUN_MS)
    expect(stop_button(page)).to_have_count(0)
    expect(page.locator(".strip-progress")).to_have_count(0)

    device = re.escape(device_name())
    # Beside other tests the times are marked: "n = 100, disturbed: other programs used the cores".
    expect(measured(page)).to_have_text(re.compile(rf"^measured {device}, cold, n = \d+(, disturbed: [\w ]+)?$"))
    expect(bars(page, "chart_times_measured")).to_have_count(3)
    for title in TITLES:
        expect(page.locator(".st-key-chart_times_measured")).to_contain_text(title.replace(" + ", " +"))  # two lines
    expect(page.locator(".st-key-card_time .kt-badge-recorded").first).to_contain_text("recorded NVIDIA")
    expect(bars(page, "chart_times_recorded")).to_have_count(3)
    memory = page.locator(".st-key-card_memory")
    expect(memory.locator(".kt-badge")).to_have_text(re.compile(rf"^measured {device}, peak$"))
    expect(bars(page, "chart_memory")).to_have_count(9)
    expect(page.locator(".kt-stale")).to_have_count(0)
    table = page.locator(".st-key-card_why table")
    page.locator(".st-key-card_why summary").click()
    expect(table.locator(".kt-badge-measured")).to_be_visible()
    expect(table).to_contain_text("relative L2 error")

    # The stage was not redrawn.
    assert page.locator(".stage").evaluate("root => root.mark") == "the same"
    assert Stage(page).step == 5

    rows = json.loads(download(page, "JSON"))
    table = list(csv.DictReader(io.StringIO(download(page, "CSV"))))
    shape = CONV_PRESETS["toy"].shape
    recorded = [
        records.recorded(name, shape, LADDERS["conv"].rung(name).default_tiles | {"BLOCK": 512}, "cold")
        for name in RUNGS
    ]
    assert [row["rung"] for row in rows] == RUNGS * 2 and rows[3:] == recorded
    chart_text = page.locator(".st-key-chart_times_measured").inner_text()
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


@pytest.mark.slow
def test_changed_control_marks_the_run_stale_until_changed_back(lesson):
    page = lesson()
    run(page)
    time_labels = page.locator(".st-key-chart_times_measured .annotation-text")
    expect(time_labels).to_have_count(3)
    times_before = time_labels.all_inner_texts()
    k_field = page.get_by_label("K", exact=True)
    k_field.press("ArrowUp")
    stale = page.locator(".st-key-card_time .kt-stale")
    expect(stale).to_have_text("stale: measured at N1 C1 8x8 K2 3x3, BLOCK 256, TILE 16, cold, cpu")
    expect(page.locator(".st-key-stale_measured")).to_be_visible()
    expect(page.locator(".st-key-card_memory .kt-stale")).to_be_visible()
    expect(page.locator(".st-key-card_why .kt-badge-measured")).to_have_count(0)
    assert time_labels.all_inner_texts() == times_before  # not hidden, and not measured anew
    expect(run_button(page)).to_be_visible()
    expect(stop_button(page)).to_have_count(0)
    k_field.press("ArrowDown")
    expect(page.locator(".kt-stale")).to_have_count(0)
    expect(page.locator(".st-key-fresh_measured")).to_be_visible()
    page.locator(".st-key-card_why summary").click()
    expect(page.locator(".st-key-card_why .kt-badge-measured")).to_be_visible()
    assert time_labels.all_inner_texts() == times_before
    # An option is a control as well.
    choose(page, "caches", "hot")
    expect(stale).to_be_visible()


@pytest.mark.slow
def test_options_are_in_the_url_and_used_by_the_run(lesson):
    page = lesson("C=2")
    choose(page, "TILE", "8")
    choose(page, "caches", "hot")
    assert re.search(r"C=2\b", page.url)
    page.goto(page.url)  # the same URL in a new session
    expect(page.locator(".st-key-card_why .kt-conclusion")).to_be_visible()
    page.get_by_role("button", name="options").click()
    for name, choice in (("TILE", "8"), ("caches", "hot"), ("BLOCK", "256")):
        pills = page.get_by_role("dialog").locator(f".st-key-{name}")
        expect(pills.get_by_role("radio", name=choice, exact=True)).to_be_checked()
    page.keyboard.press("Escape")
    run(page)
    expect(measured(page)).to_contain_text(", hot, n = ")
    rows = {row["rung"]: row for row in json.loads(download(page, "JSON"))}
    assert rows["conv/im2col-gemm"]["tiles"]["TILE"] == 8 and rows["conv/im2col-gemm"]["mode"] == "hot"
    assert rows["conv/direct"]["tiles"] == {"BLOCK": 256}
    assert len(rows) == 3  # nothing was recorded at these settings


@pytest.mark.slow
def test_invalid_options_give_the_defaults(lesson):
    page = lesson("TILE=7&caches=%3Cb%3E&BLOCK=1e9")
    expect(page.locator(".st-key-card_time .kt-badge-recorded").first).to_contain_text("cold, n = ")
    run(page)
    page.get_by_label("K", exact=True).press("ArrowUp")
    expect(page.locator(".st-key-card_time .kt-stale")).to_contain_text("BLOCK 256, TILE 16, cold, cpu")


@pytest.mark.slow
def test_shape_too_large_for_memory_names_the_bytes_and_the_page_works(lesson):
    page = lesson(HUGE)
    run_button(page).click()
    note = page.locator(".st-key-card_time .kt-note")
    expect(note).to_have_text(
        re.compile(
            r"^N64 C1024 512x512 K1 1x1 needs \d[\d,]{12,} bytes of memory for the cpu engine with the float64 "
            r"reference, \d[\d,]+ bytes are free; take a smaller shape or batch$"
        )
    )
    expect(run_button(page)).to_be_visible()
    expect(measured(page)).to_have_count(0)
    stage = Stage(page)
    stage.do("forward")
    stage.at_step(1)
    preset(page, "Toy 8×8").click()
    expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("H=8,W=8"))
    run(page)
    expect(note).to_have_count(0)


@pytest.mark.slow
def test_stop_ends_a_long_run_and_the_next_in_line_runs(lesson, new_page, app):
    page = lesson(LONG)
    run_button(page).click()
    expect(page.locator(".strip-run")).to_contain_text("reference")
    (running,) = runners(app)

    other = lesson("K=6&H=11", of=new_page())  # not requested before: else the result would be returned at once
    run_button(other).click()
    expect(other.locator(".strip-run")).to_contain_text("1 ahead of you")

    stop_button(page).click()
    expect(run_button(page)).to_be_visible()
    expect(page.locator(".st-key-card_time .kt-note")).to_contain_text("cancelled")
    expect(page.locator(".strip-progress")).to_have_count(0)
    expect(measured(page)).to_have_count(0)
    running.wait(10)  # the process itself is gone
    expect(measured(other)).to_be_visible(timeout=RUN_MS)
    assert running.pid not in [child.pid for child in runners(app)]


@pytest.mark.slow
def test_preset_can_change_during_a_run(lesson, app):
    page = lesson("K=5")
    run_button(page).click()
    with suspended(app):
        expect(stop_button(page)).to_be_visible()
        preset(page, "LeNet conv1").click()
        expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("H=32,W=32,K=6"))
    # The run continues, ends, and is marked as a run of the toy.
    expect(page.locator(".st-key-card_time .kt-stale")).to_contain_text("measured at N1 C1 8x8 K5", timeout=RUN_MS)
    expect(run_button(page)).to_be_visible()
    expect(page.locator(".st-key-card_memory .kt-badge")).to_contain_text("recorded")
    expect(page.locator(".st-key-card_why .kt-badge-measured")).to_have_count(0)
    page.go_back()
    expect(page.locator(".stage")).to_have_attribute("data-scene", re.compile("H=8,W=8"))
    expect(page.locator(".kt-stale")).to_have_count(0)
    expect(measured(page)).to_be_visible()


@pytest.mark.slow
def test_cards_work_without_the_stage(page, server):
    page.goto(f"{server}/im2col?engine=cpu&view=run&embed=true")
    run(page)
    expect(bars(page, "chart_times_measured")).to_have_count(3)
    expect(page.locator(".stage")).to_have_count(0)
    expect(page.locator("h1")).to_have_count(0)
