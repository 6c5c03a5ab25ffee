"""The script that records transfers, on a stand-in for CuPy: it ends with a record whatever fails."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import transfers
from kernels.engines.cuda import device
from kernels.transfers import cuda, measure, rates, recorded, scenarios
from kernels.transfers.scenarios import SCENARIOS, Settings, operations
from tests.helpers import fake_cupy


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """Puts the stand-in in CuPy's place, and makes all arrays small."""
    module = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    for where in (cuda, measure, device, transfers):
        monkeypatch.setattr(where, "load", lambda: module)
    monkeypatch.setattr(cuda, "compile_kernel", fake_cupy.compile_kernel)
    monkeypatch.setattr(scenarios, "WIDTH", 16)
    monkeypatch.setattr(measure, "WARM_UP", 0)
    monkeypatch.setattr(transfers, "ROWS", 64)
    monkeypatch.setattr(transfers, "LARGE_ROWS", 64)
    monkeypatch.setattr(transfers, "SIZES", (4096, 60_000_000))
    monkeypatch.setattr(transfers, "COPY_REPEATS", 1)
    monkeypatch.setattr(transfers, "CALL_REPEATS", 20)
    monkeypatch.setattr(transfers.cuda, "ceilings", lambda: {"launch_host_us": 5.0, "launch_us": 1.5})
    operations.cache_clear()
    yield module
    operations.cache_clear()


def run(seconds: float = 1e9) -> tuple[dict, list]:
    written = []
    transfers.record(lambda row: written.append(json.dumps([row])), seconds)
    return json.loads(written[-1])[0], written


def test_a_record_has_every_part_and_the_rates_follow_from_it():
    found, _ = run()
    assert found["failed"] == {}
    assert found["scenarios"].keys() == SCENARIOS.keys()
    assert [p["n"] for p in found["pieces"]] == list(transfers.COUNTS)
    assert found["logs"]["leak"]["log"] and not found["logs"]["no_leak"]["log"]
    r = rates.from_record(found)
    assert r.call_ms == 0.005 and r.malloc_ms > 0 and r.copies["h2d_pinned"].bytes_per_s > 0
    assert {s.scenario for s in transfers.settings()} == set(SCENARIOS)


def test_the_record_is_what_the_lesson_reads(monkeypatch):
    found, _ = run()
    monkeypatch.setattr(recorded, "records", lambda: (found,))
    row = recorded.scenario("pieces", 64, 8)
    assert row["total_ms"] > 0 and recorded.timeline(row).spans
    assert row["ops"] == len(operations(Settings("pieces", 64, 8)))
    assert recorded.scenario("pieces", 64, 9) is None
    assert [p["n"] for p in recorded.curve()] == list(transfers.COUNTS)


def test_a_part_that_fails_leaves_its_error_and_the_others_follow(monkeypatch):
    def broken(*args):
        raise fake_cupy.CUDARuntimeError("cudaErrorNotSupported")

    monkeypatch.setattr(cuda.CudaBackend, "begin_capture", broken)
    monkeypatch.setattr(transfers, "copies", broken)
    found, written = run()
    assert found["failed"] == dict.fromkeys(("copies", "scenarios/graph"), "CUDARuntimeError: cudaErrorNotSupported")
    assert found["scenarios"].keys() == SCENARIOS.keys() - {"graph"} and "copies" not in found
    assert len(written) > len(SCENARIOS)


def test_after_its_time_no_part_begins():
    clock = iter(range(0, 10_000, 10)).__next__
    found = transfers.record(lambda row: None, 25, lambda: float(clock()))
    late = [text for text in found["failed"].values() if text == "not begun: 25 s were over"]
    assert len(late) > len(SCENARIOS) and "copies" in found


def test_main_writes_the_file(tmp_path, monkeypatch, capsys):
    out = tmp_path / "transfers.json"
    monkeypatch.setattr(sys, "argv", ["transfers", str(out)])
    transfers.main()
    (found,) = json.loads(out.read_text("utf-8"))
    assert "failed: nothing" in capsys.readouterr().out and found["copies"]
