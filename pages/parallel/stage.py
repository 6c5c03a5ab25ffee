"""The stage of the lesson on parallel training, with its strip and the open chapter."""

from __future__ import annotations

from typing import Any

import streamlit as st

from kernels.parallel.check import Check, check
from pages.parallel import address
from pages.parts.chapters import PLAY, OpenChapter, go_to_chapter
from visuals import stage
from visuals.parallel import strip
from visuals.parallel.evidence import ParallelEvidence
from visuals.scene.scene import Scene

KEY = "parallel"  # of the stage
CHECKED = "parallel_check"  # in the session: the plan that was compared here, and the result


def draw(values: address.Values, scene: Scene | None, chapter: OpenChapter | None) -> None:
    """Draws the stage. What was pressed is done first: a chapter opens, or the step is compared on this processor."""
    found = address.evidence(values)
    match stage.pressed(KEY):
        case {"do": "chapter", "chapter": int(number)} if chapter and number != chapter.at:
            go_to_chapter(number, chapter.story)
            st.rerun()
        case {"do": "run"}:
            st.session_state[CHECKED] = found.plan, check(found.plan)
    options: dict[str, Any] = {}
    if chapter:
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": chapter.panel({"stage": found}), "step": chapter.current.step, "play": playing}
    stage.mount(scene, KEY, strip=strip.strip(found, checked(found)) if scene else None, fit=True, **options)


def checked(found: ParallelEvidence) -> Check | None:
    """Returns what the comparison of this step gave, None if it was not compared."""
    plan, result = st.session_state.get(CHECKED, (None, None))
    return result if plan == found.plan else None
