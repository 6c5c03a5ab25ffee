"""What runs kernels for every page: the job service of this machine, which all apps share, or a pool of machines."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from kernels.jobs import here
from kernels.jobs.client import JobService, Queue
from kernels.jobs.counts import Counts
from kernels.jobs.pool import Pool
from kernels.jobs.service import COUNTS
from kernels.jobs.settings import in_this_app, pool
from kernels.jobs.worker import Worker
from kernels.machine.elsewhere import Machine


@st.cache_resource
def worker() -> Worker | Queue:
    return here.runs()


def machines() -> Mapping[str, Machine] | None:
    """Returns the machines of the pool by their card, as they were a few seconds ago; None without a pool."""
    runs = worker() if pool() else None
    return runs.machines() if isinstance(runs, Pool) else None


@st.cache_resource
def counts() -> Counts:
    return Counts() if in_this_app() else Counts(queue=JobService().queues[COUNTS])
