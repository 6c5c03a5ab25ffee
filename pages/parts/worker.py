"""The worker of this server: one process that runs kernels for every page."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kernels.jobs.worker import Worker
from kernels.records import store


@st.cache_resource
def worker() -> Worker:
    return Worker(on_rows=_keep)


def _keep(measured: Sequence[dict]) -> None:
    """Stores measured rows of rungs, even if the reader has left. The history page shows the store's errors."""
    store.user_store().save([row for row in measured if "median_ms" in row and "rung" in row])
