"""Pool: the queue of an app whose runs are executed by the workers of a Dask scheduler, on any machine.

`KERNEL_THEATRE_JOBS=tcp://HOST:8786` names the scheduler. A worker is started on each machine with

    dask worker tcp://HOST:8786 --nthreads 1 --nworkers 1 --resources GPU=1

in a folder with this app's code. It executes one run at a time, in a child process with a deadline, as the local worker
does. A run goes to the first machine that is free. Rungs that are compared are one run, and so on one device; the runs
of one series stay on the kind of device that its first run had. A machine that ends during a run is replaced: the run
begins again elsewhere, and its text says so. Each worker announces its device and its libraries (announcement.py):
pages offer the engines that it has, and a run of the cuda engine goes to a machine with a GPU.

The network of a pool must be trusted: whoever reaches the scheduler can run code on its workers. Dask's own settings
add TLS.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.activity import STARTING
from kernels.jobs.announcement import announcement, code_version
from kernels.jobs.job import Job, JobError, Rows, Run, Work
from kernels.jobs.service import Packed
from kernels.jobs.worker import CANCELLED, DEADLINE_S, Worker
from kernels.machine.elsewhere import Machine

ANSWER_S = 10.0  # for an answer of the scheduler
LOOK_S = 0.25  # between two looks for the workers, while runs wait
WATCH_S = 5.0  # between two looks for pages
AWAY_S = 30.0  # after a look that failed: a connection waits for ANSWER_S
FIRST_LOOK_S = 5.0  # that a page waits for the first look
MAX_RESTARTS = 2
MAX_SERIES = 1024  # whose devices are remembered
TOPIC = "kernel-theatre"
MISSING = "KERNEL_THEATRE_JOBS names a pool, which needs dask.distributed: pip install distributed"
THIS_MACHINE = "this machine"  # a device that a reader may choose
EMPTY = "the pool has no worker"
NO_GPU = "no machine of the pool has a GPU now"
AGAIN = "begun again, because its machine ended: "

if TYPE_CHECKING:
    from distributed import Client, Future  # pyright: ignore[reportMissingImports]  # of pools only

    from kernels.jobs.client import Queue

log = logging.getLogger(__name__)


class MachineLost(Exception):
    """The worker that executed a run is gone."""


@dataclass(frozen=True)
class Slot:
    """A worker of the pool. `machine`: what it has announced; None with a `fault`, which says why it cannot be used."""

    address: str
    host: str = ""
    machine: Machine | None = None
    fault: str = ""

    @property
    def device(self) -> str:
        return self.machine.device if self.machine else ""

    def fits(self, run: Run) -> bool:
        """Returns whether it has the device that a run wants, and a GPU if it needs one."""
        if self.machine is None or run.device not in ("", self.device):
            return False
        return bool(self.machine.gpu or not run.needs_gpu)


class Pool(Worker):
    """The queue of this app. Its interface is Worker's; submit also takes the wanted device.

    child: the module of the process that executes runs on each machine. here: returns the queue of this machine, for
    readers who choose it.
    """

    def __init__(
        self,
        scheduler: str,
        on_rows: Callable[[Rows], str | None] | None = None,
        child: str = "kernels.jobs.child",
        deadline_s: float = DEADLINE_S,
        here: Callable[[], Worker | Queue] | None = None,
    ):
        self._here = here
        self._scheduler, self._child_module = scheduler, child
        self._client: Client | None = None
        self._connecting = threading.Lock()
        self._slots: dict[str, Slot] = {}
        self._looking = threading.Lock()
        self._looked = threading.Event()
        self._watching = False
        self._busy: dict[str, Run] = {}  # by the worker's address
        self._devices: OrderedDict[str, str] = OrderedDict()  # by the owner of a series
        super().__init__(deadline_s, on_rows=on_rows)

    def submit(self, request: Work, owner: str = "", fresh: bool = False, device: str = "") -> Job:
        """As Worker.submit. device: the kind of device, "" for any. JobError also if the scheduler does not answer."""
        if device == THIS_MACHINE and self._here:
            job = self._here().submit(request, owner, fresh)
            job.queue = self._here()
            return job
        self._connect()
        with self._changed:  # until it has its device, no machine may take it
            job = super().submit(OnDevice(request, device) if device else request, owner, fresh)
            job.request = request
            if not job.done:
                job._run.device = job._run.device or device or self._devices.get(owner, "")
                job._run.needs_gpu = getattr(request, "engine", None) == "cuda"
        return job

    def position(self, job: Job) -> int:
        return job.queue.position(job) if job.queue else super().position(job)

    def cancel(self, job: Job, running: bool = True) -> None:
        if job.queue:
            job.queue.cancel(job, running)
        else:
            super().cancel(job, running)

    def machines(self) -> dict[str, Machine]:
        """Returns the machines of the pool that can be used, one of each kind of device, as they were at the last look.
        Only the first call waits, for FIRST_LOOK_S at most."""
        with self._changed:
            if not (self._watching or self._closed):
                self._watching = True
                threading.Thread(target=self._watch, name="pool", daemon=True).start()
        self._looked.wait(FIRST_LOOK_S)
        found = {slot.device: slot.machine for slot in tuple(self._slots.values()) if slot.machine}
        return dict(sorted(found.items()))

    def close(self) -> None:
        for run in list(self._active):
            with contextlib.suppress(Exception):
                self._stop(run, wait=True)
        super().close()
        with self._connecting:
            client, self._client = self._client, None
        if client:
            with contextlib.suppress(Exception):
                client.close(timeout=2)

    # -- the scheduler -------------------------------------------------------------------------
    def _connect(self) -> Client:
        with self._connecting:
            if self._closed:
                raise JobError("the worker is closed")
            if self._client is None or self._client.status in ("closed", "closing"):
                self._client = client = _client(self._scheduler)
                client.subscribe_topic(TOPIC, self._hear)
            return self._client

    def _watch(self) -> None:
        """Looks for the workers as long as the pool is open."""
        while not self._closed:
            try:
                self._connect()
                self._look()
                pause = WATCH_S
            except Exception as error:  # the scheduler is away or slow: a run says so
                log.info("the pool: %s", error)
                self._slots, pause = {}, AWAY_S
            self._looked.set()
            with self._changed:
                self._changed.wait_for(lambda: self._closed, pause)

    def _look(self) -> None:
        """Learns which workers the pool has."""
        client = self._client
        if client is None:
            return
        with self._looking:
            found = _addresses(client)
            slots = {address: slot for address, slot in self._slots.items() if address in found}
            if new := found - slots.keys():
                answers = client.run(announcement, workers=list(new), on_error="return")
                slots |= {address: _slot(address, answer) for address, answer in answers.items()}
            self._slots = slots

    def _hear(self, event: tuple[float, dict]) -> None:
        """Takes what a worker says of a run."""
        said = event[1]
        with self._changed:
            run = next((run for run in self._active if run.name == said["run"]), None)
        if run is None:
            return
        if said["kind"] == "progress":
            text = f"{AGAIN}{said['text']}" if run.restarts else said["text"]
            self._advance(run, ("progress", said["share"], text))
        else:
            self._advance(run, ("part", said["part"]))

    # -- the worker's thread: it gives runs to machines that are free ---------------------------
    def _process_queue(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
            try:
                self._look()
                started = self._dispatch()
            except Exception as error:  # the scheduler is away or slow
                log.info("the pool: %s", error)
                self._fail_waiting(f"the scheduler {self._scheduler} does not answer: {error}")
                continue
            if not started:
                with self._changed:
                    self._changed.wait(LOOK_S)

    def _dispatch(self) -> bool:
        """Starts the first run for which a machine is free. Returns whether there was one."""
        usable = [slot for slot in self._slots.values() if not slot.fault]
        if not usable:
            reasons = {slot.fault for slot in self._slots.values()}
            self._fail_waiting("; ".join(sorted(reasons)) or EMPTY)
            return False
        with self._changed:
            free = [slot for slot in usable if slot.address not in self._busy]
            for run in self._in_order():
                slot = next((slot for slot in free if slot.fits(run)), None)
                if slot:
                    self._busy[slot.address] = self._begin(run)
                    threading.Thread(target=self._serve, args=(slot, run), daemon=True).start()
                    return True
        self._fail_without_machine(usable)
        return False

    def _fail_waiting(self, reason: str) -> None:
        with self._changed:
            self._fail(list(self._waiting), reason)

    def _fail_without_machine(self, usable: list[Slot]) -> None:
        """Ends the runs that no machine fits, busy or not."""
        devices = ", ".join(sorted({slot.device for slot in usable}))
        with self._changed:
            for run in [run for run in self._waiting if not any(slot.fits(run) for slot in usable)]:
                lost = run.device and all(slot.device != run.device for slot in usable)
                wanted = f"the pool has no {run.device} now" if lost else NO_GPU
                self._fail([run], f"{wanted}; it has {devices}")

    def _fail(self, runs: list[Run], reason: str) -> None:
        for run in runs:
            for job in list(run.jobs):
                self._remove_job(job, reason)
        self._tell()

    # -- a thread for each run -----------------------------------------------------------------
    def _serve(self, slot: Slot, run: Run) -> None:
        rows, error = None, ""
        try:
            rows = [row | {"machine": slot.host} for row in self._execute_on(slot, run)]
        except MachineLost:
            if self._begin_again(slot, run):
                return
            error = f"{run.restarts + 1} machines of the pool ended while they ran this"
        except JobError as e:
            error = str(e)
        except Exception as e:
            log.exception("a run of the pool failed")
            error = f"the pool failed: {type(e).__name__}: {e}"
        with self._changed:
            self._busy.pop(slot.address, None)
            for job in run.jobs:
                if "/" in job.owner:
                    self._devices[job.owner] = slot.device
                    self._devices.move_to_end(job.owner)
            while len(self._devices) > MAX_SERIES:
                self._devices.popitem(last=False)
        self._finish(run, rows, error)

    def _begin_again(self, slot: Slot, run: Run) -> bool:
        """Puts a run back whose machine ended, before all others."""
        with self._changed:
            self._busy.pop(slot.address, None)
            if run.restarts >= MAX_RESTARTS or not run.jobs or self._closed:
                return False
            run.restarts += 1
            run.sent, run.share, run.text, run.parts = False, 0.0, f"{AGAIN}{STARTING}", ()
            self._active.remove(run)
            self._waiting.insert(0, run)
            self._tell()
            return True

    def _execute_on(self, slot: Slot, run: Run) -> Rows:
        client = self._connect()
        with self._changed:
            if not run.jobs:
                raise JobError(CANCELLED)
            run.sent = True
            label = run.jobs[0].request.label
        task = client.submit(
            perform,
            run.name,
            run.packed,
            label,
            self._child_module,
            self._deadline_s,
            key=f"{TOPIC}-{run.name}-{run.restarts}",
            workers=[slot.address],
            resources={"GPU": 1},
            pure=False,
            retries=0,
        )
        while not task.done():
            _wait(task, LOOK_S)
            if client.status != "running" or task.status in ("lost", "cancelled"):
                raise JobError(f"the scheduler {self._scheduler} ended while this ran; run it again")
            if not task.done() and slot.address not in _addresses(client):
                task.cancel()
                raise MachineLost
        if task.status != "finished":
            raise JobError(f"the pool: {task.exception()}")
        kind, found = task.result()
        if kind == "error":
            raise JobError(found)
        return found

    def _stop(self, run: Run, wait: bool = False) -> None:
        """Ends a run on its machine. The caller may hold the lock, which the client's own thread needs: another one waits."""
        address = next((address for address, busy in self._busy.items() if busy is run), None)
        if not (address and self._client):
            return
        thread = threading.Thread(target=self._tell_to_stop, args=(self._client, address, run.name), daemon=True)
        thread.start()
        if wait:
            thread.join(ANSWER_S)

    def _tell_to_stop(self, client: Client, address: str, name: str) -> None:
        with contextlib.suppress(Exception):  # a machine that is gone has stopped
            client.run(stop, name, workers=[address], on_error="ignore")


@dataclass(frozen=True)
class OnDevice:
    """A request for one kind of device: its result on another kind is not its result."""

    request: Work
    device: str

    @property
    def CACHED(self) -> bool:
        return self.request.CACHED

    @property
    def label(self) -> str:
        return self.request.label

    @property
    def shape(self) -> object:
        return self.request.shape

    def key(self) -> Hashable:
        return self.device, self.request.key()

    def packed(self) -> bytes:
        return self.request.packed()


def _addresses(client: Client) -> set[str]:
    """Returns the addresses of all workers. JobError if the scheduler is gone.

    The answer comes from the scheduler: the client's own `scheduler_info` may have been replaced by one without workers meanwhile.
    """
    try:
        return set(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    except (OSError, AttributeError, RuntimeError):
        raise JobError("the scheduler of the pool ended; run it again when there is one") from None


def _wait(task: Future, seconds: float) -> None:
    from distributed import wait  # pyright: ignore[reportMissingImports]  # of pools only

    with contextlib.suppress(Exception):  # a timeout; what else failed is in the task
        wait(task, timeout=seconds)


def _client(scheduler: str) -> Client:
    """Connects to a scheduler. JobError says why it cannot."""
    try:
        import distributed  # pyright: ignore[reportMissingImports]  # of pools only
    except ImportError:
        raise JobError(MISSING) from None
    try:
        client = distributed.Client(scheduler, timeout=ANSWER_S, set_as_default=False, name="kernel-theatre")
    except Exception as error:
        raise JobError(f"the scheduler {scheduler} does not answer: {error or type(error).__name__}") from None
    theirs = client.get_versions()["scheduler"]["packages"]
    if theirs["distributed"] != distributed.__version__:
        client.close()
        raise JobError(
            f"the scheduler {scheduler} has distributed {theirs['distributed']}, this app {distributed.__version__}: "
            "install the same version"
        )
    return client


def _slot(address: str, answer: object) -> Slot:
    if not isinstance(answer, dict):
        return Slot(address, fault=f"the worker {address} has no Kernel Theatre: {answer}")
    if answer["version"] != code_version():
        other = f"the worker on {answer['host']} has another version of the app: give all machines the same"
        return Slot(address, answer["host"], fault=other)
    return Slot(address, answer["host"], Machine.from_message(answer["machine"]))


# -- on the machine of a worker ------------------------------------------------------------------
_lock = threading.Lock()
_workers: dict[str, Worker] = {}  # of this machine, by the module of its child
_jobs: dict[str, tuple[Worker, Job]] = {}  # that are executed here, by the name of their run


def perform(name: str, packed: bytes, label: str, child: str, deadline_s: float) -> tuple[str, Any]:
    """Executes a run in a child process, and tells of its progress. Returns ("rows", rows) or ("error", a sentence)."""
    import distributed  # pyright: ignore[reportMissingImports]  # of pools only

    dask = distributed.get_worker()
    with _lock:
        worker = _workers.get(child) or _workers.setdefault(child, Worker(deadline_s, child))
    job = worker.submit(Packed(label, "", f"{name} {time.time_ns()}", packed, CACHED=False))
    _jobs[name], changed = (worker, job), threading.Event()
    job.listen(changed.set)
    changed.set()  # it may have been done before
    reported, parts = None, 0
    try:
        while True:
            changed.wait()
            changed.clear()
            if (job.share, job.text) != reported:
                reported = job.share, job.text
                dask.log_event(TOPIC, {"run": name, "kind": "progress", "share": reported[0], "text": reported[1]})
            for part in job.parts[parts:]:
                parts += 1
                dask.log_event(TOPIC, {"run": name, "kind": "part", "part": part})
            if job.done:
                return "rows", job.result(0)
    except JobError as error:
        return "error", str(error)
    finally:
        _jobs.pop(name, None)


def stop(name: str) -> None:
    """Ends a run on this machine."""
    if found := _jobs.get(name):
        worker, job = found
        worker.cancel(job)
