"""The worker with real processes: results, words for every failure, and life after each."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from kernels import ConvShape
from kernels.jobs import JobError, Request, Worker

TOY = ConvShape(1, 1, 8, 8, 2, 3, 3)
DIRECT = Request(("conv/direct",), TOY, engine="cpu", seconds=0.05)


@pytest.fixture
def worker():
    worker = Worker(deadline_s=20)
    yield worker
    worker.close()


def test_a_job_gives_rows_and_progress(worker):
    job = worker.submit(
        Request(("conv/direct", "conv/im2col-gemm"), TOY, {"x": np.ones(TOY.x_shape, "f4")}, "cpu")
    )
    rows = job.result(timeout=30)
    assert [r["rung"] for r in rows] == ["conv/direct", "conv/im2col-gemm"]
    assert all(r["median_ms"] > 0 and r["engine"] == "cpu" for r in rows)
    assert job.share == 1.0 and job.text == "done"


def test_bad_requests_come_back_as_words_and_the_child_lives(worker):
    with pytest.raises(JobError, match="no rung 'conv/none'"):
        worker.submit(Request(("conv/none",), TOY)).result(timeout=30)
    child = worker._child.pid
    with pytest.raises(JobError, match="must be finite"):
        worker.submit(Request(("conv/direct",), TOY, {"x": np.full(TOY.x_shape, np.nan)}, "cpu")).result(
            timeout=30
        )
    assert worker.submit(DIRECT).result(timeout=30)
    assert worker._child.pid == child


def test_a_killed_child_is_one_lost_job(worker):
    worker.submit(DIRECT).result(timeout=30)
    big = ConvShape(8, 64, 112, 112, 64, 3, 3)
    job = worker.submit(Request(("conv/direct",), big, engine="cpu"))
    while job.text == "waiting":
        time.sleep(0.01)
    worker._child.kill()
    with pytest.raises(JobError, match="died"):
        job.result(timeout=30)
    assert worker.submit(DIRECT).result(timeout=30)


def test_a_job_past_the_deadline_is_stopped_and_the_next_is_served():
    worker = Worker(deadline_s=5)
    slow = worker.submit(Request(("conv/direct",), ConvShape(16, 64, 224, 224, 64, 3, 3), engine="cpu"))
    queued = worker.submit(DIRECT)
    assert worker.position(queued) >= 1 or slow.done
    with pytest.raises(JobError, match=r"not done after 5 s"):
        slow.result(timeout=30)
    assert queued.result(timeout=30)
    worker.close()


def test_cancel_waiting_and_running(worker):
    running = worker.submit(Request(("conv/direct",), ConvShape(16, 64, 224, 224, 64, 3, 3), engine="cpu"))
    waiting = worker.submit(DIRECT)
    worker.cancel(waiting)
    with pytest.raises(JobError, match="cancelled"):
        waiting.result(timeout=5)
    while running.text == "waiting":
        time.sleep(0.01)
    worker.cancel(running)
    with pytest.raises(JobError, match="cancelled"):
        running.result(timeout=30)
    assert worker.submit(DIRECT).result(timeout=30)


def test_many_threads_at_once(worker):
    rows = []

    def one():
        rows.append(worker.submit(DIRECT).result(timeout=60))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows) == 8


def test_closing_ends_what_waits():
    worker = Worker()
    first = worker.submit(Request(("conv/direct",), ConvShape(16, 64, 224, 224, 64, 3, 3), engine="cpu"))
    second = worker.submit(DIRECT)
    worker.close()
    for job in (first, second):
        with pytest.raises(JobError):
            job.result(timeout=30)
    with pytest.raises(JobError, match="closed"):
        worker.submit(DIRECT)
