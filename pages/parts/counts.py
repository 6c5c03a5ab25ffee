"""Requests to count a shape: sent when the controls have not changed for a while, dropped when they change.

With a hundred readers most shapes are new, and there are not enough processors to count them all. So the page itself
never counts. It shows known counts, and the browser waits for the others (pages/_watch.py) without a rerun.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import streamlit as st

from kernels.i18n import mark, tr
from kernels.jobs.counts import Count
from kernels.jobs.job import Job, JobError
from kernels.model.row import Row
from kernels.model.rung import Rung
from pages.parts.run_settings import RunSettings
from pages.parts.watch import Watch
from pages.parts.worker import counts
from visuals import units

MAX_MACS = 500_000  # multiply-adds: larger shapes are not counted
REST_S = 0.6  # a shape is requested after it has not changed for so long
CHANGED = mark("the kernels have changed; start the app again")


def too_large(settings: RunSettings) -> str:
    return tr(
        "The page counts shapes of up to {limit} multiply-adds. This shape has {macs}.",
        limit=units.count(MAX_MACS),
        macs=units.count(settings.shape.macs),
    )


@dataclass
class CountRequest:
    """A request to count rungs at a shape and tile sizes, and its state."""

    key: tuple[object, ...]
    since: float  # time.monotonic()
    job: Job | None = None
    error: str = ""
    owner: str = ""
    # What the browser shows once the rungs are counted: by its name in the answer, a function that returns it.
    views: dict[str, Callable[[], object]] = field(default_factory=dict)
    watch: Watch | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # a page and its browser advance it at the same time
    listeners: set[Callable[[], None]] = field(default_factory=set)
    stop_listening: Callable[[], None] = lambda: None  # to its job
    left: bool = False  # the reader has gone on to other settings

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` when its job ends, also one that is not sent yet, or when the reader goes on, until the function
        that this returns is called."""
        self.listeners.add(listener)
        return lambda: self.listeners.discard(listener)

    def tell(self) -> None:
        """Called after each change of its job. Only its end is news."""
        if self.left or self.job is None or self.job.done:
            for listener in tuple(self.listeners):
                listener()

    def leave(self) -> None:
        """Ends a request that the reader no longer waits for. One that is not sent yet never will be."""
        self.left = True
        if self.job:
            counts().drop(self.job)
        self.tell()
        # What it would have shown holds the scene, and is part of cycles that Python would find much later.
        self.stop_listening()
        self.watch, self.views, self.stop_listening = None, {}, lambda: None

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
        request.leave()
        request = None
    if not missing:
        st.session_state.pop("wish", None)
        return None
    if request is None:
        owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
        request = st.session_state["wish"] = CountRequest(key, time.monotonic(), owner=owner)
    elif not request.error:
        request.error = _go_on(request, settings, missing)
    return request


def watched(request: CountRequest | None, settings: RunSettings, rungs: Sequence[Rung]) -> Watch | None:
    """Returns what the browser asks until the rungs of a request are counted; None if there is nothing to wait for."""
    if request is None or request.error:
        return None
    if request.watch is None:

        def state() -> Row:
            missing = [rung for rung in rungs if known(settings, rung) is None]
            if missing and not request.error:
                request.error = _go_on(request, settings, missing)
            if missing and not request.error:
                return {"done": False, "text": request.status}
            return {"done": True} | {name: view() for name, view in request.views.items()}

        request.watch = Watch(state, request.listen, lambda: _due_s(request), at_end=True, gone=lambda: request.left)
    return request.watch


def _due_s(request: CountRequest) -> float | None:
    """Returns the seconds until a request must be sent; None if it has been."""
    return None if request.job else max(0.05, request.since + REST_S - time.monotonic())


def _go_on(request: CountRequest, settings: RunSettings, missing: Sequence[Rung]) -> str:
    """Sends the request when REST_S has passed, or reads its result. Returns the error, or ""."""
    with request.lock:
        try:
            if request.left:
                return ""
            if request.job is None and time.monotonic() - request.since >= REST_S:
                request.job = counts().request(missing, settings.shape, settings.tiles_for(missing), request.owner)
                request.stop_listening = request.job.listen(request.tell)
                if request.left:  # meanwhile
                    counts().drop(request.job)
                    request.stop_listening()
                elif request.job.done:  # before this listened
                    request.tell()
            elif request.job and request.job.done:
                request.job.result()
                return CHANGED  # counted, but not found: the kernels have changed
        except JobError as e:
            return str(e)
        return ""
