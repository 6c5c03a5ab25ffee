"""The queue of the worker: one execution for equal requests, cached results, owners, many threads."""

from __future__ import annotations

import threading

import pytest

from kernels.jobs import worker as worker_module
from kernels.jobs.job import JobError
from kernels.jobs.worker import Worker
from tests.children.helpers import act, begun, until


@pytest.fixture
def worker():
    worker = Worker(deadline_s=20, module="tests.children.acts", on_rows=lambda rows: ran.append(rows))
    ran = worker.ran = []
    yield worker
    worker.close()


def busy(worker, owner=""):
    job = worker.submit(act("hang"), owner)
    begun(job)
    return job


def test_equal_requests_are_one_execution_with_a_job_each(worker):
    first = busy(worker)
    jobs = [worker.submit(act("sleep 0.05")) for _ in range(3)]
    other = worker.submit(act("sleep 0.01"))
    assert len({id(job) for job in jobs}) == 3
    assert [worker.position(job) for job in (*jobs, other, first)] == [1, 1, 1, 2, 0]
    worker.cancel(first)
    rows = [job.result(20) for job in jobs]
    assert rows[0] == rows[1] == rows[2] and rows[0] is not rows[1]
    rows[0][0]["rung"] = "changed"  # each owner's rows are the owner's own
    assert jobs[0].result()[0]["rung"] == "sleep 0.05"
    other.result(20)
    assert [rows[0]["rung"] for rows in worker.ran] == ["sleep 0.05", "sleep 0.01"]
    assert not any(job.cached for job in (*jobs, other))


def test_a_request_joins_an_equal_one_that_runs(worker):
    first = worker.submit(act("sleep 0.4"))
    begun(first)
    second = worker.submit(act("sleep 0.4"), fresh=True)
    assert worker.position(second) == 0 and second.text == first.text and second.share == first.share == 0.2
    assert first.result(20) == second.result(20) and len(worker.ran) == 1


def test_a_run_stops_only_when_its_last_owner_cancels(worker):
    first = busy(worker)
    second = worker.submit(act("hang"))
    pid = worker._child.pid
    worker.cancel(first)
    with pytest.raises(JobError, match="cancelled"):
        first.result(0)
    assert not second.done and worker._child.pid == pid and worker._child.alive
    worker.cancel(second)
    assert second.done
    again = busy(worker)  # not the one being stopped
    assert worker._child.pid != pid
    worker.cancel(again)


def test_cancel_before_the_child_is_ready(worker):
    job = worker.submit(act("hang"))
    worker.cancel(job)
    assert worker.submit(act("sleep 0")).result(20)
    worker.cancel(worker.submit(act("hang")))
    assert worker.submit(act("sleep 0"), fresh=True).result(20)


def test_results_are_cached_marked_and_measured_again_on_request(worker):
    first = worker.submit(act("sleep 0"))
    rows = first.result(20)
    second = worker.submit(act("sleep 0"))
    assert second.done and second.cached and second.measured_at <= first.measured_at
    assert second.result(0) == rows and (second.share, second.text) == (1.0, "done")
    assert worker.position(second) == 0 and len(worker.ran) == 1
    fresh = worker.submit(act("sleep 0"), fresh=True)
    assert fresh.result(20) == rows and not fresh.cached and len(worker.ran) == 2
    third = worker.submit(act("sleep 0"))
    assert third.cached and third.measured_at > second.measured_at


def test_errors_are_not_cached(worker):
    for _ in range(2):
        with pytest.raises(JobError):
            worker.submit(act("raise bug no")).result(20)
    assert not worker._cache and not worker.ran


def test_cached_results_are_bounded_and_the_least_recently_used_is_dropped(worker, monkeypatch):
    monkeypatch.setattr(worker_module, "MAX_CACHED", 2)
    for what in ("sleep 0", "sleep 0.0", "sleep 0", "sleep 0.00"):
        worker.submit(act(what)).result(20)
    assert len(worker._cache) == 2 and len(worker.ran) == 3
    assert worker.submit(act("sleep 0")).cached
    assert not worker.submit(act("sleep 0.0")).cached


def test_owners_take_turns(worker):
    busy(worker)
    owners = ("ann/1", "ann/2", "bob/1", "bob/2")
    jobs = [worker.submit(act(f"sleep 0.0{n}"), owner) for n, owner in enumerate(owners)]
    assert [worker.position(job) for job in jobs] == [1, 3, 2, 4]


def test_a_newer_request_replaces_the_owners_waiting_one(worker):
    running = busy(worker, "ann")
    older, others = worker.submit(act("sleep 1"), "ann"), worker.submit(act("sleep 0.2"), "bob")
    nobodys = [worker.submit(act(f"sleep 0.0{i}")) for i in range(2)]
    newer = worker.submit(act("sleep 0"), "ann")
    with pytest.raises(JobError, match=r"^replaced by a newer request$"):
        older.result(0)
    assert [worker.position(job) for job in (running, others, *nobodys, newer)] == [0, 1, 2, 3, 4]
    assert worker.positions() == {job._run: n for n, job in enumerate((others, *nobodys, newer), 1)}
    worker.cancel(running)
    for job in (others, *nobodys, newer):
        job.result(20)
    assert "sleep 1" not in [rows[0]["rung"] for rows in worker.ran]


def test_replacing_a_shared_or_equal_request_keeps_its_position(worker):
    running = busy(worker)
    anns, bobs = worker.submit(act("sleep 0"), "ann"), worker.submit(act("sleep 0"), "bob")
    after = worker.submit(act("sleep 0.01"), "carl")
    again = worker.submit(act("sleep 0"), "ann")  # the same once more
    assert anns.done and [worker.position(job) for job in (again, bobs, after)] == [1, 1, 2]
    worker.submit(act("sleep 0.02"), "ann")
    assert again.done and not bobs.done
    worker.cancel(running)
    assert bobs.result(20)


def test_full_queue_is_an_error_and_loses_no_job(worker, monkeypatch):
    monkeypatch.setattr(worker_module, "MAX_WAITING", 2)
    running = busy(worker)
    waiting = [worker.submit(act(f"sleep 0.0{i}"), owner) for i, owner in enumerate(("ann", "bob"))]
    with pytest.raises(JobError, match="2 runs are waiting already; try again in a moment"):
        worker.submit(act("sleep 0.1"), "carl")
    joined = worker.submit(act("sleep 0.00"), "carl")  # takes no slot of the queue
    with pytest.raises(JobError, match="waiting already"):
        worker.submit(act("sleep 0.1"), "ann")  # the older one has another owner too and keeps its slot
    swapped = worker.submit(act("sleep 0.1"), "bob")  # takes the slot of its older job
    assert waiting[1].done
    worker.cancel(running)
    for job in (waiting[0], joined, swapped):
        assert job.result(20)


@pytest.mark.parametrize("owned", [False, True])
def test_a_hundred_threads_ten_requests_each_run_once(worker, owned):
    gate, results, positions = threading.Barrier(100), {}, []

    def reader(i: int) -> None:
        gate.wait()
        job = worker.submit(act(f"sleep 0.0{i % 10}"), f"reader {i}" if owned else "")
        positions.append(worker.position(job))
        results[i] = job.result(60)[0]["rung"]

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: f"sleep 0.0{i % 10}" for i in range(100)}
    assert sorted(rows[0]["rung"] for rows in worker.ran) == [f"sleep 0.0{i}" for i in range(10)]
    assert max(positions) <= 10 and not worker._unfinished and not worker._waiting


def test_submit_cancel_and_position_from_many_threads(worker):
    """Nothing hangs, nothing is lost: each job ends with rows or with the reason why it was cancelled."""
    outcomes, gate = [], threading.Barrier(40)

    def reader(i: int) -> None:
        gate.wait()
        for n in range(5):
            job = worker.submit(act(f"sleep 0.0{(i + n) % 7}"), f"owner {i % 9}", fresh=n % 2 == 0)
            worker.position(job)
            if (i + n) % 3 == 0:
                worker.cancel(job)
            try:
                outcomes.append(job.result(60)[0]["rung"])
            except JobError as e:
                outcomes.append(str(e))

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 200
    assert {end for end in outcomes if not end.startswith("sleep")} <= {"cancelled", "replaced by a newer request"}
    assert worker.submit(act("sleep 0"), fresh=True).result(20)
    until(lambda: worker._running is None)
    assert not worker._unfinished and not worker._waiting


def test_on_rows_may_fail(worker, caplog):
    def fail(rows):
        raise OSError("disk full")

    worker._on_rows = fail
    assert worker.submit(act("sleep 0")).result(20)
    assert worker.submit(act("sleep 0"), fresh=True).result(20)
    assert "rows could not be handed on" in caplog.text and "disk full" in caplog.text
