"""One job service for all apps of a machine: started once, shared, fair; killed, drained, ended; strangers and versions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from kernels.jobs import client as client_module
from kernels.jobs.client import BEHIND, BEING_DRAINED, ENDED, JobService
from kernels.jobs.counts import Counts
from kernels.jobs.job import JobError
from kernels.jobs.place import MAX_SOCKET, Place
from kernels.jobs.service import RUNS
from kernels.jobs.worker import CANCELLED, REPLACED, STOPPED
from kernels.records import folder
from kernels.records.store import Store
from tests.children.helpers import act, begun, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these tests send signals")
ACTS = "tests.children.acts"


class Apps:
    """Apps of one data folder, and the services that they started."""

    def __init__(self, folder):
        self.place, self.services = Place(folder), []

    def app(self, **options) -> JobService:
        self.services.append(JobService(self.place, **{"runs": ACTS, "counts": ACTS, "idle_s": 20} | options))
        return self.services[-1]

    def runs(self, **options):
        return self.app(**options).queues[RUNS]

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.place.address().pid)

    def close(self):
        for service in self.services:
            service.close()
        for service in self.services:
            if service._process and service._process.poll() is None:
                service._process.send_signal(signal.SIGCONT)
                service._process.kill()
                service._process.wait()


@pytest.fixture
def apps(tmp_path):
    apps = Apps(tmp_path)
    yield apps
    apps.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Apps of one folder, whose service stays the same."""
    apps = Apps(tmp_path_factory.mktemp("shared"))
    yield apps
    apps.close()


def test_apps_share_one_service_and_its_results(apps):
    first, second = apps.runs(), apps.runs()
    rows = first.submit(act("sleep 0")).result(20)
    job = second.submit(act("sleep 0"))
    assert job.cached and job.result(0) == rows and job.measured_at
    assert len([service for service in apps.services if service._process]) == 1
    assert rows[0]["pid"] in [child.pid for child in apps.process.children()]


def test_of_apps_that_start_at_once_one_starts_the_service(apps):
    queues, barrier = [apps.runs() for _ in range(6)], threading.Barrier(6)

    def run(queue):
        barrier.wait()
        return queue.submit(act(f"sleep 0.0{queues.index(queue)}")).result(30)[0]["pid"]

    with ThreadPoolExecutor(6) as threads:
        pids = set(threads.map(run, queues))
    assert len(pids) == 1  # one process ran everything
    assert sum(service._process is not None for service in apps.services) == 1


def test_apps_that_run_never_run_at_the_same_time_and_have_turns(apps):
    greedy, other = apps.runs(), apps.runs()
    running = greedy.submit(act("hang"), owner="ann/first")
    begun(running)
    second, third = (greedy.submit(act(f"sleep 0.0{n}"), owner=f"ann/{n}") for n in (1, 2))
    late = other.submit(act("sleep 0.03"), owner="bob")
    until(lambda: third._run.ahead == 3)
    assert [queue.position(job) for queue, job in ((other, late), (greedy, second), (greedy, third))] == [1, 2, 3]
    greedy.cancel(running)
    assert running.done
    assert {job.result(20)[0]["rung"] for job in (second, third, late)} == {f"sleep 0.0{n}" for n in (1, 2, 3)}


def test_progress_reaches_the_app_and_a_newer_request_replaces_the_waiting_one(apps):
    queue, heard = apps.runs(), []
    running = queue.submit(act("hang"), owner="ann")
    stop = running.listen(lambda: heard.append(running.text))
    begun(running)
    until(lambda: heard)
    assert heard[-1] == running.text and running.share == 0.2 and queue.position(running) == 0
    stop()
    waiting = queue.submit(act("sleep 0"), owner="bob")
    newer = queue.submit(act("sleep 0.01"), owner="bob")
    with pytest.raises(JobError, match=REPLACED):
        waiting.result(20)
    until(lambda: queue.waiting() == 1)
    queue.cancel(running)
    with pytest.raises(JobError, match=CANCELLED):
        running.result(0)
    newer.result(20)


def test_a_refused_request_says_why(shared):
    queue = shared.runs()
    with pytest.raises(JobError, match="cannot be sent"):
        queue.submit(act("sleep 0", inputs={"x": lambda: None}))


def test_errors_of_runs_arrive_in_words(shared):
    queue = shared.runs()
    with pytest.raises(JobError, match=r"the process that ran die SIGKILL died \(SIGKILL"):
        queue.submit(act("die SIGKILL")).result(20)
    with pytest.raises(JobError, match="ZeroDivisionError while verifying"):
        queue.submit(act("raise bug by zero")).result(20)


# -- its life --------------------------------------------------------------------------------------
def test_a_killed_service_ends_its_runs_in_words_and_is_started_again(apps):
    queue = apps.runs()
    running, waiting = queue.submit(act("hang"), owner="ann"), queue.submit(act("sleep 0"), owner="bob")
    begun(running)
    first, (child,) = apps.process, apps.process.children()
    first.kill()
    for job in (running, waiting):
        with pytest.raises(JobError, match=ENDED[:30]):
            job.result(20)
    assert queue.submit(act("sleep 0")).result(20)[0]["pid"] != child.pid
    assert apps.process.pid != first.pid
    child.wait(20)  # it does not outlive its service


def test_the_service_outlives_its_app_and_finishes_its_run(apps):
    leaving = apps.runs()
    job = leaving.submit(act("sleep 0.5"))
    begun(job)
    running = [child.pid for child in apps.process.children()]
    leaving.close()
    with pytest.raises(JobError, match=STOPPED):
        job.result(0)
    later = apps.runs().submit(act("sleep 0.5"))  # the same run goes on, or is over
    assert later.result(20)[0]["pid"] in running  # its process was not stopped
    assert sum(service._process is not None for service in apps.services) == 1


def test_the_service_ends_when_it_is_idle(apps):
    app = apps.app(idle_s=0.2)
    app.queues[RUNS].submit(act("sleep 0")).result(20)
    process, socket = app._process, apps.place.address().socket
    (child,) = apps.process.children()
    assert process.poll() is None  # an app is connected
    app.close()
    assert process.wait(20) == 0
    child.wait(20)
    assert apps.place.address() is None and not os.path.exists(socket)
    apps.runs().submit(act("sleep 0")).result(20)


def test_the_service_ends_with_its_folder(apps):
    app = apps.app()
    app.queues[RUNS].submit(act("sleep 0")).result(20)
    apps.place.file("json").unlink()
    assert app._process.wait(20) == 0


def test_a_service_that_hangs_is_told_in_words(apps, monkeypatch):
    queue = apps.runs()
    queue.submit(act("sleep 0")).result(20)
    apps.process.suspend()
    until(lambda: apps.process.status() == psutil.STATUS_STOPPED)  # all its threads
    monkeypatch.setattr(client_module, "ANSWER_S", 0.3)
    for each in (queue, apps.runs()):  # connected already, and not yet
        with pytest.raises(JobError, match="the job service does not answer"):
            each.submit(act("sleep 0.01"))


def test_a_service_that_does_not_start_says_where_the_reason_is(apps, monkeypatch):
    apps.place.file("log")
    monkeypatch.setenv("PYTHONPATH", "tests/children/broken_service")
    queue = JobService(apps.place, runs=ACTS).queues[RUNS]
    monkeypatch.setattr(client_module, "START_S", 20)
    queue._service._options.append("--nonsense")
    with pytest.raises(JobError, match=r"does not start \(exit status 2\); .*jobs-.*\.log says why"):
        queue.submit(act("sleep 0"))
    assert "--nonsense" in apps.place.file("log").read_text()


# -- other versions and strangers ------------------------------------------------------------------
def newer(monkeypatch, by: int):
    """Makes this app's code newer or older than that of a service which runs."""
    newest, digest = client_module.version()
    monkeypatch.setattr(client_module, "version", lambda: (newest + by, digest))


def test_an_older_service_finishes_its_runs_and_makes_way(apps, monkeypatch):
    older = apps.runs()
    running = older.submit(act("hang"))
    begun(running)
    monkeypatch.setattr(client_module, "DRAIN_S", 0.0)
    newer(monkeypatch, 1)
    with pytest.raises(JobError, match=BEING_DRAINED):
        apps.runs().submit(act("sleep 0"))
    with pytest.raises(JobError, match="makes way for a newer one"):
        older.submit(act("sleep 0"))
    assert not running.done
    older.cancel(running)
    assert apps.services[0]._process.wait(20) == 0


def test_an_older_app_is_told_to_start_again(shared, monkeypatch):
    shared.runs().submit(act("sleep 0")).result(20)
    newer(monkeypatch, -1)
    with pytest.raises(JobError) as error:
        shared.runs().submit(act("sleep 0"))
    assert str(error.value) == BEHIND


def test_an_app_with_another_gpu_is_told(shared, monkeypatch):
    shared.runs().submit(act("sleep 0")).result(20)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(JobError, match=r"with CUDA_VISIBLE_DEVICES=.*, this app has 1"):
        shared.runs().submit(act("sleep 0"))


def test_only_the_owner_of_the_folder_may_connect(apps):
    apps.runs().submit(act("sleep 0")).result(20)
    key, socket = apps.place.file("key"), apps.place.address().socket
    assert key.stat().st_mode & 0o777 == 0o600 and os.stat(socket).st_mode & 0o077 == 0
    stranger = JobService(apps.place).queues[RUNS]
    key.write_bytes(b"another key")
    with pytest.raises(JobError, match="is not the service's"):
        stranger.submit(act("sleep 0"))


def test_a_long_path_has_its_socket_elsewhere(tmp_path):
    folder = tmp_path / ("x" * MAX_SOCKET)
    folder.mkdir()
    apps = Apps(folder)
    apps.runs().submit(act("sleep 0")).result(20)
    socket = apps.place.address().socket
    assert len(socket) <= MAX_SOCKET and os.stat(os.path.dirname(socket)).st_mode & 0o077 == 0
    apps.close()


def test_a_damaged_address_is_replaced(apps):
    apps.place.file("json").write_text('{"socket": 3')
    apps.runs().submit(act("sleep 0")).result(20)
    assert json.loads(apps.place.file("json").read_text())["pid"] == apps.process.pid


# -- rows ------------------------------------------------------------------------------------------
MEASURED = "tests.children.measured"


def test_the_service_stores_what_it_measured(apps):
    rows = apps.runs(runs=MEASURED).submit(act("conv/direct")).result(20)
    stored = Store(apps.place.folder / "measurements.sqlite").rows()
    assert [entry.row for entry in stored] == rows


def test_the_service_stores_in_the_database_that_machines_share(apps, postgres, monkeypatch):
    url = postgres.database("service")
    monkeypatch.setenv(folder.STORE, url)
    rows = apps.runs(runs=MEASURED).submit(act("conv/direct")).result(40)
    assert [entry.row for entry in Store(url).rows()] == rows
    assert not list(apps.place.folder.glob("*.sqlite*"))
    assert "a%20secret" not in apps.place.file("json").read_text()
    monkeypatch.setenv(folder.STORE, postgres.url("another"))
    with pytest.raises(JobError, match=r"with KERNEL_THEATRE_STORE=127.*/service, this app has 127.*/another:"):
        apps.runs().submit(act("sleep 0"))


def test_rows_that_could_not_be_stored_go_to_the_app(apps):
    (apps.place.folder / "measurements.sqlite").mkdir()
    kept = []
    rows = apps.runs(runs=MEASURED, on_rows=kept.append).submit(act("conv/direct")).result(20)
    until(lambda: kept)
    assert kept == [rows]


def test_counts_of_one_app_are_known_to_the_others(apps):
    from kernels.conv.ladder import BASIC_RUNGS
    from kernels.conv.shape import ConvShape

    shape, rung = ConvShape(1, 1, 4, 4, 1, 2, 2), BASIC_RUNGS[0]
    first, second, late = (Counts(queue=apps.app(counts="kernels.jobs.counter").queues["counts"]) for _ in range(3))
    second.request([rung], ConvShape(1, 1, 3, 3, 1, 2, 2), {}).result(30)  # it is connected
    first.request([rung], shape, {}).result(30)
    until(lambda: second.get(rung, shape, {}))
    assert second.get(rung, shape, {}) == first.get(rung, shape, {})
    late.request([rung], shape, {})
    assert late.get(rung, shape, {}) == first.get(rung, shape, {})


def test_the_service_of_a_shell_ends_with_its_status_if_one_runs(shared):
    shared.runs().submit(act("sleep 0")).result(20)
    process = subprocess.run([sys.executable, "-m", "kernels.jobs.service", str(shared.place.folder)], timeout=60)
    assert process.returncode == 3
