"""Imports from a file or a link: either all rows are taken or none, and each refusal has a message."""

from __future__ import annotations

import base64
import csv
import io
import json
import zlib

import pytest

from kernels import records
from kernels.fusion.shape import MAX_BLOCKS, ChainShape
from kernels.ladders import find
from kernels.machine.timing import Budget
from kernels.records import link, rows
from kernels.records import row as records_row
from kernels.records.jsontext import RowError, canonical, id_of
from kernels.records.store import Store
from kernels.runner import run
from tests.helpers.offenders import every
from tests.helpers.rows_of import SHAPE, a_row


def changed(**changes):
    return a_row() | changes


def without(name):
    return {k: v for k, v in a_row().items() if k != name}


WRONG = {
    "is not an object": [1, None, "text", [a_row()]],
    "rung is missing": [without("rung")],
    "samples_ms is missing": [without("samples_ms")],
    "rung is not a name": [changed(rung="<b>x</b>"), changed(rung="../../etc")],
    "rung must be a line": [changed(rung=7), changed(rung="")],
    "device must be a line": [changed(device="a\nb"), changed(device="x" * 301), changed(device=None)],
    "mode must be one of cold, hot": [changed(mode="warm"), changed(mode=["cold"])],
    "shape must be an object": [changed(shape=[]), changed(shape={})],
    "shape: H must be in": [changed(shape=SHAPE | {"H": 0}), changed(shape=SHAPE | {"H": -1})],
    "shape: the filter must fit": [changed(shape=SHAPE | {"R": 99})],
    "shape: H must be a whole number": [changed(shape=SHAPE | {"H": 8.0})],
    "the shape's H must be a number or a line of words": [changed(shape=SHAPE | {"H": [8]})],
    "shape: ": [changed(shape=SHAPE | {"Z": 3})],
    "shape must name every field": [changed(shape={k: v for k, v in SHAPE.items() if k != "u"})],
    "tiles must be whole numbers": [changed(tiles={"BLOCK": "256"}), changed(tiles=[]), changed(tiles={"B": True})],
    "samples_ms must be a list": [changed(samples_ms=[]), changed(samples_ms=1.0), changed(samples_ms=[1.0] * 10_001)],
    "samples_ms must be times above 0": [
        changed(samples_ms=[0.0]),
        changed(samples_ms=["1"]),
        changed(samples_ms=[-1]),
    ],
    "n must be the number": [changed(n=3), changed(n=True), changed(n=20.0)],
    "median_ms is not that of samples_ms": [changed(median_ms=0.0001)],
    "p80_ms is not that of samples_ms": [changed(p80_ms=50.0)],
    "median_ms must be a number": [changed(median_ms="1")],
    "peak_bytes must be a whole number": [changed(peak_bytes=-1), changed(peak_bytes=1.5)],
    "error must be a number": [changed(error=-1e-9), changed(error=None)],
    "more than 63 bits": [changed(flops=2**64), changed(later=[10**30])],
    "a field that is no name": [changed(**{"<script>": 1}), changed(**{"a b": 1})],
    "nested deeper": [changed(later=json.loads("[" * 12 + "]" * 12))],
    "not Unicode": [changed(later="\ud800")],
    "commit must be a line": [changed(commit="\x00")],
}


@pytest.mark.parametrize(("message", "row"), [(w, r) for w, rows_ in WRONG.items() for r in rows_])
def test_one_malformed_row_refuses_the_whole_import(tmp_path, message, row):
    user_store = Store(tmp_path / "s.sqlite")
    with pytest.raises(RowError, match=r"^nothing was taken. row 2: ") as raised:
        user_store.import_(json.dumps([a_row(1), row, a_row(2)]), "mail.json")
    assert message in str(raised.value)
    assert user_store.count() == 0


@every(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("hello", "not JSON: Expecting value at line 1, column 1"),
        ("7", "no list of rows"),
        ('{"rows": []}', "format is not"),
        ('{"format": "kernel-theatre rows 2", "rows": []}', "another version"),
        (json.dumps([a_row()]).replace("1e-07", "NaN"), "NaN is not a number of JSON"),
        (json.dumps([a_row()]).replace("1e-07", "-Infinity"), "Infinity is not a number"),
        (json.dumps([a_row()]).replace("1e-07", "1e999"), "not finite"),
        (json.dumps([a_row()]).replace("1e-07", "9" * 5000), "too long"),
        ('[{"rung": 1, "rung": 2}]', "given twice"),
        ("[" * 100_000, "too long"),
        (json.dumps([a_row()])[:-9], "not JSON"),
    ],
    ids=lambda v: v[:30],
)
def test_malformed_file_is_refused(text, message):
    with pytest.raises(RowError) as raised:
        rows.parse(text)
    assert message in str(raised.value) and len(str(raised.value)) < 1000


def test_too_large_file_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr(rows, "MAX_BYTES", 1000)
    with pytest.raises(RowError, match="larger than"):
        rows.parse("[" + " " * 2000)
    monkeypatch.undo()
    with pytest.raises(RowError, match="at most 10,000"):
        rows.parse(json.dumps([0] * 10_001))
    with pytest.raises(RowError, match="larger than 256 KB"):
        rows.parse(json.dumps([a_row() | {"later": "x" * 300_000}]))


def test_many_errors_are_reported_briefly():
    with pytest.raises(RowError, match=r"row 5: .*; and 995 more$"):
        rows.parse(json.dumps([0] * 1000))


@pytest.mark.parametrize("form", ["export", "list", "lines", "one", "bom"])
def test_every_form_that_this_app_writes_is_read(form):
    new = [a_row(n) for n in range(1 if form == "one" else 3)]
    text = {
        "export": rows.to_json(new),
        "list": json.dumps(new, indent=1),
        "lines": "\n".join(map(json.dumps, new)) + "\n",
        "one": json.dumps(new[0]),
        "bom": "\ufeff" + rows.to_json(new),
    }[form]
    assert rows.parse(text) == new


def test_every_recording_can_be_imported_and_linked():
    recorded = list(records.recordings())
    assert rows.parse(rows.to_json(recorded)) == recorded
    assert len({id_of(row) for row in recorded}) == len(recorded)
    for row in recorded[::40]:
        assert link.unpack(link.pack(row)) == row


def test_chain_of_eight_blocks_is_stored_unchanged(tmp_path):
    """Its text is longer than that of any other shape."""
    block = "conv:K=3:R=3"
    shape = ChainShape(1, 2, 40, 40, " ".join([block] * MAX_BLOCKS))
    result = run("fusion/fused", shape, engine="cpu", budget=Budget(samples=5, seconds=0.1))
    program = find("fusion/fused").build(shape, result.tiles)
    user_store = Store(tmp_path / "s.sqlite")
    user_store.import_(json.dumps([records_row.row(result, program, "2026-01-01T00:00:00Z")]), "mail.json")
    (entry,) = user_store.rows()
    assert entry.row["shape"] == shape.params() and len(shape.chain) > 100


def test_rung_of_another_version_is_accepted_and_named_by_its_fields():
    row = a_row() | {"rung": "pooling/flash", "shape": {"B": 4, "H": 16, "d": 64}}
    rows.check(row)
    assert rows.shape_text(row) == "B=4 H=16 d=64"
    assert rows.matches("h=16", row["rung"], canonical(row["shape"]))


def test_csv_has_every_field_and_no_formula():
    text = rows.to_csv([a_row(1), a_row(2) | {"device": "=HYPERLINK(1)"}])
    first, second = csv.DictReader(io.StringIO(text))
    assert json.loads(first["samples_ms"]) == a_row(1)["samples_ms"] and first["error"] == "1e-07"
    assert second["device"] == "'=HYPERLINK(1)"


# -- in a link -----------------------------------------------------------------------------------
def packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_row_of_a_link_is_unchanged_and_has_the_same_id():
    row = a_row()
    text = link.pack(row)
    assert link.unpack(text) == row and id_of(link.unpack(text)) == id_of(row)
    assert len(text) < 1500 and text.isascii()


def test_too_long_link_leaves_out_the_largest_unknown_field():
    import random

    noise = random.Random(0)
    row = a_row() | {"timeline": [noise.random() for _ in range(2000)]}
    unpacked = link.unpack(link.pack(row))
    assert unpacked == {k: v for k, v in row.items() if k != "timeline"}
    assert link.pack(a_row(samples=[noise.uniform(1, 2) for _ in range(9000)])) == ""


@every(
    ("text", "message"),
    [
        ("", "not one that this app wrote"),
        ("<script>", "not one that this app wrote"),
        ("AAAA", "damaged"),
        ("A" * 3901, "longer than"),
        (link.pack(a_row())[:-30], "damaged"),
        (packed(zlib.compress(b"x" * 50_000_000, 9)[:2800]), "too large"),
        (packed(zlib.compress(b"[" * 100_000)), "too long"),
        (packed(zlib.compress(b"\xff\xfe")), "not text"),
        (packed(zlib.compress(b"{}")), "rung is missing"),
        (packed(zlib.compress(json.dumps(changed(device="<b>\n")).encode())), "device must be a line"),
    ],
)
def test_hostile_link_is_refused_with_a_message(text, message):
    with pytest.raises(RowError) as raised:
        link.unpack(text)
    assert message in str(raised.value)
