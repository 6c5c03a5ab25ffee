"""The history in a real browser: runs picked and compared, filters, files, text that is not trusted, a phone."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.records import link, rows
from kernels.records.jsontext import id_of
from kernels.records.store import user_store
from tests.helpers.harness import idle
from tests.helpers.rows_of import a_row
from visuals import units

pytestmark = pytest.mark.browser

TOY = CONV_PRESETS["toy"].shape
DIRECT, LIBRARY = (id_of(records.recorded(r, TOY, {"BLOCK": 256})) for r in ("conv/direct", "conv/im2col-cublas"))
MS = {id_of(row): row["median_ms"] for row in records.everything()}
# The history names shapes by these: block sizes of the toy, and toys with other padding.
NAMED = {name: TOY.params()[name] for name in ("N", "C", "H", "W")}
TOYS = sum(
    (r["rung"], r["mode"]) == ("conv/direct", "cold") and r["shape"].items() >= NAMED.items()
    for r in records.everything()
    if r["device"] == "NVIDIA H200"
)
CARD = ".st-key-card_compared"
PHONE = {"width": 390, "height": 844}
FITS = "document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth"


@pytest.fixture
def history(page, server):
    """Returns a function that opens the list of all runs, or of those of a query."""

    def open_(query="", of=None):
        of = of or page
        of.goto(f"{server}/history?group=all&{query}")
        expect(of.locator(".kt-rows tbody tr").first).to_be_visible()
        return of

    return open_


def verdict(page):
    return page.locator(".kt-verdict")


def pick_button(page, letter, nth):
    return page.locator(f".kt-pick-{letter}").nth(nth)


def settled(page):
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    idle(page)


def test_two_picked_runs_are_compared(history):
    page = history("device=cuda%3A+NVIDIA+H200&shape=8x8+N%3D1+C%3D1&caches=cold&rung=conv%2Fdirect")
    expect(page.locator(".kt-rows tbody tr")).to_have_count(TOYS)
    expect(page.locator(CARD)).to_contain_text("Choose a run as A")
    # The newest two differ in the block size alone.
    pick_button(page, "A", 0).click()
    expect(page.locator(f"{CARD} .kt-letter")).to_have_text(["A"])
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]{20}"))
    expect(page.locator(".kt-dot")).to_have_count(100)
    expect(verdict(page)).to_have_count(0)
    expect(pick_button(page, "A", 0)).to_have_attribute("aria-current", "true")

    pick_button(page, "B", 1).focus()
    page.keyboard.press("Enter")
    expect(verdict(page)).to_be_visible()
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]{20}.*against=[0-9a-f]{20}"))
    expect(page.locator(f"{CARD} .kt-badge-recorded")).to_have_count(2)
    expect(page.get_by_role("region", name="What differs")).to_contain_text("tile sizes")
    expect(pick_button(page, "B", 1)).to_be_focused()  # although the list was drawn anew
    assert "caches=cold" in page.url and "shape=" in page.url  # the filters stay

    verdict_text = verdict(page).inner_text()
    page.reload()  # the URL is the source of truth
    expect(verdict(page)).to_have_text(verdict_text)
    expect(pick_button(page, "B", 1)).to_be_visible()
    idle(page)
    page.go_back()
    expect(verdict(page)).to_have_count(0)
    idle(page)
    page.go_forward()
    expect(verdict(page)).to_have_text(verdict_text)
    idle(page)
    pick_button(page, "A", 0).click()  # deselected: B alone is shown
    expect(verdict(page)).to_have_count(0)
    expect(page.locator(f"{CARD} .kt-letter")).to_have_count(1)


def test_filters_are_in_the_url_and_files_have_the_filtered_rows(history):
    page = history()
    head = page.locator(".st-key-list_head .kt-figures")
    settled(page)
    page.get_by_role("combobox", name="caches").click()
    page.get_by_role("option", name="hot").click()
    expect(page).to_have_url(re.compile(r"caches=hot"))
    expect(page.locator(".kt-where").nth(1)).to_contain_text("hot")
    page.get_by_label("shape").fill("N=32 H=7")
    page.get_by_label("shape").press("Enter")
    expect(page).to_have_url(re.compile(r"shape=N"))
    wanted = {"N": 32, "H": 7}
    expected = [r for r in records.everything() if r["mode"] == "hot" and r["shape"].items() >= wanted.items()]
    expect(head).to_have_text(f"{len(expected)} runs, newest first")
    settled(page)
    exported = rows.parse(download(page, "JSON"))
    assert sorted(map(id_of, exported)) == sorted(map(id_of, expected))
    table = list(csv.DictReader(io.StringIO(download(page, "CSV"))))
    assert [float(line["median_ms"]) for line in table] == [r["median_ms"] for r in exported]
    page.get_by_label("shape").fill("no such shape")
    page.get_by_label("shape").press("Enter")
    expect(head).to_have_text("No run has these values.")


def download(page, name):
    with page.expect_download() as download:
        page.locator(".st-key-chips_files").get_by_role("button", name=name, exact=True).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_samples_of_both_runs_share_an_axis_and_a_phone_shows_them_first(history):
    page = history(f"run={DIRECT}&against={LIBRARY}")
    expect(verdict(page)).to_have_text(
        re.compile(rf"^A is {MS[LIBRARY] / MS[DIRECT]:.3g} times as fast as B \(1\.\d+ to 1\.\d+\)\.$")
    )
    lanes = page.locator(".kt-lane")
    expect(lanes).to_have_count(2)
    expect(lanes.first).to_have_attribute(
        "aria-label", re.compile(rf"^A: median {units.time_(MS[DIRECT])}, p20 .*, n = 100$")
    )
    median_x = [page.locator(".kt-median").nth(n).bounding_box()["x"] for n in (0, 1)]
    axis = page.locator(".kt-axis").bounding_box()
    left, right = (
        float(t.split()[0])
        for t in page.locator(".kt-tick").all_inner_texts()[:: len(page.locator(".kt-tick").all()) - 1]
    )
    for x, row in zip(median_x, (DIRECT, LIBRARY), strict=True):
        share = (x + 1 - axis["x"]) / axis["width"]
        assert left + share * (right - left) == pytest.approx(1e3 * MS[row], abs=0.1)

    page.set_viewport_size(PHONE)
    assert verdict(page).bounding_box()["y"] < page.locator(".kt-rows").bounding_box()["y"]
    page.wait_for_function(FITS)
    expect(page.get_by_role("row")).not_to_have_count(0)  # still a table for screen readers


def test_link_contains_a_run_that_another_store_lacks(history, page, server):
    user_store().add([a_row(7, device="my GPU", time="2999-01-02T00:00:00Z")])
    history(f"run={id_of(a_row(7, device='my GPU', time='2999-01-02T00:00:00Z'))}&against={DIRECT}")
    expect(page.locator(f"{CARD} .kt-badge-measured")).to_have_text("measured my GPU, cold, n = 20")
    settled(page)
    page.locator(CARD).get_by_role("button", name="link").click()
    url = page.locator("[data-testid=stPopoverBody] code").inner_text()
    params = parse_qs(urlsplit(url).query)
    assert url.startswith(f"{server}/history?") and params["against"] == [DIRECT]
    row = link.unpack(params["result"][0]) | {"device": "your GPU"}  # a run that this store does not have

    page.goto(f"{server}/history?embed=true&result={link.pack(row)}&against={DIRECT}")
    expect(verdict(page)).to_be_visible()
    expect(page.locator(".kt-badge").first).to_have_text("recorded your GPU, cold, n = 20, from the link")
    expect(page.locator(".kt-lane")).to_have_count(2)
    expect(page.locator(".kt-rows, .st-key-nav, h1")).to_have_count(0)  # only the comparison


def test_what_a_row_or_a_link_says_is_escaped(history):
    evil = "<img src=x onerror=alert(1)>"
    row = a_row(8, device=evil, time="2999-01-03T00:00:00Z", later={evil: evil})
    user_store().add([row], evil)
    page = history(f"run={id_of(row)}&against=..%2F..%2Fetc&rung=%3Cimg%20src=x%20onerror=alert(1)%3E&page=-7")
    expect(page.locator(".kt-note").first).to_be_visible()
    expect(page.locator(".kt-rows tbody tr")).to_have_count(20)
    expect(page.locator(".kt-rows tbody tr").first).to_contain_text(evil)
    expect(page.locator(f"{CARD} .kt-badge").first).to_contain_text(evil)
    expect(page.locator("img[src=x], .stMain script")).to_have_count(0)


def test_first_screen_leads_to_the_runs_of_a_lesson_and_shape_also_on_a_phone(page, server):
    page.set_viewport_size(PHONE)
    page.goto(f"{server}/history")
    lessons = page.locator(".kt-lesson")
    expect(lessons.first).to_be_visible()
    assert len(lessons.all()) >= 6
    compare = page.get_by_role("heading", name="Compare").bounding_box()
    assert compare["y"] < lessons.first.bounding_box()["y"]
    expect(page.locator(".kt-lesson li").first).to_be_hidden()
    lessons.locator("summary").filter(has_text="softmax").click()
    page.wait_for_function(FITS)
    page.set_viewport_size({"width": 1440, "height": 900})
    link = page.locator(".kt-lesson[open] li a").first
    shape = link.inner_text()
    link.click()
    expect(page.locator(".kt-rows .kt-what b").first).to_contain_text("softmax: ")
    expect(page.locator(".kt-rows .kt-what span").first).to_contain_text(shape)
    expect(page).to_have_url(re.compile(r"group=softmax\.[0-9a-f]{10}"))
    pick_button(page, "A", 0).click()
    expect(page.locator(f"{CARD} .kt-letter")).to_have_text(["A"])
    expect(page.locator(".kt-rows .kt-what b").first).to_contain_text("softmax: ")  # the group stays
    idle(page)
    page.get_by_role("link", name="all lessons").click()
    expect(lessons.first).to_be_visible()
    idle(page)
    page.go_back()
    expect(page.locator(".kt-rows .kt-what b").first).to_contain_text("softmax: ")
