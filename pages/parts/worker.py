"""What runs kernels for every page: the job service of this machine, which all apps share."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kernels.jobs.client import JobService, Queue
from kernels.jobs.counts import Counts
from kernels.jobs.service import COUNTS, RUNS
from kernels.jobs.settings import in_this_app
from kernels.jobs.worker import Worker
from kernels.records import store


@st.cache_resource
def worker() -> Worker | Queue:
    if in_this_app():
        return Worker(on_rows=_keep)
    return JobService(on_rows=_keep).queues[RUNS]


@st.cache_resource
def counts() -> Counts:
    return Counts() if in_this_app() else Counts(queue=JobService().queues[COUNTS])


def _keep(measured: Sequence[dict]) -> None:
    """Stores measured rows of rungs, even if the reader has left. The history page shows the store's errors."""
    store.user_store().save([row for row in measured if "median_ms" in row and "rung" in row])
