"""The run of a parallel step on the GPUs of this machine: the job that the strip's button starts, and its rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels import activity
from kernels.engines.cuda import devices
from kernels.i18n import tr
from kernels.jobs.job import Job, JobError
from kernels.jobs.parallel_step import ParallelStep
from kernels.parallel.plan import Plan
from kernels.parallel.split_devices import RUNNABLE
from pages.parts.worker import worker
from visuals.strip.strip import Run

KEY = "parallel_step"
Row = Mapping[str, Any]


@dataclass
class Live:
    """One run: its request, the job while it runs, its rows by their step, and why it gave none."""

    request: ParallelStep
    job: Job | None = None
    rows: dict[Plan, Row] = field(default_factory=dict)
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
            self.rows = {_plan(row): row for row in job.result()}
        except JobError as error:
            self.error = str(error)

    def text(self) -> str:
        """Returns how far the job is."""
        if not self.job:
            return ""
        ahead = worker().position(self.job)
        return tr("{n} ahead of you", n=ahead) if ahead else activity.shown(self.job.text)


def _plan(row: Row) -> Plan:
    """Returns the step of a row."""
    return Plan(*(row[name] for name in ("network", "way", "gpus", "batch", "micro", "bucket_bytes", "optimizer")))  # fmt: skip


def current() -> Live | None:
    return st.session_state.get(KEY)


def of(plan: Plan) -> Live | None:
    """Returns the run of a step, None if another one or none was run."""
    live = current()
    return live if live and live.request.plan == plan else None


def start(request: ParallelStep) -> None:
    """Queues a run. It replaces the one before."""
    owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
    stop()
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


def refusal(plan: Plan) -> str:
    """Returns why a step cannot run on the GPUs of this machine; "" if it can."""
    if plan.way not in RUNNABLE:
        return tr("sharded state runs on a processor only")
    return devices.refusal(plan.gpus)


def run_of(plan: Plan) -> Run:
    """Returns the state of the button: a run on the GPUs, or why there is none."""
    live = of(plan)
    if live and live.running:
        return Run(True, True, live.job.share, live.text())
    why = refusal(plan)
    text = tr("Not measured here: {why}.", why=why) if why else ""
    return Run(text=text, error=live.error if live else "")
