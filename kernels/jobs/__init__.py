"""Comparisons run in a process of their own, one at a time: a hang, a crash or a greedy request there
ends one run, never the app, and no other reader's run.

`Worker` is the whole interface, and another backend (GPUs of other machines, say) would offer the same:

    submit(request, owner="", fresh=False) -> Job
    position(job) -> int       how many runs are served before it
    waiting() -> int           how many wait
    cancel(job, running=True), close()
    Job: done, share, text, result(timeout), kept, answered_at

Equal requests that wait or run are one execution; what was answered is kept and given at once.
`Counts` has a worker of its own for what the emulator counts, so that no run waits behind it.
"""

from __future__ import annotations

from kernels.jobs.counts import Count, Counts
from kernels.jobs.job import Job, JobError, Request
from kernels.jobs.worker import DEADLINE_S, MOST_WAITING, Worker

__all__ = ["DEADLINE_S", "MOST_WAITING", "Count", "Counts", "Job", "JobError", "Request", "Worker"]
