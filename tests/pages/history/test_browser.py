"""The history in a real browser: list, filter, compare, files out and in, and links that carry the evidence."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.records import link as records_link
from kernels.records import rows
from kernels.records.jsontext import id_of
from kernels.records.store import mine
from tests.helpers.rows_of import a_row
from visuals.charts import units

pytestmark = pytest.mark.browser

RECORDED = len(records.recordings())
TOY = CONV_PRESETS["toy"].shape
DIRECT, LIBRARY = (
    id_of(records.recorded(r, TOY, {"BLOCK": 256})) for r in ("conv/direct", "conv/im2col-cublas")
)
MS = {id_of(row): row["median_ms"] for row in records.recordings()}
TOYS = sum(
    (r["rung"], r["shape"], r["mode"]) == ("conv/direct", TOY.params(), "cold") for r in records.recordings()
)
CARD = ".st-key-card_compared"


@pytest.fixture
def history(page, server):
    def open_(query="", of=None):
        of = of or page
        of.goto(f"{server}/history?{query}")
        expect(of.locator(".kt-rows tbody tr").first).to_be_visible()
        return of

    return open_


def verdict(page):
    return page.locator(".kt-verdict")


def pick(page, letter, nth):
    return page.locator(f".kt-pick-{letter}").nth(nth)


def settled(page):
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)


def test_pick_two_and_they_are_compared(history):
    page = history("device=cuda%3A+NVIDIA+H200&shape=8x8+N%3D1+C%3D1&caches=cold&rung=conv%2Fdirect")
    expect(page.locator(".kt-rows tbody tr")).to_have_count(TOYS)  # the block sizes
    expect(page.locator(CARD)).to_contain_text("Pick a run as A")
    pick(page, "A", 0).click()
    expect(page.locator(f"{CARD} .kt-letter")).to_have_text(["A"])
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]{20}"))
    expect(page.locator(".kt-dot")).to_have_count(100)
    expect(verdict(page)).to_have_count(0)
    expect(pick(page, "A", 0)).to_have_attribute("aria-current", "true")

    pick(page, "B", 1).focus()
    page.keyboard.press("Enter")
    expect(verdict(page)).to_be_visible()
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]{20}.*against=[0-9a-f]{20}"))
    expect(page.locator(f"{CARD} .kt-badge-recorded")).to_have_count(2)
    expect(page.get_by_role("region", name="What differs")).to_contain_text("tile sizes")
    expect(pick(page, "B", 1)).to_be_focused()  # the list was drawn anew under the key
    assert "caches=cold" in page.url and "shape=" in page.url  # the filters stay

    said = verdict(page).inner_text()
    page.reload()  # the address is the document
    expect(verdict(page)).to_have_text(said)
    page.go_back()
    expect(verdict(page)).to_have_count(0)
    page.go_forward()
    expect(verdict(page)).to_have_text(said)
    pick(page, "A", 0).click()  # let go: B alone is shown
    expect(verdict(page)).to_have_count(0)
    expect(page.locator(f"{CARD} .kt-letter")).to_have_count(1)


def test_the_samples_of_both_stand_on_one_axis(history):
    page = history(f"run={DIRECT}&against={LIBRARY}")
    expect(verdict(page)).to_have_text(
        re.compile(rf"^A is {MS[LIBRARY] / MS[DIRECT]:.3g} times as fast as B \(1\.\d+ to 1\.\d+\)\.$")
    )
    lanes = page.locator(".kt-lane")
    expect(lanes).to_have_count(2)
    expect(lanes.first).to_have_attribute(
        "aria-label", re.compile(rf"^A: median {units.time_(MS[DIRECT])}, p20 .*, n = 100$")
    )
    middle = [page.locator(".kt-median").nth(n).bounding_box()["x"] for n in (0, 1)]
    axis = page.locator(".kt-axis").bounding_box()
    left, right = (float(t.split()[0]) for t in page.locator(".kt-tick").all_inner_texts()[:: len(page.locator(".kt-tick").all()) - 1])  # fmt: skip
    for x, row in zip(middle, (DIRECT, LIBRARY), strict=True):
        share = (x + 1 - axis["x"]) / axis["width"]
        assert left + share * (right - left) == pytest.approx(1e3 * MS[row], abs=0.1)


def test_filters_live_in_the_address(history):
    page = history()
    head = page.locator(".st-key-list_head .kt-figures")
    settled(page)
    page.get_by_role("combobox", name="caches").click()
    page.get_by_role("option", name="hot").click()
    hot = sum(r["mode"] == "hot" for r in records.recordings())
    expect(page).to_have_url(re.compile(r"caches=hot"))
    expect(page.locator(".kt-where").nth(1)).to_contain_text("hot")
    page.get_by_label("shape").fill("N=32 H=7")
    page.get_by_label("shape").press("Enter")
    expect(page).to_have_url(re.compile(r"shape=N"))
    few = sum(
        r["mode"] == "hot" and r["shape"].get("N") == 32 and r["shape"].get("H") == 7
        for r in records.recordings()
    )
    expect(head).to_have_text(f"{few} runs, newest first")
    page.get_by_label("shape").fill("no such shape")
    page.get_by_label("shape").press("Enter")
    expect(head).to_have_text("No run is like that.")
    assert few < hot


def test_pages_of_the_list(history):
    page = history("origin=recorded")
    turn = page.get_by_role("navigation", name="pages of the list")
    first = page.locator(".kt-what").all_inner_texts()
    pages = -(-RECORDED // 20)
    expect(turn).to_contain_text(f"page 1 of {pages}")
    turn.get_by_role("link", name="older").click()
    expect(turn).to_contain_text(f"page 2 of {pages}")
    expect(page).to_have_url(re.compile(r"page=2"))
    assert page.locator(".kt-what").all_inner_texts() != first
    turn.get_by_role("link", name="newer").click()
    expect(turn).to_contain_text(f"page 1 of {pages}")


def test_exports_hold_what_is_filtered(history):
    page = history("rung=conv%2Fdirect&shape=N%3D32&origin=recorded")
    settled(page)
    meant = [r for r in records.recordings() if r["rung"] == "conv/direct" and r["shape"]["N"] == 32]
    got = rows.parse(download(page, "JSON"))
    assert sorted(map(id_of, got)) == sorted(map(id_of, meant))
    table = list(csv.DictReader(io.StringIO(download(page, "CSV"))))
    assert [float(line["median_ms"]) for line in table] == [r["median_ms"] for r in got]


def download(page, name):
    with page.expect_download() as told:
        page.locator(".st-key-chips_files").get_by_role("button", name=name, exact=True).click()
    return Path(told.value.path()).read_text(encoding="utf-8")


def test_a_colleagues_export_is_imported_once_and_a_bad_one_is_refused(history, tmp_path):
    page = history()
    settled(page)
    new = [a_row(n, device="Anna's GPU", time=f"2999-01-01T00:00:0{n}Z") for n in range(3)]
    page.get_by_role("button", name="import").click()
    upload(page, tmp_path / "anna.json", rows.exported(new))
    expect(page.get_by_text("3 rows read, 3 of them new.")).to_be_visible()
    upload(page, tmp_path / "again.json", json.dumps(new))
    expect(page.get_by_text("3 rows read, 0 of them new.")).to_be_visible()
    upload(page, tmp_path / "bad.json", json.dumps([new[0], new[1] | {"median_ms": 1e-9}]))
    expect(page.get_by_text("nothing was taken. row 2: median_ms is not that of samples_ms")).to_be_visible()
    upload(page, tmp_path / "evil.json", '[{"rung": "<img src=x onerror=alert(1)>"}]')
    expect(page.get_by_text("rung is not a name as this app gives it")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".kt-rows tbody tr").first).to_contain_text("recorded Anna's GPU, cold")
    expect(page.locator(".kt-rows tbody tr").first).to_contain_text("anna.json")
    assert mine().count() >= 3


def upload(page, path, text):
    path.write_text(text, encoding="utf-8")
    page.locator("input[type=file]").set_input_files(path)


def test_a_link_carries_the_evidence_to_whom_has_not_the_run(history, new_page, server):
    mine().add([a_row(7, device="my GPU", time="2999-01-02T00:00:00Z")])
    page = history(f"run={id_of(a_row(7, device='my GPU', time='2999-01-02T00:00:00Z'))}&against={DIRECT}")
    expect(page.locator(f"{CARD} .kt-badge-measured")).to_have_text("measured my GPU, cold, n = 20")
    settled(page)
    page.locator(CARD).get_by_role("button", name="link").click()
    link = page.locator("[data-testid=stPopoverBody] code").inner_text()
    told = parse_qs(urlsplit(link).query)
    assert link.startswith(f"{server}/history?") and told["against"] == [DIRECT]
    theirs = records_link.unpack(told["result"][0]) | {"device": "your GPU"}  # a run that this store has not

    slide = new_page()
    slide.goto(f"{server}/history?embed=true&result={records_link.pack(theirs)}&against={DIRECT}")
    expect(verdict(slide)).to_be_visible()
    expect(slide.locator(".kt-badge").first).to_have_text(
        "recorded your GPU, cold, n = 20, carried by the link"
    )
    expect(slide.locator(".kt-lane")).to_have_count(2)
    expect(slide.locator(".kt-rows, .st-key-nav, h1")).to_have_count(0)  # the evidence and nothing round it


@pytest.mark.parametrize(
    "query",
    [
        "result=%3Cscript%3Ealert(1)%3C/script%3E",
        "result=eNpLSSxJBAAEAAGU",
        f"result={records_link.pack(a_row())[:-9]}",
        "run=%3Cimg%20src=x%20onerror=alert(1)%3E&against=..%2F..%2Fetc",
        "rung=%3Cimg%20src=x%20onerror=alert(1)%3E&page=-7",
    ],
)
def test_a_hostile_link_is_named_and_the_list_is_there(history, query):
    page = history(query)
    expect(page.locator(".kt-note").first).to_be_visible()
    expect(page.locator(".kt-rows tbody tr")).to_have_count(20)
    expect(page.locator("img[src=x], .stMain script")).to_have_count(0)


def test_text_of_a_row_is_text(history):
    evil = "<img src=x onerror=alert(1)>"
    row = a_row(8, device=evil, time="2999-01-03T00:00:00Z", later={evil: evil})
    mine().add([row], evil)
    page = history(f"run={id_of(row)}")
    expect(page.locator(".kt-rows tbody tr").first).to_contain_text(evil)
    expect(page.locator(f"{CARD} .kt-badge").first).to_contain_text(evil)
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_on_a_phone_the_evidence_comes_first_and_nothing_sticks_out(history, page):
    page.set_viewport_size({"width": 390, "height": 844})
    history(f"run={DIRECT}&against={LIBRARY}")
    expect(verdict(page)).to_be_visible()
    assert verdict(page).bounding_box()["y"] < page.locator(".kt-rows").bounding_box()["y"]
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    expect(page.get_by_role("row")).not_to_have_count(0)  # still a table to who hears it
