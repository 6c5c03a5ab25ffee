"""The stage of the lesson on parallel training, with its strip and the open chapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kernels.i18n import tr
from kernels.jobs.parallel_step import ParallelStep
from kernels.parallel.check import Check, check
from pages.parallel import address, live
from pages.parts.chapters import PLAY, OpenChapter, draw_stage, go_to_chapter
from pages.parts.one_run import POLL_S, one_run
from pages.parts.query import url_is_stale
from visuals import stage
from visuals.parallel import strip
from visuals.parallel.evidence import ParallelEvidence
from visuals.scene.scene import Scene

KEY = "parallel"  # of the stage
CHECKED = "parallel_check"  # in the session: the plan that was compared here, and the result


@dataclass(frozen=True)
class ParallelStage:
    """What the stage shows: the URL's values, their scene and the open chapter."""

    values: address.Values
    scene: Scene | None
    chapter: OpenChapter | None = None

    def draw(self) -> None:
        """Draws the stage and its strip. They are polled while a run is under way."""
        draw_stage(_draw, self, KEY, self.chapter, POLL_S if one_run(live.KEY).running else None)


def evidence(values: address.Values) -> ParallelEvidence:
    """Returns what is known of the step, with what was measured here."""
    found = address.evidence(values)
    rows = live.measured(found.plan)
    return ParallelEvidence(found.plan, rows) if rows else found


def _draw(on_stage: ParallelStage, polled: bool) -> None:
    """Draws the stage. What was pressed is done first."""
    if isinstance(pressed := stage.pressed(KEY), dict):
        _act(on_stage, pressed)
    run = one_run(live.KEY)
    run.poll()
    found = evidence(on_stage.values)
    options: dict[str, Any] = {}
    if chapter := on_stage.chapter:
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": chapter.panel({"stage": found}), "step": chapter.current.step, "play": playing}
    data = _strip(found) if on_stage.scene else None
    stage.mount(on_stage.scene, KEY, strip=data, fit=True, **options)
    if polled and not run.running and not url_is_stale():
        st.rerun()  # the polling ends, and the cards show the result


def _strip(found: ParallelEvidence) -> dict[str, Any]:
    can = not live.refusal(found.plan)
    label = tr("Run here") if can else tr("Compare")
    return strip.strip(found, None if can else checked(found), live.run_of(found.plan), label)


def _act(on_stage: ParallelStage, pressed: Mapping[str, Any]) -> None:
    """Does what the reader pressed: a chapter opens; the step runs on the GPUs, or is compared on this processor."""
    plan = address.plan(on_stage.values)
    match pressed:
        case {"do": "chapter", "chapter": int(number)} if on_stage.chapter and number != on_stage.chapter.at:
            go_to_chapter(number, on_stage.chapter.story)
            st.rerun()
        case {"do": "stop"}:
            one_run(live.KEY).stop()
            st.rerun()
        case {"do": "run"} if live.refusal(plan):
            st.session_state[CHECKED] = plan, check(plan)
            st.rerun()
        case {"do": "run"}:
            one_run(live.KEY).start(ParallelStep(plan))
            st.rerun()


def checked(found: ParallelEvidence) -> Check | None:
    """Returns what the comparison of this step gave, None if it was not compared."""
    plan, result = st.session_state.get(CHECKED, (None, None))
    return result if plan == found.plan else None
