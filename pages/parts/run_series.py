"""A series of runs that the worker takes one at a time, so that others' come between: how it goes on, and its end."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from kernels.jobs.job import Job, JobError, Request
from pages.parts import run as run_card
from pages.parts.query import behind
from pages.parts.worker import worker


@dataclass
class Series:
    """One series as it goes on: `todo` is what is left, `job` what runs. `name` tells a request in words."""

    asked: Any
    todo: list[Request]
    name: Callable[[Request], str]
    rows: list[dict] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    tried: int = 0  # requests that were answered, by rows or by an error
    job: Job | None = None
    stopped: bool = False

    @property
    def total(self) -> int:
        return self.tried + len(self.todo) + (self.job is not None)


def going(key: str) -> Series | None:
    """The reader's last series of that name, taken on: what is done is kept, the next submitted. The page is run
    again at its end, so that polling stops. Call it in the fragment that `every` polls."""
    series: Series | None = st.session_state.get(key)
    if series and series.job and series.job.done and not behind():
        while series.job and series.job.done:  # what was measured before is answered at once
            _take(series)
            _next(series, key)
        if not series.job:
            st.rerun()
    return series


def every(key: str) -> float | None:
    """Seconds between polls: None where nothing goes on."""
    series: Series | None = st.session_state.get(key)
    return run_card.POLL_S if series and series.job else None


def start(key: str, series: Series) -> None:
    st.session_state[key] = series
    _next(series, key)
    st.rerun()


def stop(series: Series) -> None:
    job, series.job = series.job, None
    series.todo.clear()
    series.stopped = True
    worker().cancel(job)
    st.rerun()


def progress(series: Series | None) -> None:
    """How far it is, where one goes on."""
    if not (series and series.job):
        return
    ahead = worker().position(series.job)
    waits = f", {ahead} ahead of you" if ahead else ""
    text = (
        f"{series.tried} of {series.total} done{waits}: {series.name(series.job.request)}, {series.job.text}"
    )
    st.progress((series.tried + series.job.share) / series.total, text=text)


def _take(series: Series) -> None:
    try:
        series.rows += series.job.result()
    except JobError as e:
        series.failed.append(f"{series.name(series.job.request)}: {e}")
    series.tried += 1


def _next(series: Series, key: str) -> None:
    owner = st.session_state.setdefault(f"{key}_owner", uuid.uuid4().hex)
    series.job = None
    while series.todo and not series.job:
        request = series.todo.pop(0)
        try:
            series.job = worker().submit(request, owner=owner)
        except JobError as e:
            series.failed.append(f"{series.name(request)}: {e}")
            series.tried += 1
