"""The stage of the lesson on many GPUs: the schedule round by round, its strip, and the run that its button starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from kernels.collectives.shape import ALL_REDUCE
from kernels.i18n import tr
from kernels.jobs.exchange import Exchange
from pages.collectives import address, live
from pages.parts.chapters import PLAY, OpenChapter, draw_stage, go_to_chapter
from pages.parts.one_run import POLL_S, OneRun, one_run
from pages.parts.query import url_is_stale
from visuals import stage
from visuals.collectives import strip
from visuals.collectives.evidence import CollectiveEvidence
from visuals.strip.strip import Run

KEY = "collectives"
STAGE, REAL = "stage", "real"


@dataclass(frozen=True)
class CollectiveStage:
    """What the stage shows: the URL's values and the open chapter."""

    values: Mapping[str, Any]
    chapter: OpenChapter | None = None

    def draw(self) -> None:
        """Draws the stage and its strip. They are polled while a run is under way."""
        draw_stage(_draw, self, KEY, self.chapter, POLL_S if one_run(live.KEY).running else None)


def evidences(values: Mapping[str, Any]) -> dict[str, CollectiveEvidence]:
    """Returns what is known of the collective on the stage, and at the length of the strip."""
    shapes = {STAGE: address.shape(values), REAL: address.real(values)}
    return {key: CollectiveEvidence(shape, live.measured(request(shape))) for key, shape in shapes.items()}


def request(shape: Any) -> Exchange:
    """Returns the run that measures a collective."""
    return Exchange(shape.kind, shape.ranks, shape.elements)


def pressed_request(values: Mapping[str, Any]) -> Exchange | None:
    """Returns what the button runs: the collective at the length of the strip. Where the GPUs are missing, our kernels on
    emulated GPUs with the arrays of the stage; None if there is no kernel for it."""
    if not live.refusal(int(values["ranks"])):
        return request(address.real(values))
    shape = address.shape(values)
    return replace(request(shape), emulated=True) if shape.kind == ALL_REDUCE else None


def _draw(on_stage: CollectiveStage, polled: bool) -> None:
    values = on_stage.values
    if isinstance(pressed := stage.pressed(KEY), dict):  # before anything is drawn
        _act(on_stage, pressed)
    run = one_run(live.KEY)
    run.poll()
    found = evidences(values)
    options: dict[str, Any] = {}
    selected = REAL
    if chapter := on_stage.chapter:
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": chapter.panel(found), "step": chapter.current.step, "play": playing}
        selected = chapter.current.size
    data = strip.strip(found, selected, _run(values, run), _label(values))
    stage.mount(address.scene(values), KEY, strip=data, fit=True, **options)
    if polled and not run.running and not url_is_stale():
        st.rerun()  # the polling ends, and the cards show the result


def _label(values: Mapping[str, Any]) -> str:
    """Returns the text of the button: without enough GPUs nothing is timed."""
    return tr("Emulate") if live.refusal(int(values["ranks"])) else tr("Run here")


def _run(values: Mapping[str, Any], run: OneRun) -> Run:
    """Returns the state of the button."""
    if run.running:
        return Run(True, True, run.job.share, run.text())
    wanted, why = pressed_request(values), live.refusal(int(values["ranks"]))
    text = (wanted and live.emulated(wanted)) or (why and tr("Not measured here: {why}.", why=why))
    return Run(can=wanted is not None, text=text or "", error=live.error(wanted) if wanted else "")


def _act(on_stage: CollectiveStage, pressed: Mapping[str, Any]) -> None:
    """Does what the reader pressed on the stage: `do` names it."""
    match pressed:
        case {"do": "chapter", "chapter": int(number)} if on_stage.chapter and number != on_stage.chapter.at:
            go_to_chapter(number, on_stage.chapter.story)
            st.rerun()
        case {"do": "stop"}:
            one_run(live.KEY).stop()
            st.rerun()
        case {"do": "run"} if wanted := pressed_request(on_stage.values):
            one_run(live.KEY).start(wanted)
            st.rerun()
