"""Worker: a queue of runs in this process, and one child process at a time that executes them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable

from kernels.activity import STARTING
from kernels.jobs.job import Job, JobError, Rows, Run, Work
from kernels.jobs.process import GONE, Process

DEADLINE_S = 120.0
START_S = 60.0  # the first import of CuPy from a cold disk takes its time
LEAD_S = 10.0  # this long before the deadline a spare process is started, to be ready when it is needed
MAX_WAITING = 256
MAX_CACHED = 256  # results; one is about 10 KB
CANCELLED, REPLACED = "cancelled", "replaced by a newer request"
STOPPED = "the app was stopped"

log = logging.getLogger(__name__)


def owners_of(run: Run) -> set[str]:
    """Returns who has jobs of this run, for turns: an owner's name up to "/". Jobs of nobody have turns of their own."""
    return {job.owner.partition("/")[0] for job in run.jobs if job.owner}


def _tell_jobs(run: Run) -> None:
    for job in run.jobs:
        job.tell()


class Worker:
    """A queue of runs and the child process that executes them. The child starts with the first run, and again after
    it was killed or died.

    on_rows: called with the rows once for each execution, by the worker's thread, before the jobs get them. What it
    returns is the run's `note`. An exception in it is logged.

    Runs start in the order of their submission, except that a second run of one owner comes after the first of each other.
    """

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        module: str = "kernels.jobs.child",
        on_rows: Callable[[Rows], str | None] | None = None,
    ):
        self._deadline_s, self._module, self._on_rows = deadline_s, module, on_rows
        self._changed = threading.Condition()  # guards the fields below
        self._changes = 0  # of any job
        self._closed = False
        self._waiting: list[Run] = []
        self._active: list[Run] = []  # those that are executed
        self._unfinished: dict[Hashable, Run] = {}  # waiting or running, by key
        self._cache: OrderedDict[Hashable, tuple[Rows, float]] = OrderedDict()
        self._child: Process | None = None
        self._spare: Process | None = None
        threading.Thread(target=self._process_queue, name="kernel jobs", daemon=True).start()

    def submit(self, request: Work, owner: str = "", fresh: bool = False) -> Job:
        """Queue a request, join it to an equal one, or finish it at once from the cache. A request is a Request or one
        of another kind (kernels.jobs.child.HANDLERS).

        owner: who submits it, "" for nobody. A newer request replaces the owner's waiting one.
        fresh: measure again, even if there is a cached result.
        JobError if too many runs wait already, or if the request cannot be pickled.
        """
        key, packed = request.key(), request.packed()
        with self._changed:
            if self._closed:
                raise JobError("the worker is closed")
            older = self._waiting_of(owner)
            if not fresh and key in self._cache:
                job = Job(request, owner, Run(key, b""))
                self._cache.move_to_end(key)
                rows, measured_at = self._cache[key]
                job.finish(rows, cached_at=measured_at)
            else:
                job = Job(request, owner, self._run_for(key, packed, older, request.CACHED))
                job._run.jobs.append(job)
            for older_job in older:
                self._remove_job(older_job, REPLACED)
            self._tell()
        return job

    def position(self, job: Job) -> int:
        """Returns how many runs come before this job's; 0 if it runs or is done."""
        with self._changed:
            if job.done or job._run not in self._waiting:
                return 0
            return self._in_order().index(job._run) + bool(self._active)

    def positions(self) -> dict[Run, int]:
        """Returns for each run that waits how many come before it."""
        with self._changed:
            return {run: n for n, run in enumerate(self._in_order(), bool(self._active))}

    def waiting(self) -> int:
        """Returns how many runs wait, without the one that runs."""
        with self._changed:
            return len(self._waiting)

    def busy(self) -> bool:
        """Returns whether a run waits or is executed."""
        with self._changed:
            return bool(self._waiting or self._active)

    def next_change(self, seen: int, timeout: float) -> int:
        """Waits until the state of any job differs from that at the change `seen`, or for `timeout` seconds. Returns the
        number of the last change."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen or self._closed, timeout)
            return self._changes

    def cancel(self, job: Job, running: bool = True) -> None:
        """End a job, and its run if no other job shares it. With running=False only if it still waits."""
        with self._changed:
            if not job.done and (running or job._run in self._waiting):
                self._remove_job(job, CANCELLED)
                self._tell()

    def close(self) -> None:
        """Stop the child; every job not done ends with an error."""
        with self._changed:
            self._closed = True
            for run in list(self._unfinished.values()):
                for job in run.jobs:
                    job.finish(error=STOPPED)
            self._unfinished.clear()
            self._waiting.clear()
            for process in (self._child, self._spare):
                if process:
                    process.kill()
            self._tell()

    # -- the queue; called with the lock held --------------------------------------------------
    def _tell(self) -> None:
        """Wakes the threads that wait for work or for a change."""
        self._changes += 1
        self._changed.notify_all()

    def _in_order(self) -> list[Run]:
        """Returns the runs that wait, the next one first."""
        before = Counter(owner for run in self._active for owner in owners_of(run))
        turns = []
        for run in self._waiting:
            owners = owners_of(run)
            turns.append(min((before[owner] for owner in owners), default=0))
            before.update(owners)
        return [run for _, _, run in sorted(zip(turns, range(len(turns)), self._waiting, strict=True))]

    def _waiting_of(self, owner: str) -> list[Job]:
        if not owner:
            return []
        return [job for run in self._waiting for job in run.jobs if job.owner == owner]

    def _run_for(self, key: Hashable, packed: bytes, replaced: list[Job], cached: bool) -> Run:
        """Returns the unfinished run with this key, or a new one at the end of the queue."""
        if run := self._unfinished.get(key):
            return run
        free = sum(len(job._run.jobs) == 1 for job in replaced)
        if len(self._waiting) - free >= MAX_WAITING:
            raise JobError(f"{MAX_WAITING} runs are waiting already; try again in a moment")
        run = self._unfinished[key] = Run(key, packed, cached)
        self._waiting.append(run)
        return run

    def _remove_job(self, job: Job, reason: str) -> None:
        run = job._run
        run.jobs.remove(job)
        job.finish(error=reason)
        if run.jobs:
            return
        self._unfinished.pop(run.key, None)
        if run in self._waiting:
            self._waiting.remove(run)
        elif run.sent:
            self._stop(run)

    def _stop(self, run: Run) -> None:
        if self._child is not None:
            self._child.kill()

    # -- the worker's thread -------------------------------------------------------------------
    def _process_queue(self) -> None:
        while run := self._next():
            rows, error = None, ""
            try:
                rows = self._execute(run)
            except JobError as e:
                error = str(e)
            except Exception as e:  # no error of a run may end this thread
                log.exception("a run failed in the worker itself")
                error = f"the worker failed: {type(e).__name__}: {e}"
                self._drop(self._child)
            self._finish(run, rows, error)

    def _next(self) -> Run | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            return self._begin(self._in_order()[0])

    def _begin(self, run: Run) -> Run:
        """Takes a run from those that wait; called with the lock held."""
        self._waiting.remove(run)
        self._active.append(run)
        run.text = STARTING
        self._tell()
        for each in (run, *self._waiting):
            _tell_jobs(each)
        return run

    @property
    def _running(self) -> Run | None:
        return self._active[0] if self._active else None

    def _execute(self, run: Run) -> Rows:
        child, message = self._attempt(run)
        if message[0] == GONE and run.text == STARTING and run.jobs:
            self._drop(child)  # it ended before the run began: not the run's fault
            child, message = self._attempt(run)
        return self._rows_of(run, child, message)

    def _attempt(self, run: Run) -> tuple[Process, tuple]:
        """Send a run to a process and wait for its end. Returns that process and its last message."""
        child = self._ready_child()
        with self._changed:
            if not run.jobs:
                raise JobError(CANCELLED)
            run.sent = True
        child.send(run.packed)
        end = time.monotonic() + self._deadline_s
        spare_at = end - min(LEAD_S, self._deadline_s / 2)
        while (now := time.monotonic()) < end:
            if now >= spare_at:
                self._prepare_spare()
            message = child.next_message((spare_at if now < spare_at else end) - now)
            if message and message[0] in ("progress", "part"):
                self._advance(run, message)
            elif message:
                return child, message
        self._drop(child)
        raise JobError(f"stopped: not done after {self._deadline_s:g} s; take a smaller shape or batch")

    def _advance(self, run: Run, message: tuple) -> None:
        """Stores what a process says of its run."""
        with self._changed:
            if message[0] == "progress":
                _, run.share, run.text = message
            else:
                run.parts = (*run.parts, message[1])
            self._tell()
            _tell_jobs(run)

    def _rows_of(self, run: Run, child: Process, message: tuple) -> Rows:
        """Returns the rows in the last message of a run, or raises a JobError with its text."""
        kind, *rest = message
        if kind == "rows":
            return rest[0]
        if kind == "error":
            text, usable = rest
            if not usable:
                self._drop(child)
            raise JobError(text)
        self._drop(child)
        reason = rest[0] if kind == GONE else f"it said {kind!r}"
        label = run.jobs[0].request.label if run.jobs else "this"
        raise JobError(
            f"the process that ran {label} died ({reason}) while {run.text}; nothing else was touched, "
            "and the next run has a fresh one"
        )

    def _finish(self, run: Run, rows: Rows | None, error: str) -> None:
        with self._changed:
            run.sent = False
        if rows is not None and self._on_rows:
            try:
                run.note = self._on_rows(rows) or ""
            except Exception:
                log.exception("rows could not be handed on")
        with self._changed:
            self._active.remove(run)
            if self._unfinished.get(run.key) is run:
                del self._unfinished[run.key]
            if rows is not None and run.cached:
                self._cache[run.key] = rows, time.time()
                self._cache.move_to_end(run.key)
                if len(self._cache) > MAX_CACHED:
                    self._cache.popitem(last=False)
            for job in run.jobs:
                job.finish(rows, error)
            self._tell()

    # -- the child; used by the worker's thread, others only kill it ---------------------------
    def _ready_child(self) -> Process:
        """Returns a process that waits for a request: the last one used, else a spare, else a new one. JobError if a
        new one does not start."""
        while True:
            child = self._child
            if child is None or not child.alive:
                child = self._replace_child()
            message: tuple | None = ("ready",) if child.idle else child.next_message(START_S)
            if message and message[0] == "ready" and child.alive:
                child.idle = True
                return child
            if child.was_ready:  # it ended while it was idle
                self._drop(child)
                continue
            child.kill()
            reason = f"({message[1]})" if message and message[0] == GONE else f"within {START_S:g} s"
            raise JobError(
                f"the process that runs kernels does not start {reason}; the terminal of the app or the log of its job service says why"
            )

    def _replace_child(self) -> Process:
        with self._changed:
            if self._closed:
                raise JobError(STOPPED)
            self._child, self._spare = self._spare or self._start(), None
            return self._child

    def _prepare_spare(self) -> None:
        with self._changed, contextlib.suppress(JobError):  # the run continues without a spare
            if not self._closed and not (self._spare and self._spare.alive):
                self._spare = self._start()

    def _drop(self, child: Process | None) -> None:
        """End a process and start its successor at once. A process that was never ready gets no successor."""
        if child is None:
            return
        child.kill()
        if child.was_ready:
            with contextlib.suppress(JobError):  # the next run reports why
                self._replace_child()

    def _start(self) -> Process:
        try:
            return Process(self._module)
        except OSError as e:
            raise JobError(f"the process that runs kernels cannot be started: {e}") from None
