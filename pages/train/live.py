"""A training of the reader: episodes that run in the worker's process, one after the other, and what they gave.

It lives in the session. The page's poll takes the result of an episode and submits the next one. So a training pauses when
the page is closed, and other readers' runs have their turn in between.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import streamlit as st

from kernels import activity
from kernels.i18n import decimal, tr
from kernels.jobs.episode import Episode
from kernels.jobs.job import Job, JobError
from kernels.machine import processor
from kernels.model.row import Row
from kernels.training.digits import TRAINING
from kernels.training.held import Held
from kernels.training.loop import Settings, State
from pages.parts import machine_choice
from pages.parts.worker import worker
from visuals import units
from visuals.strip.curve import loss_text
from visuals.training.evidence import Measured

KEY, HISTORY = "training", "training_history"
MAX_HISTORY = 6


@dataclass
class Live:
    """One training: its settings, what it gave so far, and the episode that runs."""

    settings: Settings
    epochs: int
    points: list[tuple[int, float]] = field(default_factory=list)
    accuracy: list[tuple[int, float]] = field(default_factory=list)
    state: State | None = None  # where the next episode begins
    job: Job | None = None
    stopping: bool = False
    done: bool = False
    error: str = ""  # why an episode gave nothing
    diverged: str = ""
    seconds: float = 0.0  # of all episodes
    cpu_s: float = 0.0
    node_ms: Mapping[str, float] | None = None
    step_ms: float | None = None
    held: Held | None = None

    @property
    def running(self) -> bool:
        return self.job is not None

    @property
    def steps_per_epoch(self) -> int:
        return max(1, TRAINING // self.settings.batch)

    def shown(self) -> list[tuple[int, float]]:
        """Returns all points, with those that the running episode has sent."""
        sent = [point for part in (self.job.parts if self.job else ()) for point in part["points"]]
        return [*self.points, *sent]

    @property
    def resumable(self) -> bool:
        return self.state is not None and not self.running and not self.done and not self.diverged

    def measured(self) -> Measured | None:
        return (
            Measured(self.node_ms, self.step_ms, tr("{device}, one thread", device=processor.device_name()), self.held)
            if self.node_ms and self.step_ms
            else None
        )

    # -- episodes ----------------------------------------------------------------------------------------
    def submit(self) -> None:
        """Queues the next episode."""
        owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
        episode = Episode(self.settings, self.epochs, self.state, timed=self.node_ms is None)
        try:
            self.job = machine_choice.submit(episode, owner)
            self.error = ""
        except JobError as error:
            self.job, self.error = None, str(error)

    def poll(self) -> None:
        """Takes the result of an episode that is over, and queues the next one unless the training has ended."""
        if self.job is None or not self.job.done:
            return
        job, self.job = self.job, None
        try:
            (row,) = job.result()
        except JobError as error:
            self._lost(str(error))
            return
        self._take(row)
        if not (self.done or self.diverged or self.stopping):
            self.submit()

    def _take(self, row: Row) -> None:
        self.points += [tuple(point) for point in row["points"]]
        self.accuracy += [tuple(point) for point in row["accuracy"]]
        self.state, self.done, self.diverged = row["state"], row["done"], row["diverged"]
        self.seconds += row["seconds"]
        self.cpu_s += row["cpu_s"]
        if row["node_ms"]:
            self.node_ms, self.step_ms, self.held = row["node_ms"], row["step_ms"], row["held"]

    def _lost(self, reason: str) -> None:
        """Keeps what came before an episode that gave nothing: its state is where Resume begins."""
        if self.stopping:
            return
        step = self.state.steps if self.state else 0
        self.error = tr(
            "{reason}. All steps up to {step} are kept. Resume continues there.", reason=reason.rstrip("."), step=step
        )

    # -- texts -------------------------------------------------------------------------------------------
    def text(self) -> str:
        """Returns how far the training is, in a sentence."""
        points = self.shown()
        if self.job and self.running and not points:
            return activity.place(self.job.text, worker().position(self.job))
        if not points:
            return ""
        fields = {"step": points[-1][0], "all": self.epochs * self.steps_per_epoch, "loss": loss_text(points[-1][1])}
        text = tr("Step {step} of {all}, loss {loss}.", **fields)
        if self.accuracy:
            text += " " + tr("{share} of the test digits recognised.", share=units.share(self.accuracy[-1][1]))
        if self.done:
            text += " " + tr(
                "{seconds} s, {cpu} s of the processor.",
                seconds=decimal(f"{self.seconds:.3g}"),
                cpu=decimal(f"{self.cpu_s:.3g}"),
            )
        return text


def current() -> Live | None:
    return st.session_state.get(KEY)


def history() -> list[Live]:
    """Returns the trainings before the current one, newest first."""
    return st.session_state.setdefault(HISTORY, [])


def start(settings: Settings, epochs: int) -> Live:
    """Starts a training from the first weights. The one before goes into the history."""
    if before := current():
        drop(before)
        if before.points:
            history().insert(0, before)
            del history()[MAX_HISTORY:]
            before.state = None  # half a megabyte
    live = st.session_state[KEY] = Live(settings, epochs)
    live.submit()
    return live


def resume(live: Live) -> None:
    """Continues a training where its state ends, bit for bit as if it had not stopped."""
    live.stopping = False
    live.submit()


def stop(live: Live) -> None:
    """Stops a training after the episode that runs, whose steps are kept; at once if it still waits."""
    live.stopping = True
    if live.job:
        worker().cancel(live.job, running=False)


def drop(live: Live) -> None:
    """Ends a training's episode."""
    if live.job:
        worker().cancel(live.job)
        live.job = None


def wait(live: Live, seconds: float = 60.0) -> None:
    """Polls a training until it ends or waits for the reader. For tests and scripts without a browser."""
    end = time.monotonic() + seconds
    while live.running and time.monotonic() < end:
        if live.job and not live.job.done:
            time.sleep(0.02)
        live.poll()
