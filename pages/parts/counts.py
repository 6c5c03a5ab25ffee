"""Requests to count a shape: sent when the controls have not changed for a while, dropped when they change.

With a hundred readers most shapes are new, and there are not enough processors to count them all. So the page itself
never counts. It shows known counts and polls again later; the more shapes are waiting, the later.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.i18n import mark, tr
from kernels.jobs.counts import Count, Counts
from kernels.jobs.job import Job, JobError
from kernels.model.rung import Rung
from pages.parts.run_settings import RunSettings
from visuals import units

MAX_MACS = 500_000  # multiply-adds: larger shapes are not counted
REST_S = 0.6  # a shape is requested after it has not changed for so long
CROWD = 4  # for each so many waiting shapes the next poll is REST_S later
CHANGED = mark("the kernels have changed; start the app again")


def too_large(settings: RunSettings) -> str:
    return tr(
        "The page counts shapes of up to {limit} multiply-adds. This shape has {macs}.",
        limit=units.count(MAX_MACS),
        macs=units.count(settings.shape.macs),
    )


@st.cache_resource
def counts() -> Counts:
    return Counts()


@dataclass
class CountRequest:
    """A request to count rungs at a shape and tile sizes, and its state."""

    key: tuple[Any, ...]
    since: float  # time.monotonic()
    job: Job | None = None
    error: str = ""

    @property
    def status(self) -> str:
        if self.error:
            return tr("not counted: {reason}", reason=tr(self.error))
        n_ahead = counts().position(self.job) if self.job else 0
        return tr("counting …, {n} shapes before this one", n=n_ahead) if n_ahead else tr("counting …")


def countable(settings: RunSettings) -> list[Rung]:
    """Returns the supported rungs that the emulator can run. A GPU library cannot be counted."""
    return [rung for rung in settings.supported_rungs() if "emulator" in rung.engines]


def known(settings: RunSettings, rung: Rung) -> Count | None:
    """Returns the counts of a rung at these settings; None if it has not been counted."""
    if settings.shape.macs > MAX_MACS:
        return None
    return counts().get(rung, settings.shape, settings.tiles_of(rung))


def request_counts(settings: RunSettings, rungs: Sequence[Rung]) -> CountRequest | None:
    """Starts or continues the reader's request for the rungs that are not counted yet, and returns it.

    A failed request has an error. Returns None if all rungs are counted or the shape is too large.
    """
    missing = [] if settings.shape.macs > MAX_MACS else [r for r in rungs if known(settings, r) is None]
    key = tuple(r.name for r in rungs), settings.shape, settings.tiles, settings.tiles_rung
    request = st.session_state.get("wish")
    if request and (not missing or request.key != key):
        if request.job:
            counts().drop(request.job)
        request = None
    if not missing:
        st.session_state.pop("wish", None)
        return None
    if request is None:
        request = st.session_state["wish"] = CountRequest(key, time.monotonic())
    elif not request.error:
        request.error = _go_on(request, settings, missing)
    return request


def _go_on(request: CountRequest, settings: RunSettings, missing: Sequence[Rung]) -> str:
    """Sends the request when REST_S has passed, or reads its result. Returns the error, or ""."""
    try:
        if request.job is None and time.monotonic() - request.since >= REST_S:
            owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
            request.job = counts().request(missing, settings.shape, settings.tiles_for(missing), owner)
        elif request.job and request.job.done:
            request.job.result()
            return CHANGED  # counted, but not found: the kernels have changed
    except JobError as e:
        return str(e)
    return ""


def next_poll_s(request: CountRequest | None) -> float | None:
    """Returns the seconds until the page should poll again; None if it need not."""
    if request is None or request.error:
        return None
    return REST_S * (1 + counts().waiting() // CROWD)
