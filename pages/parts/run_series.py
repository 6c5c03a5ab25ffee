"""A series of runs that are submitted one at a time, so that other readers' runs can come between."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels import activity
from kernels.i18n import tr
from kernels.jobs.job import Job, JobError, Request
from kernels.model.row import Row
from pages.parts import machine_choice, run
from pages.parts.query import rerun, url_is_stale
from pages.parts.worker import worker


@dataclass
class Series:
    """The state of one series: `todo` holds the remaining requests, `job` runs. `name` describes a request."""

    settings: Any
    todo: list[Request]
    name: Callable[[Request], str]
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    tried: int = 0  # requests that were answered, by rows or by an error
    job: Job | None = None
    stopped: bool = False

    @property
    def total(self) -> int:
        return self.tried + len(self.todo) + (self.job is not None)


def current_series(key: str) -> Series | None:
    """Returns the reader's last series of that name, after it stored a finished result and submitted the next request.

    The page is rerun at the end of the series, so that polling stops. Call it in the fragment that `every` polls.
    """
    series: Series | None = st.session_state.get(key)
    if series and series.job and series.job.done and not url_is_stale():
        while series.job and series.job.done:  # a result that is already known is returned at once
            _store_result(series)
            _next(series, key)
        if not series.job:
            rerun()
    return series


def poll_interval(key: str) -> float | None:
    """Returns the seconds between polls; None if no series runs."""
    series: Series | None = st.session_state.get(key)
    return run.POLL_S if series and series.job else None


def start(key: str, series: Series) -> None:
    st.session_state[key] = series
    _next(series, key)
    rerun()


def stop(series: Series) -> None:
    job, series.job = series.job, None
    series.todo.clear()
    series.stopped = True
    if job:
        worker().cancel(job)
    rerun()


def progress(series: Series | None) -> None:
    """Draws the progress of a series that runs."""
    if not (series and series.job):
        return
    ahead = worker().position(series.job)
    fields = {
        "done": series.tried,
        "total": series.total,
        "ahead": ahead,
        "name": series.name(series.job.request),
        "state": activity.shown(series.job.text),
    }
    text = (
        tr("{done} of {total} done, {ahead} ahead of you: {name}, {state}", **fields)
        if ahead
        else tr("{done} of {total} done: {name}, {state}", **fields)
    )
    st.progress((series.tried + series.job.share) / series.total, text=text)


def _store_result(series: Series) -> None:
    job = series.job
    assert job is not None  # it has ended
    try:
        series.rows += job.result()
    except JobError as e:
        series.failed.append(f"{series.name(job.request)}: {e}")
    series.tried += 1


def _next(series: Series, key: str) -> None:
    # Its runs have their turns among the reader's others, and do not replace them.
    owner = f"{st.session_state.setdefault('owner', uuid.uuid4().hex)}/{key}"
    series.job = None
    while series.todo and not series.job:
        request = series.todo.pop(0)
        try:
            series.job = machine_choice.submit(request, owner)
        except JobError as e:
            series.failed.append(f"{series.name(request)}: {e}")
            series.tried += 1
