"""A pool of three workers, real processes on this machine: any free one runs, one that ends is replaced, series stay on a
kind of device, and what is wrong ends in words."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing

import psutil
import pytest

from kernels.jobs import pool as pool_module
from kernels.jobs.job import JobError
from kernels.jobs.pool import AGAIN, MISSING, THIS_MACHINE, Pool
from kernels.jobs.worker import Worker
from tests.children.helpers import act
from tests.helpers.pool import PATIENCE_S, begun, until
from tests.helpers.pool import running as running_pool

ACTS = "tests.children.acts"
WORKERS = 3


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    with running_pool(tmp_path_factory.mktemp("pool"), *[""] * WORKERS) as machines:
        yield machines


@pytest.fixture
def pool(machines):
    rows = []
    pool = Pool(machines.address, child=ACTS, on_rows=rows.append)
    pool.kept = rows
    until(lambda: pool.machines() and len(pool._slots) == WORKERS)
    yield pool
    pool.close()


def running(pool, *acts: str) -> list:
    """Returns jobs that run at the same time, each on a machine of its own."""
    jobs = [pool.submit(act(what)) for what in acts]
    for job in jobs:
        begun(job)
    return jobs


def test_every_free_machine_runs_and_others_wait(pool):
    first = running(pool, "hang", "hang ", "hang  ")
    waiting = pool.submit(act("sleep 0"))
    assert len(pool._busy) == WORKERS
    assert pool.position(waiting) == 1 and pool.waiting() == 1
    pool.cancel(first[0])
    (row,) = waiting.result(PATIENCE_S)
    assert row["rung"] == "sleep 0" and row["machine"] and pool.kept == [[row]]
    for job in first[1:]:
        pool.cancel(job)


def test_a_machine_that_ends_loses_no_request(machines, pool, tmp_path):
    acts = [f"await {tmp_path / name}" for name in "abc"]
    jobs = running(pool, *acts)
    queued = [pool.submit(act(f"sleep 0.{n}")) for n in range(3)]
    run = jobs[0]._run
    end(machines, *[address for address, busy in pool._busy.items() if busy is run])
    until(lambda: run.restarts == 1)
    until(lambda: jobs[0].text.startswith(AGAIN))
    for name in "bca":
        (tmp_path / name).touch()
    assert [job.result(PATIENCE_S)[0]["rung"] for job in (*jobs, *queued)] == [
        *acts,
        *(f"sleep 0.{n}" for n in range(3)),
    ]
    replace(machines, pool)


def test_a_run_begins_again_within_two_seconds_after_its_machine_ended(machines, pool, tmp_path, record_property):
    jobs = running(pool, *[f"await {tmp_path / name}" for name in "abc"])
    for name in "abc":  # each machine has a child from now on
        (tmp_path / name).touch()
    assert all(job.result(PATIENCE_S) for job in jobs)
    begin = time.monotonic()
    (job,) = running(pool, f"await {tmp_path / 'd'}")
    usual = time.monotonic() - begin
    ended = time.monotonic()
    end(machines, *pool._busy)
    until(lambda: job.text.startswith(AGAIN) and "verifying" in job.text)
    again = time.monotonic() - ended
    record_property("seconds until a run began", usual)
    record_property("seconds until it began again", again)
    (tmp_path / "d").touch()
    assert job.result(PATIENCE_S) and again < 2 + usual  # on a busy machine every start takes longer
    replace(machines, pool)


def end(machines, address: str) -> None:
    """Kills the worker at an address."""
    victim = next(each for each in machines.workers if listens(each, address))
    machines.workers.remove(victim)
    victim.kill()
    victim.wait()


def replace(machines, pool) -> None:
    machines.worker()
    until(lambda: pool._look() or len(pool._slots) == WORKERS)


def listens(process: subprocess.Popen, address: str) -> bool:
    port = int(address.rpartition(":")[2])
    return any(c.laddr.port == port for c in psutil.Process(process.pid).net_connections() if c.status == "LISTEN")


def test_a_run_that_dies_is_an_error_of_that_run(pool):
    with pytest.raises(JobError, match=r"the process that ran die SIGKILL died \(SIGKILL"):
        pool.submit(act("die SIGKILL")).result(PATIENCE_S)
    assert pool.submit(act("sleep 0.01")).result(PATIENCE_S)


def test_progress_comes_from_the_machine(pool):
    (job,) = running(pool, "hang")
    assert (job.share, job.text) == (0.2, "verifying hang")
    pool.cancel(job)
    assert job.done


def test_a_chosen_device_runs_and_one_that_is_not_there_is_named(pool):
    (device,) = pool.machines()
    assert pool.submit(act("sleep 0"), device=device).result(PATIENCE_S)
    with pytest.raises(JobError, match="the pool has no H200 now; it has"):
        pool.submit(act("sleep 0"), device="H200").result(PATIENCE_S)


def test_a_run_on_a_gpu_ends_in_words_if_no_machine_has_one(pool):
    with pytest.raises(JobError, match="no machine of the pool has a GPU now; it has"):
        pool.submit(act("sleep 0", engine="cuda")).result(PATIENCE_S)


def test_a_series_stays_on_its_kind_of_device(pool):
    pool.submit(act("sleep 0.02"), owner="ann/sweep").result(PATIENCE_S)
    (device,) = pool.machines()
    until(lambda: pool._devices.get("ann/sweep") == device)
    with pool._changed:
        pool._devices["ann/sweep"] = "another device"
    with pytest.raises(JobError, match="the pool has no another device now"):
        pool.submit(act("sleep 0.03"), owner="ann/sweep").result(PATIENCE_S)


def test_this_machine_can_be_chosen(machines):
    local = Worker(module=ACTS)
    pool = Pool(machines.address, child=ACTS, here=lambda: local)
    try:
        job = pool.submit(act("hang"), device=THIS_MACHINE)
        begun(job)
        assert not pool._busy and pool.position(job) == 0
        pool.cancel(job)
        assert job.done
    finally:
        pool.close()
        local.close()


# -- what is wrong ---------------------------------------------------------------------------------
def test_a_worker_with_other_code_is_not_used(machines, pool, monkeypatch):
    monkeypatch.setattr(pool_module, "code_version", lambda: "another")
    pool._slots.clear()
    with pytest.raises(JobError, match="has another version of the app"):
        pool.submit(act("sleep 0")).result(PATIENCE_S)


def test_a_scheduler_that_is_away_is_told(monkeypatch):
    pytest.importorskip("distributed", reason="no dask.distributed here: pip install distributed")
    monkeypatch.setattr(pool_module, "ANSWER_S", 0.5)
    pool = Pool("tcp://127.0.0.1:9")
    with pytest.raises(JobError, match=r"the scheduler tcp://127\.0\.0\.1:9 does not answer"):
        pool.submit(act("sleep 0"))
    pool.close()


def test_another_version_of_dask_is_told(machines, monkeypatch):
    import distributed

    monkeypatch.setattr(distributed, "__version__", "1.0")
    pool = Pool(machines.address)
    with pytest.raises(JobError, match=r"has distributed .*, this app 1\.0: install the same"):
        pool.submit(act("sleep 0"))
    pool.close()


def test_without_dask_the_reason_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    pool = Pool("tcp://127.0.0.1:9")
    with pytest.raises(JobError) as error:
        pool.submit(act("sleep 0"))
    assert str(error.value) == MISSING
    pool.close()


def test_a_scheduler_that_ends_ends_its_runs_in_words_and_an_empty_pool_is_told(tmp_path):
    with running_pool(tmp_path) as alone, closing(Pool(alone.address, child=ACTS)) as pool:
        with pytest.raises(JobError, match="the pool has no worker"):
            pool.submit(act("sleep 0")).result(PATIENCE_S)
        alone.worker()
        until(lambda: pool.machines())
        (job,) = running(pool, "hang")
        alone.scheduler.kill()
        with pytest.raises(JobError, match=r"scheduler .*(of the pool ended|ended while this ran|does not answer)"):
            job.result(PATIENCE_S)
