"""A pool of three workers, real processes on this machine: any free one runs, one that ends is replaced, series stay on a
kind of card, and what is wrong ends in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from kernels.jobs import pool as pool_module
from kernels.jobs.job import JobError
from kernels.jobs.pool import AGAIN, MISSING, THIS_MACHINE, Pool
from kernels.jobs.worker import Worker
from tests.children.helpers import act
from tests.children.helpers import until as until_soon

ROOT = Path(__file__).parents[3]
ACTS = "tests.children.acts"
WORKERS = 3


PATIENCE_S = 90.0  # of a busy machine: the imports of four processes


def until(true, seconds: float = PATIENCE_S) -> None:
    until_soon(true, seconds)


def begun(job) -> None:
    """Waits until a machine works on the job."""
    until(lambda: job.done or "verifying" in job.text)
    assert not job.done, job.result(0)


def start(module: str, *options: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Machines:
    """A scheduler and workers."""

    def __init__(self, folder: Path):
        file = folder / "scheduler.json"
        self.scheduler = start(
            "dask_scheduler", "--port", "0", "--scheduler-file", str(file), "--no-dashboard"
        )
        until(lambda: file.exists() and file.read_text())
        self.address = json.loads(file.read_text())["address"]
        self.folder, self.workers = folder, []

    def worker(self, **environment: str) -> subprocess.Popen:
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--resources", "GPU=1"]
        scratch = ["--local-directory", str(self.folder)]
        self.workers.append(start("dask_worker", self.address, *options, *scratch, **environment))
        return self.workers[-1]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    pytest.importorskip("distributed", reason="no dask.distributed here: pip install distributed")
    machines = Machines(tmp_path_factory.mktemp("pool"))
    for _ in range(WORKERS):
        machines.worker()
    yield machines
    machines.close()


@pytest.fixture
def pool(machines):
    rows = []
    pool = Pool(machines.address, child=ACTS, on_rows=rows.append)
    pool.kept = rows
    until(lambda: pool.cards() and len(pool._slots) == WORKERS)
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


def test_a_machine_that_ends_loses_no_request_and_the_next_run_begins_soon(machines, pool):
    jobs = running(pool, "sleep 1.5", "sleep 1.6", "sleep 1.7")
    queued = [pool.submit(act(f"sleep 0.{n}")) for n in range(3)]
    run = jobs[0]._run
    (address,) = [address for address, busy in pool._busy.items() if busy is run]
    victim = next(each for each in machines.workers if listens(each, address))
    victim.kill()
    killed = time.monotonic()
    until(lambda: run.restarts == 1, 20)
    assert time.monotonic() - killed < 2
    until(lambda: jobs[0].done or jobs[0].text.startswith(AGAIN), 20)
    assert [job.result(PATIENCE_S)[0]["rung"] for job in (*jobs, *queued)] == [
        *("sleep 1.5", "sleep 1.6", "sleep 1.7"), *(f"sleep 0.{n}" for n in range(3)),
    ]  # fmt: skip
    machines.workers.remove(victim)
    machines.worker()
    until(lambda: pool._look() or len(pool._slots) == WORKERS)


def listens(process: subprocess.Popen, address: str) -> bool:
    port = int(address.rpartition(":")[2])
    return any(
        c.laddr.port == port for c in psutil.Process(process.pid).net_connections() if c.status == "LISTEN"
    )


def test_a_run_that_dies_is_an_error_of_that_run(pool):
    with pytest.raises(JobError, match=r"the process that ran die SIGKILL died \(SIGKILL"):
        pool.submit(act("die SIGKILL")).result(PATIENCE_S)
    assert pool.submit(act("sleep 0.01")).result(PATIENCE_S)


def test_progress_comes_from_the_machine(pool):
    (job,) = running(pool, "hang")
    assert (job.share, job.text) == (0.2, "verifying hang")
    pool.cancel(job)
    assert job.done


def test_a_chosen_card_runs_and_one_that_is_not_there_is_told(pool):
    (card,) = pool.cards()
    assert pool.submit(act("sleep 0"), card=card).result(PATIENCE_S)
    with pytest.raises(JobError, match="the pool has no H200 now; it has"):
        pool.submit(act("sleep 0"), card="H200").result(PATIENCE_S)


def test_a_series_stays_on_its_kind_of_card(pool):
    pool.submit(act("sleep 0.02"), owner="ann/sweep").result(PATIENCE_S)
    (card,) = pool.cards()
    until(lambda: pool._cards.get("ann/sweep") == card)
    with pool._changed:
        pool._cards["ann/sweep"] = "another card"
    with pytest.raises(JobError, match="the pool has no another card now"):
        pool.submit(act("sleep 0.03"), owner="ann/sweep").result(PATIENCE_S)


def test_this_machine_can_be_chosen(machines):
    local = Worker(module=ACTS)
    pool = Pool(machines.address, child=ACTS, here=lambda: local)
    try:
        job = pool.submit(act("hang"), card=THIS_MACHINE)
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
    pytest.importorskip("distributed", reason="no dask.distributed here: pip install distributed")
    alone = Machines(tmp_path)
    pool = Pool(alone.address, child=ACTS)
    try:
        with pytest.raises(JobError, match="the pool has no worker"):
            pool.submit(act("sleep 0")).result(PATIENCE_S)
        alone.worker()
        until(lambda: pool.cards())
        (job,) = running(pool, "hang")
        alone.scheduler.kill()
        with pytest.raises(
            JobError, match=r"scheduler .*(of the pool ended|ended while this ran|does not answer)"
        ):
            job.result(PATIENCE_S)
    finally:
        pool.close()
        alone.close()
