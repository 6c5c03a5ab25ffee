"""Comparisons run in a process of their own, one at a time: a hang, a crash or a greedy request there
ends one run, never the app, and no other reader's run.

`Worker` is the whole interface, and another backend (GPUs of other machines, say) would offer the same:

    submit(request, owner="", fresh=False) -> Job
    position(job) -> int       how many runs are served before it
    cancel(job), close()
    Job: done, share, text, result(timeout), kept, answered_at

Equal requests that wait or run are one execution; what was answered is kept and given at once.
"""

from __future__ import annotations

from kernels.jobs.job import Job, JobError, Request
from kernels.jobs.worker import DEADLINE_S, MOST_WAITING, Worker

__all__ = ["DEADLINE_S", "MOST_WAITING", "Job", "JobError", "Request", "Worker"]
