"""The stage of the lesson on CPU and GPU: both sides on one axis, the strip, and the run that its button starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.engines import load
from kernels.i18n import tr
from kernels.jobs.transfer import SizesRun
from kernels.offload.measure import CPU
from pages.offload import address
from pages.offload.address import PROGRAM
from pages.parts.chapters import PLAY, OpenChapter, draw_stage, go_to_chapter
from pages.parts.one_run import POLL_S, OneRun, one_run
from pages.parts.query import url_is_stale
from visuals import stage, units
from visuals.offload import strip
from visuals.offload.evidence import MEASURED, OffloadEvidence
from visuals.strip.strip import Run

KEY, RUN = "offload", "offload_run"  # of the stage, and of the run in the session


@dataclass(frozen=True)
class OffloadStage:
    """What the stage shows: the URL's values and the open chapter."""

    values: Mapping[str, Any]
    chapter: OpenChapter | None = None

    def draw(self) -> None:
        """Draws the stage and its strip. They are polled while sizes are measured."""
        polled = one_run(RUN).running
        draw_stage(_draw, self, KEY, self.chapter, POLL_S if polled else None)


def evidence(values: Mapping[str, Any]) -> OffloadEvidence:
    """Returns what is known of the work at these values: measured here, else recorded."""
    return address.evidence(values, one_run(RUN).row(SizesRun(values["work"])))


def _draw(on_stage: OffloadStage, polled: bool) -> None:
    run = one_run(RUN)
    if isinstance(pressed := stage.pressed(KEY), dict):  # before anything is drawn: a press reruns the page
        _act(on_stage, pressed, run)
    run.poll()
    found = evidence(on_stage.values)
    options: dict[str, Any] = {}
    if chapter := on_stage.chapter:
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": chapter.panel({"stage": found}), "step": chapter.current.step, "play": playing}
    picture = on_stage.values["picture"]
    data = strip.strip(found, _state(run, found), picture == PROGRAM)
    stage.mount(address.scene(found, picture), KEY, strip=data, fit=True, **options)
    if polled and not run.running and not url_is_stale():
        st.rerun()  # the polling ends, and the cards show the result


def _state(run: OneRun, found: OffloadEvidence) -> Run:
    """Returns the state of the button."""
    share = run.job.share if run.job else 0.0
    return Run(True, run.running, share, run.text() or note(found), run.error)


def note(found: OffloadEvidence) -> str:
    """Returns what a run here measures and what not; "" if the stage shows all of it."""
    if not found.is_live:
        return tr("Too large to be measured here: the times are recorded.")
    status = load("cuda").status()
    if status.ready:
        return ""
    why = units.capitalized(status.text.rstrip("."))
    if found.side(CPU).kind == MEASURED:
        return tr("{why}: the GPU’s times are recorded.", why=why)
    return tr("{why}: Run times the processor.", why=why)


def _act(on_stage: OffloadStage, pressed: Mapping[str, Any], run: OneRun) -> None:
    """Does what the reader pressed on the stage: `do` names it."""
    match pressed:
        case {"do": "chapter", "chapter": int(number)} if on_stage.chapter and number != on_stage.chapter.at:
            go_to_chapter(number, on_stage.chapter.story)
            st.rerun()
        case {"do": "stop"} if run.running:
            run.stop()
            st.rerun()
        case {"do": "run"} if not run.running:
            run.start(SizesRun(on_stage.values["work"]))
            st.rerun()
