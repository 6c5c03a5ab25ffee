"""The stage of the lesson on parallel training, with its strip and the open chapter."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.jobs.parallel_step import ParallelStep
from kernels.model.row import Json
from kernels.parallel.check import Check, check
from pages.parallel import address, live
from pages.parts.chapters import OpenChapter
from pages.parts.one_run import OneRun
from pages.parts.run_stage import RunStage, Shown
from visuals.parallel import strip
from visuals.parallel.evidence import ParallelEvidence
from visuals.scene.scene import Scene

KEY = "parallel"  # of the stage
CHECKED = "parallel_check"  # in the session: the plan that was compared here, and the result


def draw(values: address.Values, scene: Scene | None, chapter: OpenChapter | None) -> None:
    """Draws the stage for the URL's values, with the open chapter. The step runs on the GPUs, or it is compared on this
    processor."""
    plan = address.plan(values)

    def show(_: OneRun) -> Shown:
        found = evidence(values)
        return Shown(scene, _strip(found) if scene else None, {"stage": found})

    def start(run: OneRun) -> None:
        if live.refusal(plan):
            st.session_state[CHECKED] = plan, check(plan)
        else:
            run.start(ParallelStep(plan))

    RunStage(KEY, live.KEY, show, start, chapter).draw()


def evidence(values: address.Values) -> ParallelEvidence:
    """Returns what is known of the step, with what was measured here."""
    found = address.evidence(values)
    rows = live.measured(found.plan)
    return ParallelEvidence(found.plan, rows) if rows else found


def _strip(found: ParallelEvidence) -> Json:
    can = not live.refusal(found.plan)
    label = tr("Run here") if can else tr("Compare")
    return strip.strip(found, None if can else checked(found), live.run_of(found.plan), label)


def checked(found: ParallelEvidence) -> Check | None:
    """Returns what the comparison of this step gave, None if it was not compared."""
    plan, result = st.session_state.get(CHECKED, (None, None))
    return result if plan == found.plan else None
