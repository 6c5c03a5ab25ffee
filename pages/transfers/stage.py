"""The stage of the lesson on moving data: the timeline, its strip, and the run that its button starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.engines import load
from kernels.i18n import tr
from kernels.jobs.transfer import TransferRun
from pages.parts.chapters import PLAY, OpenChapter, draw_stage, go_to_chapter
from pages.parts.one_run import POLL_S, OneRun, one_run
from pages.parts.query import url_is_stale
from pages.transfers import address
from visuals import stage
from visuals.transfers import strip
from visuals.transfers.evidence import TransferEvidence

KEY, RUN = "transfers", "transfer_run"  # of the stage, and of the run in the session


@dataclass(frozen=True)
class TransferStage:
    """What the stage shows: the URL's values and the open chapter."""

    values: Mapping[str, Any]
    chapter: OpenChapter | None = None

    def draw(self) -> None:
        """Draws the stage and its strip. They are polled while a scenario is measured."""
        polled = one_run(RUN).running
        draw_stage(_draw, self, KEY, self.chapter, POLL_S if polled else None)


def evidence(values: Mapping[str, Any]) -> TransferEvidence:
    """Returns what is known of the scenario at these values, with what was measured here."""
    s = address.settings(values)
    return TransferEvidence(s, one_run(RUN).row(TransferRun(s)))


def _draw(on_stage: TransferStage, polled: bool) -> None:
    run = one_run(RUN)
    if isinstance(
        pressed := stage.pressed(KEY), dict
    ):  # before anything is drawn: most presses rerun the page
        _act(on_stage, pressed, run)
    run.poll()
    found = evidence(on_stage.values)
    options: dict[str, Any] = {}
    if chapter := on_stage.chapter:
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": chapter.panel({"stage": found}), "step": chapter.current.step, "play": playing}
    state = strip.Run(
        run.running,
        run.job.share if run.job else 0.0,
        run.text(),
        run.error,
        tr("Stop") if run.running else tr("Run"),
    )
    stage.mount(address.scene(found), KEY, strip=strip.strip(found, state), fit=True, **options)
    if polled and not run.running and not url_is_stale():
        st.rerun()  # the polling ends, and the cards show the result


def refusal() -> str:
    """Returns why nothing can be measured here; "" if a GPU is ready."""
    status = load("cuda").status()
    return "" if status.ready else tr("Copies to a GPU need one. {why}.", why=status.why)


def _act(on_stage: TransferStage, pressed: Mapping[str, Any], run: OneRun) -> None:
    """Does what the reader pressed on the stage: `do` names it."""
    match pressed:
        case {"do": "chapter", "chapter": int(number)} if on_stage.chapter and number != on_stage.chapter.at:
            go_to_chapter(number, on_stage.chapter.story)
            st.rerun()
        case {"do": "stop"} if run.running:
            run.stop()
            st.rerun()
        case {"do": "run"} if not run.running:
            if why := refusal():
                run.error = why
            else:
                run.start(TransferRun(address.settings(on_stage.values)))
            st.rerun()
