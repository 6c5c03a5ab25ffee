"""Comparisons run in a separate process, one at a time. A hang, a crash or a request that needs too much memory ends
one run there, never the app and no other user's run.

`Worker` is the whole interface, and the queues of `JobService` have the same:

    submit(request, owner="", fresh=False) -> Job
    position(job) -> int       how many runs come before it
    waiting() -> int           how many runs wait
    cancel(job, running=True), close()
    Job: done, share, text, parts, result(timeout), cached, measured_at, listen(listener)

Equal requests that wait or run are executed once. Results are cached and returned at once.
`Counts` has a worker of its own for the emulator's counts, so that no run waits behind them.

The app uses the JobService: one process of a machine (service.py), to which any number of apps connect (client.py), so
that no two of them time at once.
"""

from __future__ import annotations

from kernels.jobs.client import JobService
from kernels.jobs.counts import Count, Counts
from kernels.jobs.job import Job, JobError, Request
from kernels.jobs.worker import DEADLINE_S, MAX_WAITING, Worker

__all__ = ["DEADLINE_S", "MAX_WAITING", "Count", "Counts", "Job", "JobError", "JobService", "Request", "Worker"]
