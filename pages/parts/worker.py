"""What runs kernels for every page: the job service of this machine, which all apps share, or a pool of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from kernels.jobs.client import JobService, Queue
from kernels.jobs.counts import Counts
from kernels.jobs.pool import Pool
from kernels.jobs.service import COUNTS, RUNS
from kernels.jobs.settings import in_this_app, pool
from kernels.jobs.worker import Worker
from kernels.machine.elsewhere import Machine
from kernels.model.row import Row
from kernels.records import store


@st.cache_resource
def worker() -> Worker | Queue:
    if in_this_app():
        return Worker(on_rows=_keep)
    here = JobService(on_rows=_keep).queues[RUNS]
    return Pool(pool(), on_rows=_keep, here=lambda: here) if pool() else here


def machines() -> Mapping[str, Machine] | None:
    """Returns the machines of the pool by their card, as they were a few seconds ago; None without a pool."""
    runs = worker() if pool() else None
    return runs.machines() if isinstance(runs, Pool) else None


@st.cache_resource
def counts() -> Counts:
    return Counts() if in_this_app() else Counts(queue=JobService().queues[COUNTS])


def _keep(measured: Sequence[Row]) -> None:
    """Stores measured rows of rungs, even if the reader has left. The history page shows the store's errors."""
    store.user_store().save([row for row in measured if "median_ms" in row and "rung" in row])
