"""What runs kernels for this process, as the environment says: the job service of this machine, a pool of machines, or a
queue of its own."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.jobs.client import JobService, Queue
from kernels.jobs.pool import Pool
from kernels.jobs.service import RUNS
from kernels.jobs.settings import in_this_app, pool
from kernels.jobs.worker import Worker
from kernels.records import store


def runs() -> Worker | Queue:
    """Returns a new queue of runs. What it measures is stored."""
    if in_this_app():
        return Worker(on_rows=_keep)
    here = JobService(on_rows=_keep).queues[RUNS]
    return Pool(pool(), on_rows=_keep, here=lambda: here) if pool() else here


def _keep(measured: Sequence[dict]) -> None:
    """Stores measured rows of rungs, even if the reader has left. The history page shows the store's errors."""
    store.user_store().save([row for row in measured if "median_ms" in row and "rung" in row])
