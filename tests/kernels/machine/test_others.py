"""Runs that other programs disturbed are marked: by readings that are given here, and by a busy loop beside a run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.machine import others
from kernels.machine.timing import Budget
from kernels.records import rows
from kernels.records.row import is_disturbed, row
from kernels.runner import compare, run
from tests.helpers.offenders import every

QUICK = Budget(samples=20, seconds=0.5, min_samples=3, warm_up_s=0)
QUIET = {"waited": 0.04, "cores": 0.09}


@every(
    ("readings", "used"),
    [
        (QUIET, ""),
        (QUIET | {"waited": others.MAX_WAITED}, others.CORES),
        (QUIET | {"cores": others.MAX_CORES}, others.CORES),
        ({"waited": 0.5}, others.CORES),
        ({"programs": 0}, ""),
        ({"programs": 1}, others.GPU),
    ],
)
def test_readings_over_a_limit_mark_a_row(readings, used):
    assert others.fields(readings) == {"others": readings, "disturbed": used}


def test_without_readings_a_row_says_nothing():
    assert others.fields({}) == {}


def readings_in_turn(*values):
    given = iter(values)
    return lambda: next(given)


def readings_of_waits(monkeypatch, waiting, interruptions, *works) -> others.Readings:
    monkeypatch.setattr(others, "waiting_s", waiting)
    monkeypatch.setattr(others, "interruptions", interruptions)
    waits = others.Waits()
    for work in works:
        assert waits.timed_s(work) >= 0
    return waits.readings()


def long() -> None:
    time.sleep(2 * others.SHORT_S)


def short() -> None:
    pass


def test_a_long_sample_counts_if_its_threads_waited_for_more_than_the_limit(monkeypatch):
    much = 1e9  # seconds: more than any share of these samples
    waiting = readings_in_turn(0.0, 0.0, 1.0, 1.0, 1.0, much, much, much)
    assert readings_of_waits(monkeypatch, waiting, None, *[long] * 4) == {"waited": 0.25}


def test_a_short_sample_counts_if_it_was_interrupted(monkeypatch):
    waiting, switches = readings_in_turn(0.0, 0.0), readings_in_turn(5.0, 5.0, 6.0, 7.0, 7.0, 7.0)
    assert readings_of_waits(monkeypatch, waiting, switches, *[short] * 4) == {"waited": 0.25}


def test_a_system_that_does_not_count_waits_gives_no_reading(monkeypatch):
    assert readings_of_waits(monkeypatch, lambda: None, lambda: None, long, short) == {}


def test_cores_of_others_are_those_in_use_without_this_process():
    window = 10 * (os.cpu_count() or 1)
    cores = others.Cores(
        readings_in_turn((100.0, 50.0, 7.0), (100.0 + window, 50.0 + 0.5 * window, 7.0 + 0.2 * window))
    )
    assert cores.readings() == {"cores": pytest.approx(0.3)}
    assert others.Cores(readings_in_turn((100.0, 50.0, 7.0), (100.1, 50.1, 7.0))).readings() == {}
    assert others.Cores(lambda: None).readings() == {}


# -- runs ------------------------------------------------------------------------------------------
def rows_of(results) -> list[dict]:
    from kernels.ladders import find

    return [row(r, find(r.rung).build(r.shape, r.tiles), "unknown") for r in results]


def test_a_quiet_run_is_not_marked(monkeypatch):
    monkeypatch.setattr(others, "waiting_s", lambda: 0.0)
    monkeypatch.setattr(others, "interruptions", lambda: 0.0)
    now = iter(range(0, 10**6, 1000))
    monkeypatch.setattr(others, "core_seconds", lambda: (float(next(now)), 0.0, 0.0))
    names = ["conv/direct", "conv/fft"]
    for found in rows_of(compare(names, CONV_PRESETS["toy"].shape, engine="cpu", budget=QUICK)):
        assert found["disturbed"] == "" and found["others"] == {"waited": 0.0, "cores": 0.0}
        assert not is_disturbed(found)
        rows.check(found)


@pytest.fixture
def busy_core():
    """A core on which this thread and three busy loops run."""
    before = os.sched_getaffinity(0)
    core = min(before)
    loop = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE) for _ in range(3)]
    for process in loops:
        process.stdout.readline()  # it has its core
    os.sched_setaffinity(0, {core})
    yield
    os.sched_setaffinity(0, before)
    for process in loops:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.skipif(others.waiting_s() is None, reason="this system does not count the time that threads wait")
def test_a_busy_loop_beside_a_run_marks_it(busy_core):
    shape = GemmShape(M=512, N=512, K=512)
    (found,) = rows_of([run("gemm/shared-tile", shape, engine="cpu", mode="hot", budget=QUICK)])
    assert found["disturbed"] == others.CORES and found["others"]["waited"] >= others.MAX_WAITED
    rows.check(found)


# -- the GPU, by a stand-in for pynvml: these machines have none -----------------------------------
class NVMLError(Exception):
    pass


class NVMLError_NotFound(NVMLError):  # the name in pynvml
    pass


def nvml(*pids_and_use, error=None):
    def utilization(device, since_us):
        assert device == b"0000:65:00.0" and since_us > 1e15
        if error:
            raise error
        return [SimpleNamespace(pid=pid, smUtil=use) for pid, use in pids_and_use]

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotFound=NVMLError_NotFound,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetProcessUtilization=utilization,
    )


@pytest.mark.parametrize(
    ("library", "readings"),
    [
        (None, {}),
        (nvml(error=NVMLError), {}),
        (nvml(error=NVMLError_NotFound), {"programs": 0}),  # no program executed on the GPU
        (nvml((os.getpid(), 80)), {"programs": 0}),
        (nvml((os.getpid(), 80), (1, 0)), {"programs": 0}),  # it has a context and does nothing
        (nvml((os.getpid(), 80), (1, 20), (1, 30)), {"programs": 1}),
        (nvml((70001, 80)), {"programs": 0}),  # in a container: this process, by its number outside
        (nvml((70001, 80), (70002, 5)), {"programs": 1}),
        (nvml(), {"programs": 0}),
    ],
)
def test_other_programs_on_the_gpu_are_counted(monkeypatch, library, readings):
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert others.Programs("0000:65:00.0").readings() == readings
