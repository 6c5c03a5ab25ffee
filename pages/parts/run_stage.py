"""The stage of a lesson whose button starts the one run of a reader: presses, polling, the open chapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import streamlit as st

from kernels.model.row import Row
from pages.parts import guess
from pages.parts.chapters import PLAY, OpenChapter
from pages.parts.one_run import POLL_S, OneRun, one_run
from pages.parts.query import rerun, url_is_stale
from visuals import stage
from visuals.scene.scene import Scene


class Shown(NamedTuple):
    """What the stage shows: the scene and the strip, and what the chapter's sentences take their figures from."""

    scene: Scene | None
    strip: Row | None
    evidences: Row


@dataclass(frozen=True)
class RunStage:
    """key: of the stage. run: of the run in the session. show: returns what is shown. start: does what the button is for."""

    key: str
    run: str
    show: Callable[[OneRun], Shown]
    start: Callable[[OneRun], None]
    chapter: OpenChapter | None = None

    def draw(self) -> None:
        """Draws the stage and its strip. They are polled while the run is under way."""
        polled = one_run(self.run).running
        st.fragment(_draw, run_every=POLL_S if polled else None)(self, polled)


def _draw(on_stage: RunStage, polled: bool) -> None:
    run = one_run(on_stage.run)
    if isinstance(pressed := stage.pressed(on_stage.key), dict):  # before anything is drawn: a press reruns the page
        _act(on_stage, pressed, run)
    run.poll()
    shown, options = on_stage.show(run), {}
    if chapter := on_stage.chapter:
        panel = chapter.panel(shown.evidences)
        guess.keep(bool(panel["question"]))
        options = {"chapter": panel, "step": chapter.current.step, "play": st.query_params.get(PLAY) == "1"}
    stage.mount(shown.scene, on_stage.key, strip=shown.strip, fit=True, **options)
    if polled and not run.running and not url_is_stale():
        rerun()  # the polling ends, and the cards show the result


def _act(on_stage: RunStage, pressed: Row, run: OneRun) -> None:
    """Does what the reader pressed on the stage: `do` names it."""
    match pressed:
        case {"do": "stop"}:
            run.stop()
        case {"do": "run"}:
            on_stage.start(run)
        case _:
            return
    rerun()
