"""What a reader wants counted: asked for once the controls rest, dropped where they move on.

With a hundred readers most shapes are new, and counting them all would take more processors than there are. So
the page never counts: it shows what is known, and looks again in a while, the later the more shapes are waiting.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.jobs.counts import Count, Counts
from kernels.jobs.job import Job, JobError
from kernels.model.rung import Rung
from pages.parts.run_settings import Asked
from visuals.charts import units

MOST_COUNTED = 500_000  # multiply-adds that a shape may have to be counted
REST_S = 0.6  # a shape is asked for once it has stood so long
CROWD = 4  # for so many shapes that wait, the page looks again REST_S later
CHANGED = "the kernels have changed since the app was started: start it again"


def too_large(asked: Asked) -> str:
    most, macs = units.count(MOST_COUNTED), units.count(asked.shape.macs)
    return f"counted here up to {most} multiply-adds; this shape has {macs}"


@st.cache_resource
def counts() -> Counts:
    return Counts()


@dataclass
class Wish:
    """Rungs at a shape and tile sizes, and how far it has come with them."""

    of: tuple[Any, ...]
    since: float  # time.monotonic()
    job: Job | None = None
    error: str = ""

    @property
    def words(self) -> str:
        if self.error:
            return f"not counted: {self.error}"
        ahead = counts().position(self.job) if self.job else 0
        return f"counting …, {ahead} ahead of it" if ahead else "counting …"


def countable(asked: Asked) -> list[Rung]:
    """The rungs of those that run which the emulator runs too: a library of the GPU cannot be counted."""
    return [rung for rung in asked.able() if "emulator" in rung.engines]


def known(asked: Asked, rung: Rung) -> Count | None:
    """What was counted of a rung at what is asked; None where nothing was yet."""
    if asked.shape.macs > MOST_COUNTED:
        return None
    return counts().of(rung, asked.shape, asked.tiles_of(rung))


def wish(asked: Asked, rungs: Sequence[Rung]) -> Wish | None:
    """Go on with what this reader wants: the rungs not counted yet, in the end with an error; None where
    there are none, or the shape is too large to be counted."""
    missing = [] if asked.shape.macs > MOST_COUNTED else [r for r in rungs if known(asked, r) is None]
    of = tuple(r.name for r in rungs), asked.shape, asked.tiles, asked.of
    now = st.session_state.get("wish")
    if now and (not missing or now.of != of):
        if now.job:
            counts().drop(now.job)
        now = None
    if not missing:
        st.session_state.pop("wish", None)
        return None
    if now is None:
        now = st.session_state["wish"] = Wish(of, time.monotonic())
    elif not now.error:
        now.error = _go_on(now, asked, missing)
    return now


def _go_on(now: Wish, asked: Asked, missing: Sequence[Rung]) -> str:
    """Ask where it is time to, or look at the answer; why there will be none."""
    try:
        if now.job is None and time.monotonic() - now.since >= REST_S:
            owner = st.session_state.setdefault("owner", uuid.uuid4().hex)
            now.job = counts().ask(missing, asked.shape, asked.tiles_for(missing), owner)
        elif now.job and now.job.done:
            now.job.result()
            return CHANGED  # counted, and yet not known: its kernels are others
    except JobError as e:
        return str(e)
    return ""


def look_again(now: Wish | None) -> float | None:
    """Seconds until the page should look again; None where it need not."""
    if now is None or now.error:
        return None
    return REST_S * (1 + counts().waiting() // CROWD)
