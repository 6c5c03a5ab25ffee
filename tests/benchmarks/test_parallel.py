"""The benchmark of data parallel steps, on queues in place of GPUs: rows with times, errors as text, nothing after the time."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from benchmarks import parallel
from kernels.engines.cuda import devices
from kernels.parallel.plan import DATA, Plan
from tests.helpers.fake_team import FakeTeam
from visuals.parallel import recorded


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns a run of the benchmark on fake GPUs whose steps take 1 ms."""
    monkeypatch.setattr(parallel, "team", FakeTeam)
    monkeypatch.setattr(parallel.Replicas, "seconds", lambda self, times: [self.step(), 1e-3][1])
    monkeypatch.setattr(parallel, "CHECKED_BATCH", 8)
    return parallel.Run(tmp_path / "out.json", 100.0)


def test_a_case_is_verified_timed_and_written(run, monkeypatch):
    run.case("lenet5", 8, 2, True)
    (row,) = json.loads(run.path.read_text())
    assert row["step_us"] == 1000 and len(row["samples"]) == parallel.SAMPLES
    assert 0 < row["error_of_weights"] < 1e-5 and "error" not in row
    monkeypatch.setattr(recorded, "rows", lambda: (row,))
    plan = Plan("lenet5", DATA, 2, 8, bucket_bytes=parallel.BUCKET_BYTES)
    assert recorded.recorded(plan) == row


def test_an_error_is_a_row_and_the_next_case_runs(run, monkeypatch):
    real = parallel.verified
    monkeypatch.setattr(parallel, "verified", lambda *case: (_ for _ in ()).throw(RuntimeError("link lost")))
    run.case("lenet5", 8, 2, True)
    monkeypatch.setattr(parallel, "verified", real)
    run.case("lenet5", 8, 1, True)
    first, second = json.loads(run.path.read_text())
    assert first["error"] == "RuntimeError: link lost" and "step_us" not in first
    assert second["step_us"] == 1000


def test_nothing_begins_after_the_time(run):
    run.end = 0
    run.case("lenet5", 8, 1, True)
    assert "no time left" in run.rows[0]["error"]


def test_a_gpu_that_hangs_ends_the_script_and_what_was_measured_is_kept(run, monkeypatch):
    ended = []
    monkeypatch.setattr(parallel.os, "_exit", ended.append)
    hangs = SimpleNamespace(side_effect=devices.DevicesHung("GPU 1 did not end within 20 s"))
    monkeypatch.setattr(parallel, "timed", lambda *case: (_ for _ in ()).throw(hangs.side_effect))
    run.case("lenet5", 8, 1, True)
    assert ended == [1] and "did not end" in json.loads(run.path.read_text())[0]["error"]


def test_each_case_has_both_ways_on_several_gpus_and_the_large_batch_comes_first():
    found = list(parallel.cases([1, 2]))
    assert found[:3] == [
        ("lenet5", 16_384, 1, True),
        ("lenet5", 16_384, 2, True),
        ("lenet5", 16_384, 2, False),
    ]
    assert len(found) == len(set(found)) == 3 * len(parallel.CASES)
