"""The benchmark of parallel steps, on queues in place of GPUs: rows with times, errors as text, nothing after the time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import parallel
from kernels.engines.cuda import devices
from kernels.parallel import measured
from kernels.parallel.devices import Ranks
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, Plan
from tests.helpers.fake_team import FakeTeam
from visuals.parallel import recorded


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns a run of the benchmark on fake GPUs whose steps take 1 ms."""
    monkeypatch.setattr(parallel, "team", FakeTeam)
    monkeypatch.setattr(Ranks, "seconds", lambda self, times: [self.step(), 1e-3][1])
    monkeypatch.setattr(measured, "CHECKED_BATCH", 8)
    return parallel.Run(tmp_path / "out.json", 100.0, {"device": "NVIDIA Pretence"})


def plan_of(gpus: int, way: str = DATA, micro: int = 1) -> Plan:
    return Plan("lenet5", way, gpus, 8, micro, parallel.BUCKET_BYTES)


@pytest.mark.parametrize(("way", "micro"), [(DATA, 1), (TENSOR, 1), (GPIPE, 2), (ONE_F_ONE_B, 4)])
def test_a_case_is_verified_timed_and_written(run, monkeypatch, way, micro):
    plan = plan_of(2, way, micro)
    run.case(plan, True)
    (row,) = json.loads(run.path.read_text())
    assert row["step_us"] == 1000 and len(row["samples"]) == measured.SAMPLES
    assert 0 < row["error_of_weights"] < 1e-5 and "error" not in row
    assert ("buckets" in row) == (way == DATA)
    monkeypatch.setattr(recorded, "all_rows", lambda: (row,))
    assert recorded.recorded(plan) == row
    if way in (GPIPE, ONE_F_ONE_B):
        assert recorded.recorded(replace(plan, micro=8)) is None


def test_wrong_weights_are_never_timed(run, monkeypatch):
    right = measured.after

    def wrong(plan, team, overlap):
        graph, weights = right(plan, team, overlap)
        return graph, [w + (plan.gpus > 1) for w in weights]

    monkeypatch.setattr(measured, "after", wrong)
    for way in (DATA, TENSOR, GPIPE):
        run.case(plan_of(2, way, 2), True)
        assert run.rows[-1]["error"].startswith("DifferentError") and "step_us" not in run.rows[-1]


def test_an_error_is_a_row_and_the_next_case_runs(run, monkeypatch):
    real = measured.verified
    monkeypatch.setattr(measured, "verified", lambda *case: (_ for _ in ()).throw(RuntimeError("link lost")))
    run.case(plan_of(2), True)
    monkeypatch.setattr(measured, "verified", real)
    run.case(plan_of(1), True)
    first, second = json.loads(run.path.read_text())
    assert first["error"] == "RuntimeError: link lost" and "step_us" not in first
    assert second["step_us"] == 1000


def test_rows_of_other_gpus_stay_and_those_of_the_same_are_replaced(run):
    old = [{"device": "NVIDIA Pretence", "step_us": 1}, {"device": "NVIDIA Other", "step_us": 2}]
    run.path.write_text(json.dumps(old))
    again = parallel.Run(run.path, 100.0, run.machine)
    again.case(plan_of(1), True)
    found = json.loads(run.path.read_text())
    assert [(row["device"], row["step_us"]) for row in found] == [("NVIDIA Pretence", 1000), ("NVIDIA Other", 2)]


def test_nothing_begins_after_the_time(run):
    run.end = 0
    run.case(plan_of(1), True)
    assert "no time left" in run.rows[0]["error"]


def test_a_gpu_that_hangs_ends_the_script_and_what_was_measured_is_kept(run, monkeypatch):
    ended = []
    monkeypatch.setattr(parallel.os, "_exit", ended.append)
    hangs = devices.DevicesHung("GPU 1 did not end within 20 s")
    monkeypatch.setattr(measured, "timed", lambda *case: (_ for _ in ()).throw(hangs))
    run.case(plan_of(1), True)
    assert ended == [1] and "did not end" in json.loads(run.path.read_text())[0]["error"]


def test_each_case_has_both_ways_on_several_gpus_and_the_large_batch_comes_first():
    found = list(parallel.cases([1, 2]))
    first = [(plan.network, plan.batch, plan.gpus, overlap) for plan, overlap in found[:3]]
    assert first == [("lenet5", 16_384, 1, True), ("lenet5", 16_384, 2, True), ("lenet5", 16_384, 2, False)]
    assert len(found) == len(set(found)) == 3 * len(parallel.CASES) + len(parallel.SPLIT)
