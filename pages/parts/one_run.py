"""One job of a reader, beside those of kernels: it is polled by a fragment, and its rows stay in the session."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels import activity
from kernels.jobs.job import Job, JobError, Work
from kernels.model.row import Row
from pages.parts import machine_choice
from pages.parts.worker import worker

POLL_S = 0.25


@dataclass
class OneRun:
    """The job under a key of the session, and the rows that earlier jobs gave."""

    key: str
    request: Any = None  # of the last start
    job: Job | None = None  # while it runs
    results: dict[Hashable, Sequence[Row]] = field(default_factory=dict)  # by the request's key
    error: str = ""  # why the last request gave no rows

    @property
    def share(self) -> float:
        """Returns how far the job is, 0 if none runs."""
        return self.job.share if self.job else 0.0

    @property
    def running(self) -> bool:
        return self.job is not None

    def rows(self, request: Work) -> Sequence[Row]:
        """Returns the rows of a request; none before it ran."""
        return self.results.get(request.key(), ())

    def row(self, request: Work) -> Row | None:
        """Returns the row of a request that gives one."""
        return next(iter(self.rows(request)), None)

    def error_of(self, request: Work) -> str:
        """Returns why a request gave no rows; "" if it was not the last one."""
        return self.error if self.request is not None and self.request.key() == request.key() else ""

    def start(self, request: Work) -> None:
        """Queues a request. A job that still runs is ended."""
        owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
        self.stop()
        self.request, self.error = request, ""
        try:
            self.job = machine_choice.submit(request, owner, fresh=True)
        except JobError as error:
            self.error = str(error)

    def stop(self) -> None:
        if self.job:
            worker().cancel(self.job)
            self.job = None

    def poll(self) -> None:
        """Takes the rows of a job that is over, or its error."""
        if self.job is None or not self.job.done:
            return
        job, self.job = self.job, None
        try:
            self.results[self.request.key()] = job.result()
        except JobError as error:
            self.error = str(error)

    def text(self) -> str:
        """Returns what it does at the moment; "" if it does not run."""
        return activity.place(self.job.text, worker().position(self.job)) if self.job else ""


def one_run(key: str) -> OneRun:
    """Returns the run under a key of this session."""
    return st.session_state.setdefault(key, OneRun(key))
