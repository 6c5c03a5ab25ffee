"""The run of a collective on the GPUs of this machine: the job that the strip's button starts, and its rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels import activity
from kernels.engines.cuda import devices
from kernels.i18n import tr
from kernels.jobs.exchange import Exchange
from kernels.jobs.job import Job, JobError
from pages.parts.worker import worker

KEY = "exchange"
Row = Mapping[str, Any]


@dataclass
class Live:
    """One run: its request, the job while it runs, the rows by algorithm, and why it gave none."""

    request: Exchange
    job: Job | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    counted: tuple[Row, ...] = ()  # of emulated GPUs
    error: str = ""

    @property
    def running(self) -> bool:
        return self.job is not None

    def poll(self) -> None:
        """Takes the rows of a job that is over."""
        if self.job is None or not self.job.done:
            return
        job, self.job = self.job, None
        try:
            found = job.result()
        except JobError as error:
            self.error = str(error)
            return
        self.counted = tuple(row for row in found if "same_bytes" in row)
        self.rows = {row["algorithm"]: row for row in found if "median_ms" in row}
        refused = [f"{row['algorithm']}: {row['refused']}" for row in found if "refused" in row]
        self.error = "; ".join(refused)

    def text(self) -> str:
        """Returns how far the job is, or what was counted on emulated GPUs."""
        if not self.job:
            return _counted(self.counted) if self.counted else ""
        ahead = worker().position(self.job)
        return tr("{n} ahead of you", n=ahead) if ahead else activity.shown(self.job.text)


def _counted(rows: tuple[Row, ...]) -> str:
    """Returns what emulated GPUs did, in a sentence."""
    if all(row["equal"] and row["same_bytes"] for row in rows):
        return tr(
            "Emulated: {n} kernels on {gpus} GPUs. All sums are right and equal bit for bit, all bytes as scheduled.",
            n=len(rows), gpus=rows[0]["ranks"],
        )  # fmt: skip
    wrong = next(row["algorithm"] for row in rows if not (row["equal"] and row["same_bytes"]))
    return tr("Emulated: {kernel} differs from its schedule.", kernel=wrong)


def current() -> Live | None:
    return st.session_state.get(KEY)


def start(request: Exchange) -> None:
    """Queues a run. It replaces the one before."""
    owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
    live = st.session_state[KEY] = Live(request)
    try:
        live.job = worker().submit(request, owner=owner)
    except JobError as error:
        live.error = str(error)


def stop() -> None:
    """Ends the run."""
    live = current()
    if live and live.job:
        worker().cancel(live.job)
        live.job = None


def refusal(ranks: int) -> str:
    """Returns why this machine cannot run over so many GPUs; "" if it can."""
    return devices.refusal(ranks)
