"""The recorded runs of collectives: every row is whole, verified and of a known collective."""

from __future__ import annotations

import pytest

from kernels.collectives import cost, recorded
from kernels.collectives.recorded import NCCL
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ITEM
from tests.helpers.offenders import every

ROWS = [row for run in recorded.runs() for row in run["rows"]]


def check_row(row: dict) -> None:
    """Raises AssertionError if a row contradicts itself."""
    assert row["bytes"] == ITEM * row["elements"] and row["n"] >= 3
    assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]
    if row["kind"] == "copy":
        return
    assert row["algorithm"] in (*ALGORITHMS[row["kind"]], NCCL)
    assert 0 <= row["error"] <= 1  # in units of its tolerance: it was verified
    bus = row["bytes"] * cost.bus_factor(row["kind"], row["ranks"]) / (row["median_ms"] / 1e3)
    assert row["bus_bytes_per_s"] == pytest.approx(bus, rel=1e-3)


def test_every_recorded_row_is_whole():
    for row in ROWS:
        check_row(row)
    for run in recorded.runs():
        assert run["device"] and run["date"] and run["machine"]["ranks"] >= 2


@every(
    "change",
    [{"error": 2.0}, {"median_ms": 9.0}, {"bytes": 5}, {"algorithm": "guess"}, {"bus_bytes_per_s": 1}, {"n": 1}],
)
def test_a_row_that_contradicts_itself_is_noticed(change):
    row = {
        "kind": ALL_REDUCE,
        "algorithm": "ring",
        "ranks": 2,
        "elements": 256,
        "bytes": 1024,
        "launch": "launch",
        "median_ms": 0.01,
        "p20_ms": 0.009,
        "p80_ms": 0.02,
        "n": 9,
        "bus_bytes_per_s": 102_400_000,
        "error": 0.5,
    }
    check_row(row)
    with pytest.raises(AssertionError):
        check_row(row | change)


def test_a_link_is_named_with_its_device():
    for kind, algorithms in ALGORITHMS.items():
        for algorithm in (*algorithms, NCCL):
            link, device = recorded.link(kind, algorithm, 4)
            assert link.latency > 0 and link.bandwidth > 0 and " × " in device
            assert recorded.predicted_ms(kind, algorithm, 4, 1 << 30) > recorded.predicted_ms(kind, algorithm, 4, 1024)


def test_rows_of_two_machines_are_never_mixed(monkeypatch):
    def run(device, date, ms):
        row = {"kind": ALL_REDUCE, "algorithm": "ring", "ranks": 2, "launch": "launch", "bytes": 1024, "median_ms": ms}
        return {"device": device, "date": date, "rows": [row, row | {"bytes": 2048 * ms}]}

    both = run("A", "2026-11-20", 1), run("B", "2026-11-21", 2)
    monkeypatch.setattr(recorded, "runs", lambda: both)
    assert [(row["device"], row["bytes"]) for row in recorded.rows(ALL_REDUCE, "ring", 2)] == [("B", 1024), ("B", 4096)]
    found = recorded.rows(ALL_REDUCE, "ring", 2, device="A")
    assert [(row["device"], row["bytes"]) for row in found] == [("A", 1024), ("A", 2048)]
    assert recorded.rows(ALL_REDUCE, "ring", 4) == recorded.rows(ALL_REDUCE, "ring", 2, device="C") == []
    monkeypatch.setattr(recorded, "runs", lambda: (run("A", "2026-11-21", 1), run("B", "2026-11-21", 2)))
    assert recorded.rows(ALL_REDUCE, "ring", 2)[0]["device"] == "B"  # the later of the same day


def test_the_faster_way_to_launch_is_shown(monkeypatch):
    row = {"kind": ALL_REDUCE, "algorithm": "ring", "ranks": 2, "bytes": 1024}
    rows = [row | {"launch": name, "median_ms": ms} for name, ms in (("launch", 2), ("graph", 1), ("other", 3))]
    monkeypatch.setattr(recorded, "runs", lambda: ({"device": "A", "date": "2026-11-20", "rows": rows},))
    assert [found["launch"] for found in recorded.rows(ALL_REDUCE, "ring", 2)] == ["graph"]
    assert [found["median_ms"] for found in recorded.rows(ALL_REDUCE, "ring", 2, "other")] == [3]
