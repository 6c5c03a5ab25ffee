"""The history without a browser: list, comparison and rejected values."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.records import folder, link, rows, store
from kernels.records.jsontext import id_of
from kernels.records.store import Filter
from pages.history import history
from tests.helpers.page_runner import components, links, open_page, texts
from tests.helpers.rows_of import a_row
from visuals import units

open_at = partial(open_page, "history/page.py")
TOTAL = len(records.everything())
TOY = CONV_PRESETS["toy"].shape
DIRECT, LIBRARY = (records.recorded(r, TOY, {"BLOCK": 256}) for r in ("conv/direct", "conv/im2col-cublas"))


@pytest.fixture
def empty_store(tmp_path, monkeypatch):
    """Yields an empty store for one test."""
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "data"))
    store._store.cache_clear()
    yield store.user_store()
    store._store.cache_clear()


def listed(at):
    (component,) = components(at)
    return json.loads(component.proto.json)


def test_recordings_are_listed_in_pages(empty_store):
    at = open_at(group="all")
    assert f"{TOTAL:,} runs, newest first" in texts(at)
    data = listed(at)
    assert len(data["lines"]) == 20 and data["page"] == 1 and data["pages"] == -(-TOTAL // 20)
    assert {line["kind"] for line in data["lines"]} == {"recorded"}
    last = listed(open_at(group="all", page=str(data["pages"])))
    assert len(last["lines"]) == (TOTAL - 1) % 20 + 1
    assert not {line["id"] for line in last["lines"]} & {line["id"] for line in data["lines"]}
    assert not empty_store.database.path.exists()  # reading writes nothing


# -- the groups ----------------------------------------------------------------------------------
def test_first_screen_groups_runs_by_lesson_and_shape(empty_store):
    at = open_at()
    data = listed(at)
    assert f"{TOTAL:,} runs, by lesson and shape" in texts(at) and data["lines"] == []
    recorded = {row["rung"].partition("/")[0] for row in records.everything()}
    lessons = [lesson for lesson, ladders in history.LESSONS.items() if recorded & set(ladders)]
    assert [lesson["title"] for lesson in data["lessons"]] == lessons
    shapes = {(r["rung"].partition("/")[0], str(r["shape"])) for r in records.everything()}
    assert sum(len(lesson["groups"]) for lesson in data["lessons"]) == len(shapes)
    softmax = next(lesson for lesson in data["lessons"] if lesson["title"] == "softmax")
    rung_rows = [r for r in records.everything() if r["rung"].startswith("softmax/")]
    assert softmax["about"].endswith(f" · {len(rung_rows)} runs")


def test_group_lists_its_runs_with_the_lesson_in_their_names(empty_store):
    (softmax,) = [lesson for lesson in listed(open_at())["lessons"] if lesson["title"] == "softmax"]
    group = softmax["groups"][0]
    at = open_at(group=group["key"])
    data = listed(at)
    of_shape = [
        r for r in records.everything() if r["rung"].startswith("softmax/") and rows.shape_text(r) == group["shape"]
    ]
    assert f"{len(of_shape)} runs of softmax {group['shape']}, newest first" in texts(at)
    assert group["about"] == f"{len({r['rung'] for r in of_shape})} kernels · {len(of_shape)} runs"
    assert len(data["lines"]) == min(20, len(of_shape)) and not data["lessons"] and data["back"]
    assert all(line["what"].startswith("softmax: ") for line in data["lines"])
    assert all(line["shape"].startswith(group["shape"]) for line in data["lines"])


def test_runs_of_this_machine_are_above_the_groups_and_in_them(empty_store):
    new = [a_row(n, time=f"2999-01-01T00:00:{n:02}Z") for n in range(7)]
    empty_store.add(new)
    empty_store.add([a_row(8, rung="later/kernel", shape={"Z": 3})])
    data = listed(open_at())
    assert [line["when"] for line in data["lines"]] == ["2999-01-01 00:00" for n in range(5)]
    assert data["lessons"][-1]["title"] == "others" and data["lessons"][-1]["groups"][0]["shape"] == "Z=3"
    (convolution,) = (lesson for lesson in data["lessons"] if lesson["title"] == "convolution")
    groups = {g["shape"]: g for g in convolution["groups"]}
    assert len(listed(open_at(group=groups["N1 C1 8x8 K2 3x3"]["key"], origin="here"))["lines"]) == 7


def test_every_run_is_on_exactly_one_page_in_order(empty_store):
    dates = sorted({rows.measured_at(row) for row in records.everything()})
    empty_store.add([a_row(n, time=f"{dates[n % 2 and -1]}T00:00:{n:02}Z") for n in range(30)])
    archive = history.Archive()
    entries = [e for skip in range(0, TOTAL + 40, 300) for e in archive.some(Filter(), 300, skip)]
    assert len({e.id for e in entries}) == len(entries) == TOTAL + 30
    assert [rows.measured_at(e.row) for e in entries] == sorted(
        (rows.measured_at(e.row) for e in entries), reverse=True
    )


def test_runs_measured_here_come_first_and_are_named_measured(empty_store):
    empty_store.add([a_row(time="2999-01-01T00:00:00Z")])
    empty_store.add([a_row(1, time="2998-01-01T00:00:00Z")], "anna.json")
    first, second, *_ = listed(open_at(group="all"))["lines"]
    assert (first["kind"], first["when"]) == ("measured", "2999-01-01 00:00")
    assert (second["kind"], second["when"]) == ("recorded", "2998-01-01 00:00 · anna.json")
    assert first["shape"] == "N1 C1 8x8 K2 3x3 · BLOCK 256" and first["device"] == "a processor, cold"


@pytest.mark.parametrize(
    ("params", "means"),
    [
        ({"rung": "conv/direct"}, lambda r: r["rung"] == "conv/direct"),
        ({"caches": "hot"}, lambda r: r["mode"] == "hot"),
        ({"device": "cuda: NVIDIA H200"}, lambda r: r["device"] == "NVIDIA H200"),
        ({"origin": "recorded"}, lambda r: True),
        ({"group": "all"}, lambda r: True),
        ({"shape": "C=64 56x56"}, lambda r: r["shape"].get("C") == 64 and r["shape"]["H"] == 56),
        (
            {"rung": "conv/direct", "caches": "hot", "shape": "n=32"},
            lambda r: (r["rung"], r["mode"], r["shape"].get("N")) == ("conv/direct", "hot", 32),
        ),
    ],
)
def test_filters_from_the_url(empty_store, params, means):
    at = open_at(**params)
    assert f"{sum(map(means, records.everything())):,} runs, newest first" in texts(at)
    assert "kt-note" not in texts(at)


def test_changed_filter(empty_store):
    at = open_at()
    at.selectbox(key="caches").set_value("hot").run()
    assert all(line["device"].endswith(", hot") for line in listed(at)["lines"])
    at.text_input(key="shape").set_value("nothing like it").run()
    assert "No run has these values." in texts(at) and not components(at)
    assert not at.exception


def test_one_run_by_id(empty_store):
    text = texts(open_at(run=id_of(DIRECT)))
    assert "kt-badge-recorded" in text and "NVIDIA H200, cold, n = 100" in text
    assert DIRECT["driver"] in text and units.time_(DIRECT["median_ms"]) in text
    assert text.count("kt-dot") == 100 and "kt-verdict" not in text


def test_two_runs_by_id(empty_store):
    text = texts(open_at(run=id_of(DIRECT), against=id_of(LIBRARY)))
    times = LIBRARY["median_ms"] / DIRECT["median_ms"]
    assert times > 1.2 and f"A is {times:.3g} times as fast as B (" in text
    assert text.count("kt-dot") == 200 and "kt-differs" in text
    assert "They differ in: kernel." in text and "The same in both" in text


def test_cold_and_hot_are_not_compared(empty_store):
    hot = records.recorded("conv/direct", TOY, {"BLOCK": 256}, "hot")
    text = texts(open_at(run=id_of(DIRECT), against=id_of(hot)))
    assert "Times not compared: different cache modes (cold and hot)." in text
    assert text.count("kt-lanes") == 2  # not on one axis


def test_run_contained_in_the_url(empty_store):
    row = a_row(device="someone's GPU")
    at = open_at(result=link.pack(row), against=id_of(DIRECT))
    assert "recorded someone&#x27;s GPU, cold, n = 20, from the link" in texts(at)
    assert "kt-verdict" in texts(at) and f"{TOTAL:,} runs" in texts(at)
    assert not empty_store.database.path.exists()  # shown, not stored
    empty_store.add([row])
    assert "measured someone&#x27;s GPU, cold, n = 20<" in texts(open_at(result=link.pack(row)))


def test_link_contains_a_run_of_this_store(empty_store):
    row = a_row()
    empty_store.add([row])
    at = open_at(run=id_of(row), against=id_of(DIRECT))
    (url,) = [code.value for code in at.code]
    assert f"result={link.pack(row)}" in url and f"against={id_of(DIRECT)}" in url


EVIL = "<img src=x onerror=alert(1)>"


def test_foreign_text_is_escaped(empty_store):
    row = a_row(device=EVIL, time="2999", commit=EVIL, later={"<b>": EVIL}, tiles={EVIL: 3})
    empty_store.add([row], EVIL)
    at = open_at(group="all", run=id_of(row), against=id_of(row))
    assert "<img" not in texts(at) and "&lt;img" in texts(at)
    assert any(line["device"] == f"{EVIL}, cold" for line in listed(at)["lines"])  # set as text by the browser


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"run": "f" * 20}, "A: There is no run “ffffffffffffffffffff” here"),
        ({"against": "'; DROP TABLE rows"}, "B: There is no run “&#x27;; DROP TABLE rows” here"),
        ({"run": EVIL}, "A: There is no run “&lt;img src=x"),
        ({"result": "AAAA"}, "A: the result in the link is damaged"),
        ({"result": "x" * 9000}, "A: the result in the link is longer than"),
        ({"against_result": "<b>"}, "B: the result in the link is not one that this app wrote"),
        ({"rung": "<b>"}, "No run has kernel “&lt;b&gt;”. All are listed."),
        ({"device": "1"}, "No run has device “1”"),
        ({"origin": "nobody"}, "No run has from “nobody”"),
        ({"page": "99999"}, "This list has no page “99999”"),
        ({"group": "<b>", "origin": "recorded"}, "There is no group of runs “&lt;b&gt;” here."),
        ({"page": "-1"}, "This list has no page “-1”"),
        ({"page": "²"}, "This list has no page “²”"),
    ],
)
def test_hostile_parameters_give_notes_and_the_defaults(empty_store, params, words):
    at = open_at(**{"group": "all"} | params)
    assert words in texts(at) and "<b>" not in texts(at).replace("<b>A</b>", "").replace("<b></b>", "")
    assert len(listed(at)["lines"]) == 20 and listed(at)["page"] == 1


def test_damaged_store_is_reported_and_recordings_are_listed(empty_store):
    empty_store.add([a_row()])
    shutil.rmtree(empty_store.database.path.parent)
    empty_store.database.path.parent.mkdir()
    empty_store.database.path.write_bytes(b"no database" * 500)
    store._store.cache_clear()
    at = open_at()
    assert "The store was damaged. It was set aside as measurements.damaged-" in texts(at)
    assert f"{TOTAL:,} runs" in texts(at)


def test_failing_store_is_reported_and_recordings_are_listed(empty_store, monkeypatch):
    def locked(*args, **kwargs):
        raise store.StoreError("The store is locked by another process; try again in a moment.")

    monkeypatch.setattr(store.Store, "database", property(locked))
    at = open_at(run=id_of(DIRECT))
    assert texts(at).count("locked by another process") == 1
    assert f"{TOTAL:,} runs" in texts(at) and "kt-strips" in texts(at)


def test_history_of_several_machines_is_that_of_their_database(postgres, monkeypatch):
    monkeypatch.setenv(folder.STORE, postgres.database("history"))
    row = a_row(8, rung="later/kernel", shape={"Z": 3})
    store.user_store().add([row])
    at = open_at(run=id_of(row))
    assert f"{TOTAL + 1:,} runs" in texts(at) and "measured on a machine that shares this history" in texts(at)
    assert listed(at)["texts"]["here"] == "Newest runs of all machines"
    assert [line["id"] for line in listed(at)["lines"]] == [id_of(row)]
    postgres.stop()
    try:
        at = open_at()
        assert texts(at).count("/history cannot be reached: ") == 1 and f"{TOTAL:,} runs" in texts(at)
    finally:
        postgres.start()


def test_import_reports_its_result(empty_store):
    at = open_at()
    new = [a_row(n) for n in range(3)]
    at.file_uploader(key="upload").set_value(("anna.json", rows.to_json(new).encode(), "application/json")).run()
    assert "3 rows read, 3 new." in texts(at) and f"{TOTAL + 3:,} runs" in texts(at)
    assert {e.origin for e in empty_store.rows()} == {"anna.json"}
    at.file_uploader(key="upload").set_value(("bad.json", b'[{"rung": 1}]', "application/json")).run()
    assert "nothing was taken. row 1: rung must be a line" in texts(at) and empty_store.count() == 3
    at.file_uploader(key="upload").set_value(("bytes.json", b"\xff\xfe", "application/json")).run()
    assert "not text in UTF-8" in texts(at)


def test_navigation_links_to_history():
    assert "History" in links(open_page(None))


def test_example_opens_a_comparison(empty_store):
    at = open_at()
    at.button(key="example_0").click().run()
    assert "B is" in texts(at) and "times as fast as A" in texts(at) and not at.exception
