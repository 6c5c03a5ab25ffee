"""The benchmark of collectives on emulated GPUs: every part emits rows; a part that hangs or faults loses nothing else."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import collectives as bench
from kernels.collectives import gpus as collective_gpus
from kernels.collectives import kernels
from kernels.collectives.gpus import NCCL
from kernels.collectives.shape import ALL_REDUCE, NAIVE, ONE_SHOT, RING, TREE, TWO_SHOT
from tests.helpers.fake_gpus import FakeGpus

LARGEST = 256  # bytes


@pytest.fixture
def fake(monkeypatch):
    """Puts two emulated GPUs in the place of CuPy, and few and small sizes in the benchmark's."""
    found = FakeGpus(2)
    found.cuda.runtime.runtimeGetVersion = lambda: 13000
    found.__version__ = "0"
    found.install(monkeypatch)
    monkeypatch.setattr(kernels, "MAX_BLOCKS", 4)
    monkeypatch.setattr(collective_gpus, "GRAPH_RUNS", 2)
    for name, value in {
        "SIZES": [64, 256],
        "BETWEEN": [256],
        "OTHER_KINDS": [64],
        "CHECKED": (1, 7),
        "SMALL": 64,
        "SAMPLES": 2,
        "TUNE_SAMPLES": 1,
        "COPIES": (4, 64),
        "TUNED": {RING: ({}, {"most_blocks": 1})},
    }.items():
        monkeypatch.setattr(bench, name, value)
    return found


def emitted(part: str, seconds: float = 1e6) -> dict[str, list]:
    """Returns what a part emits, by what it is."""
    found: dict[str, list] = {}
    bench.RUN[part](lambda what, content: found.setdefault(what, []).append(content), bench.Clock(seconds), 2, LARGEST)
    assert json.dumps(found)
    return found


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("links", {"copy": 4}),
        ("small", {ONE_SHOT: 3, TWO_SHOT: 3}),
        ("ring", {RING: 3, NAIVE: 3}),
        ("tree", {TREE: 3}),
        ("launches", {ONE_SHOT: 4}),
        ("nccl", {NCCL: 2 + 4}),
        ("nccl-graph", {NCCL: 1}),
    ],
)
def test_a_part_emits_its_rows(fake, part, rows):
    found = emitted(part)
    assert "error" not in found
    counts: dict[str, int] = {}
    for row in found["row"]:
        name = "copy" if row["kind"] == "copy" else row["algorithm"]
        counts[name] = counts.get(name, 0) + 1
    assert counts == rows


def test_checks_time_nothing(fake):
    found = emitted("checks")
    assert found.keys() == {"check"} and len(found["check"]) == 2 * len(kernels.KERNELS)


def test_the_machine_is_described(fake):
    (found,) = emitted("links")["machine"]
    assert found["devices"] == ["NVIDIA Pretence"] * 2 and found["nccl"] == "2.28.3"
    assert isinstance(found["topology"], str)


def test_a_wrong_algorithm_is_an_error_and_the_rest_goes_on(fake, monkeypatch):
    right = collective_gpus.verify

    def wrong(gpus, kind, algorithm, elements, *args, **settings):
        if algorithm == RING:
            raise collective_gpus.CollectiveError("element 0 is wrong")
        return right(gpus, kind, algorithm, elements, *args, **settings)

    monkeypatch.setattr(collective_gpus, "verify", wrong)
    found = emitted("ring")
    assert {row["algorithm"] for row in found["row"]} == {NAIVE}
    assert found["error"][0] == {"what": "check of ring all-reduce, 1 elements", "error": "element 0 is wrong"}


def test_settings_that_fail_fall_back_to_the_kernels_own(fake, monkeypatch):
    measure = collective_gpus.measure

    def failing(*args, **settings):
        if settings:
            raise collective_gpus.CollectiveError("not with these")
        return measure(*args)

    gpus = collective_gpus.Gpus(2, 64)
    monkeypatch.setattr(collective_gpus, "measure", failing)
    found = []
    bench.timed(lambda *e: found.append(e), bench.Clock(1e6), gpus, ALL_REDUCE, RING, 64, "launch", {"most_blocks": 1})
    assert [what for what, _ in found] == ["error", "row"]


def test_without_time_left_nothing_is_measured(fake):
    found = emitted("nccl", seconds=-1)
    assert found.keys() == {"error"} and {e["error"] for e in found["error"]} == {"no time left"}


def test_a_part_that_hangs_is_killed_and_the_next_one_runs(monkeypatch):
    popen, started = subprocess.Popen, []

    def start(command):
        started.append(command)
        line = '["row", {"x": 1}]'
        script = f"echo '{line}' > {command[3]}; exec sleep {60 if len(started) == 1 else 0}"
        return popen(["sh", "-c", script])

    monkeypatch.setattr(bench, "__spec__", SimpleNamespace(name="x"))
    monkeypatch.setattr(bench.subprocess, "Popen", start)
    monkeypatch.setattr(bench, "SAFETY_S", 0.0)
    monkeypatch.setitem(bench.DEADLINES, "links", 0.5)
    lines = list(bench.run_parts(["links", "ring"], 2, 20, LARGEST))
    assert [what for what, _ in lines] == ["row", "error", "row"]
    assert lines[1][1] == {"what": "part links", "error": "its process ended with killed after 0 s"}


def test_a_run_replaces_an_older_one_of_the_same_machine():
    lines = [
        ("machine", {"ranks": 2, "devices": ["H200", "H200"]}),
        ("row", {"n": 1}),
        ("check", {}),
        ("error", {"what": "x", "error": "y"}),
        ("part", {"name": "links", "seconds": 1}),
        ("tuning", {}),
    ]
    run = bench.collected(iter(lines), "abc")
    assert run["device"] == "H200" and run["rows"] == [{"n": 1}] and run["commit"] == "abc"
    assert len(run["errors"]) == len(run["checks"]) == len(run["tuning"]) == 1
    old = {"device": "H200", "machine": {"ranks": 2}, "rows": []}
    other = old | {"machine": {"ranks": 4}}
    assert bench.merged([old, other], run) == [other, run]
    assert bench.collected(iter([("machine", {"devices": "Error: none"})]), "abc")["device"] == "unknown"


def test_goals_compare_with_nccl_and_name_the_error_of_the_model():
    def row(algorithm, nbytes, ms):
        return {
            "kind": ALL_REDUCE,
            "algorithm": algorithm,
            "launch": "launch",
            "ranks": 2,
            "bytes": nbytes,
            "median_ms": ms,
        }

    sizes = [bench.KIB << n for n in range(21)]
    rows = [row(NCCL, n, 0.02 + n / 3e8) for n in sizes] + [row(RING, n, 0.04 + 2 * n / 3e8) for n in sizes]
    found = list(bench.goals({"rows": rows}))
    assert "ring, 65,536 bytes, launch: 0.50 of NCCL's speed" in found
    assert sum("of NCCL's speed" in line for line in found) == 1 + 5
    assert sum(line.startswith("model of") and "at most 0.0 % off at 21" in line for line in found) == 4


def test_the_error_of_the_model_is_that_of_the_faster_way_to_launch():
    sizes = [bench.KIB << n for n in range(21)]

    def row(launch, nbytes, ms):
        return {"kind": ALL_REDUCE, "algorithm": RING, "launch": launch, "ranks": 2, "bytes": nbytes, "median_ms": ms}

    graphs = [row("graph", n, 0.006 + n / 3e8) for n in sizes]
    one_by_one = [row("launch", n, max(0.03, 0.006 + n / 3e8)) for n in sizes]
    first, second = (line for line in bench.goals({"rows": graphs + one_by_one}) if "model of" in line)
    assert first.startswith("model of ring: at most 0.0 % off")
    assert second.startswith("model of ring launched one by one:") and "0.0 %" not in second
