"""One job of a reader, beside those of kernels: it is polled by a fragment, and its row stays in the session."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels import activity
from kernels.i18n import tr
from kernels.jobs.job import Job, JobError
from pages.parts.worker import worker

POLL_S = 0.25


@dataclass
class OneRun:
    """The job under a key of the session, and the rows of the requests that were answered."""

    key: str
    job: Job | None = None
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)  # by the request's key
    error: str = ""

    @property
    def running(self) -> bool:
        return self.job is not None

    def row(self, request: Any) -> dict[str, Any] | None:
        """Returns the row of a request, if it was answered."""
        return self.rows.get(request.key())

    def start(self, request: Any) -> None:
        owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
        try:
            self.job, self.error = worker().submit(request, owner=owner, fresh=True), ""
        except JobError as error:
            self.job, self.error = None, str(error)

    def stop(self) -> None:
        if self.job:
            worker().cancel(self.job)
            self.job = None

    def poll(self) -> None:
        """Takes the row of a job that is over, or its error."""
        if self.job is None or not self.job.done:
            return
        job, self.job = self.job, None
        try:
            (self.rows[job.request.key()],) = job.result()
        except JobError as error:
            self.error = str(error)

    def text(self) -> str:
        """Returns what it does at the moment; "" if it does not run."""
        if self.job is None:
            return ""
        ahead = worker().position(self.job)
        return tr("{n} ahead of you", n=ahead) if ahead else activity.shown(self.job.text)


def one_run(key: str) -> OneRun:
    """Returns the run under a key of this session."""
    return st.session_state.setdefault(key, OneRun(key))
