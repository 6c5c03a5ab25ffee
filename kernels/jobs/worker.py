"""Worker: a queue in this process, one child process at a time that runs what waits in it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from kernels.jobs.job import Job, JobError, Request, Rows, Run
from kernels.jobs.process import GONE, Process

DEADLINE_S = 120.0
START_S = 60.0  # the first import of CuPy from a cold disk takes its time
LEAD_S = 10.0  # so long before the deadline the next process is started, to be ready when it is needed
MOST_WAITING = 256
MOST_KEPT = 256  # answers; one is about 10 KB
CANCELLED, REPLACED = "cancelled", "replaced by a newer request"
STOPPED = "the app was stopped"
STARTING = "starting"

log = logging.getLogger(__name__)


class Worker:
    """The child starts with the first run and is started again after it was killed or died.

    on_rows: called with the rows once for each execution, by the serving thread, before they are handed
    out; what it raises is logged.
    """

    def __init__(
        self,
        deadline_s: float = DEADLINE_S,
        module: str = "kernels.jobs.child",
        on_rows: Callable[[Rows], None] | None = None,
    ):
        self._deadline_s, self._module, self._on_rows = deadline_s, module, on_rows
        self._changed = threading.Condition()  # holds what follows together
        self._closed = False
        self._waiting: list[Run] = []
        self._running: Run | None = None
        self._open: dict[Hashable, Run] = {}  # waiting or running, by what they ask for
        self._kept: OrderedDict[Hashable, tuple[Rows, float]] = OrderedDict()
        self._child: Process | None = None
        self._spare: Process | None = None
        threading.Thread(target=self._serve, name="kernel jobs", daemon=True).start()

    def submit(self, request: Request, owner: str = "", fresh: bool = False) -> Job:
        """Queue a request, join it to an equal one, or answer it at once from what is kept.

        owner: whoever asks, "" for nobody; a newer request replaces the owner's waiting one.
        fresh: measure again, whatever is kept.
        JobError where too many wait already, or the request cannot be sent.
        """
        key, packed = request.key(), request.packed()
        with self._changed:
            if self._closed:
                raise JobError("the worker is closed")
            older = self._waiting_of(owner)
            if not fresh and key in self._kept:
                job = Job(request, owner, Run(key, b""))
                self._kept.move_to_end(key)
                rows, at = self._kept[key]
                job.finish(rows, kept_at=at)
            else:
                job = Job(request, owner, self._run_for(key, packed, older))
                job._run.jobs.append(job)
            for one in older:
                self._leave(one, REPLACED)
            self._changed.notify_all()
        return job

    def position(self, job: Job) -> int:
        """How many runs are served before this job's; 0 where it runs or is done."""
        with self._changed:
            if job.done or job._run not in self._waiting:
                return 0
            return self._waiting.index(job._run) + (self._running is not None)

    def waiting(self) -> int:
        """How many runs wait, the one that runs not among them."""
        with self._changed:
            return len(self._waiting)

    def cancel(self, job: Job, running: bool = True) -> None:
        """End a job; its run as well where nobody else wants it. Not `running`: only where it still waits."""
        with self._changed:
            if not job.done and (running or job._run in self._waiting):
                self._leave(job, CANCELLED)

    def close(self) -> None:
        """Stop the child; every job not done ends with an error."""
        with self._changed:
            self._closed = True
            for run in list(self._open.values()):
                for job in run.jobs:
                    job.finish(error=STOPPED)
            self._open.clear()
            self._waiting.clear()
            for process in (self._child, self._spare):
                if process:
                    process.kill()
            self._changed.notify_all()

    # -- the queue; all of it under the lock ---------------------------------------------------
    def _waiting_of(self, owner: str) -> list[Job]:
        if not owner:
            return []
        return [job for run in self._waiting for job in run.jobs if job.owner == owner]

    def _run_for(self, key: Hashable, packed: bytes, leaving: list[Job]) -> Run:
        """The run that already does just this, or a new one at the end of the queue."""
        if run := self._open.get(key):
            return run
        free = sum(len(job._run.jobs) == 1 for job in leaving)
        if len(self._waiting) - free >= MOST_WAITING:
            raise JobError(f"{MOST_WAITING} runs are waiting already; try again in a moment")
        run = self._open[key] = Run(key, packed)
        self._waiting.append(run)
        return run

    def _leave(self, job: Job, why: str) -> None:
        run = job._run
        run.jobs.remove(job)
        job.finish(error=why)
        if run.jobs:
            return
        self._open.pop(run.key, None)
        if run in self._waiting:
            self._waiting.remove(run)
        elif run.sent:
            self._child.kill()

    # -- the serving thread --------------------------------------------------------------------
    def _serve(self) -> None:
        while run := self._next():
            rows, error = None, ""
            try:
                rows = self._execute(run)
            except JobError as e:
                error = str(e)
            except Exception as e:  # nothing that a run brings about may end this thread
                log.exception("a run failed in the worker itself")
                error = f"the worker failed: {type(e).__name__}: {e}"
                self._drop(self._child)
            self._settle(run, rows, error)

    def _next(self) -> Run | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._running = self._waiting.pop(0)
            self._running.text = STARTING
            return self._running

    def _execute(self, run: Run) -> Rows:
        child, message = self._attempt(run)
        if message[0] == GONE and run.text == STARTING and run.jobs:
            self._drop(child)  # it ended as it was asked: that is not this run's doing
            child, message = self._attempt(run)
        return self._last(run, child, message)

    def _attempt(self, run: Run) -> tuple[Process, tuple]:
        """Send a run to a process and follow it; that process and its last message."""
        child = self._ready_child()
        with self._changed:
            if not run.jobs:
                raise JobError(CANCELLED)
            run.sent = True
        child.ask(run.packed)
        end = time.monotonic() + self._deadline_s
        spare_at = end - min(LEAD_S, self._deadline_s / 2)
        while (now := time.monotonic()) < end:
            if now >= spare_at:
                self._prepare_spare()
            message = child.answer((spare_at if now < spare_at else end) - now)
            if message and message[0] == "progress":
                _, run.share, run.text = message
            elif message:
                return child, message
        self._drop(child)
        raise JobError(f"stopped: not done after {self._deadline_s:g} s; take a smaller shape or batch")

    def _last(self, run: Run, child: Process, message: tuple) -> Rows:
        """Rows, or a JobError with what the last message of a run says."""
        kind, *rest = message
        if kind == "rows":
            return rest[0]
        if kind == "error":
            text, stays = rest
            if not stays:
                self._drop(child)
            raise JobError(text)
        self._drop(child)
        how = rest[0] if kind == GONE else f"it said {kind!r}"
        rungs = ", ".join(run.jobs[0].request.rungs) if run.jobs else "this"
        raise JobError(
            f"the process that ran {rungs} died ({how}) while {run.text}; nothing else was touched, "
            "and the next run has a fresh one"
        )

    def _settle(self, run: Run, rows: Rows | None, error: str) -> None:
        with self._changed:
            run.sent = False
        if rows is not None and self._on_rows:
            try:
                self._on_rows(rows)
            except Exception:
                log.exception("rows could not be handed on")
        with self._changed:
            self._running = None
            if self._open.get(run.key) is run:
                del self._open[run.key]
            if rows is not None:
                self._kept[run.key] = rows, time.time()
                self._kept.move_to_end(run.key)
                if len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            for job in run.jobs:
                job.finish(rows, error)

    # -- the child; the serving thread's, others only kill it ----------------------------------
    def _ready_child(self) -> Process:
        """A process that waits for a request: the one that served last, else a spare, else a new one.
        JobError where a new one does not even start."""
        while True:
            child = self._child
            if child is None or not child.alive:
                child = self._replace_child()
            message = ("ready",) if child.idle else child.answer(START_S)
            if message and message[0] == "ready" and child.alive:
                child.idle = True
                return child
            if child.was_ready:  # it ended while nobody used it
                self._drop(child)
                continue
            child.kill()
            how = f"({message[1]})" if message and message[0] == GONE else f"within {START_S:g} s"
            raise JobError(
                f"the process that runs kernels does not start {how}; the terminal of the app says why"
            )

    def _replace_child(self) -> Process:
        with self._changed:
            if self._closed:
                raise JobError(STOPPED)
            self._child, self._spare = self._spare or self._start(), None
            return self._child

    def _prepare_spare(self) -> None:
        with self._changed, contextlib.suppress(JobError):  # the run goes on without
            if not self._closed and not (self._spare and self._spare.alive):
                self._spare = self._start()

    def _drop(self, child: Process | None) -> None:
        """End a process; its successor starts at once, but not one's that never was of use."""
        if child is None:
            return
        child.kill()
        if child.was_ready:
            with contextlib.suppress(JobError):  # the next run will say why
                self._replace_child()

    def _start(self) -> Process:
        try:
            return Process(self._module)
        except OSError as e:
            raise JobError(f"the process that runs kernels cannot be started: {e}") from None
