"""Comparisons run in a process of their own, one at a time: a hang or a crash there ends one job,
never the app. `Worker` is the whole interface: submit, position, progress, result, cancel, close."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0
MOST_WAITING = 64


class JobError(RuntimeError):
    """Why a job gave no result, in words a reader can use."""


@dataclass(frozen=True)
class Request:
    """What kernels.runner.compare is asked; `inputs` are NumPy arrays by buffer name."""

    rungs: tuple[str, ...]
    shape: Any
    inputs: dict[str, Any] | None = None
    engine: str | None = None
    tiles: dict[str, int] = field(default_factory=dict)
    mode: str = "cold"
    seconds: float = 3.0


class Job:
    """One submitted request, as its owner sees it. Read from any thread."""

    def __init__(self, request: Request):
        self.request = request
        self.share, self.text = 0.0, "waiting"
        self.cancelled = False
        self._done = threading.Event()
        self._rows: list[dict] | None = None
        self._error = ""

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> list[dict]:
        """One row per rung, as kernels.records.row makes them. JobError says what went wrong."""
        if not self._done.wait(timeout):
            raise TimeoutError("the job is still running")
        if self._rows is None:
            raise JobError(self._error)
        return self._rows

    def _finish(self, rows: list[dict] | None = None, error: str = "") -> None:
        self._rows, self._error = rows, error
        self._done.set()


class Worker:
    """A queue in this process, one child process that runs the jobs. The child starts with the first
    job and is started again after it was killed or died."""

    def __init__(self, deadline_s: float = DEADLINE_S, module: str = "kernels.jobs.child"):
        self._deadline_s, self._module = deadline_s, module
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._child: subprocess.Popen | None = None
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._serve, name="kernel jobs", daemon=True).start()

    def submit(self, request: Request) -> Job:
        """Queue a request. JobError where too many wait already."""
        job = Job(request)
        with self._changed:
            if self._closed:
                raise JobError("the worker is closed")
            if len(self._waiting) >= MOST_WAITING:
                raise JobError(f"{MOST_WAITING} runs are waiting already; try again in a moment")
            self._waiting.append(job)
            self._changed.notify_all()
        return job

    def position(self, job: Job) -> int:
        """How many jobs are served before this one; 0 where it runs or is done."""
        with self._changed:
            if job not in self._waiting:
                return 0
            return self._waiting.index(job) + (self._running is not None)

    def cancel(self, job: Job) -> None:
        """Take a job out of the queue, or stop it where it runs."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
                job._finish(error="cancelled")
            elif job is self._running and self._child and not job.done:
                job.cancelled = True
                self._child.kill()

    def close(self) -> None:
        """Stop the child; every job not done ends with an error."""
        with self._changed:
            self._closed = True
            for job in self._waiting:
                job._finish(error="the app was stopped")
            self._waiting.clear()
            if self._child:
                self._child.kill()
            self._changed.notify_all()

    # -- the serving thread --------------------------------------------------------------------
    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._running = job = self._waiting.popleft()
                if not self._child or self._child.poll() is not None:
                    self._child = self._start()
                child = self._child
            try:
                self._run(job, child)
            finally:
                with self._changed:
                    self._running = None

    def _start(self) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip

    def _run(self, job: Job, child: subprocess.Popen) -> None:
        late = threading.Event()

        def stop() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(self._deadline_s, stop)
        timer.start()
        try:
            pickle.dump(job.request, child.stdin)
            child.stdin.flush()
            while not job.done:
                kind, *rest = pickle.load(child.stdout)
                if kind == "progress":
                    job.share, job.text = rest
                elif kind == "rows":
                    job._finish(rows=rest[0])
                else:
                    job._finish(error=rest[0])
        except (EOFError, OSError, pickle.UnpicklingError):
            job._finish(error=self._why_it_died(job, child, late.is_set()))
        finally:
            timer.cancel()

    def _why_it_died(self, job: Job, child: subprocess.Popen, late: bool) -> str:
        child.kill()
        code = child.wait()
        if late:
            return f"stopped: not done after {self._deadline_s:g} s; take a smaller shape or batch"
        if job.cancelled:
            return "cancelled"
        return (
            f"the process that ran {', '.join(job.request.rungs)} died (exit status {code}) while {job.text}; "
            "nothing else was touched, and the next run starts a fresh one"
        )
