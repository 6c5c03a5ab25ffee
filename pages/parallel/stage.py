"""The stage of the lesson on parallel training, with its strip and the open chapter."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.parallel import address
from pages.parts.chapters import PLAY, OpenChapter, go_to_chapter
from visuals import stage
from visuals.parallel import strip
from visuals.scene.scene import Scene

KEY = "parallel"  # of the stage


def draw(values: address.Values, scene: Scene | None, chapter: OpenChapter | None) -> None:
    """Draws the stage. A chapter that was pressed opens first: the page then runs again."""
    pressed = stage.pressed(KEY)
    match pressed:
        case {"do": "chapter", "chapter": int(number)} if chapter:
            go_to_chapter(number, chapter.story)
    found = address.evidence(values)
    options: dict[str, Any] = {}
    if chapter:
        playing = st.query_params.get(PLAY) == "1"
        options = {"chapter": chapter.panel({"stage": found}), "step": chapter.current.step, "play": playing}
    stage.mount(scene, KEY, strip=strip.strip(found) if scene else None, fit=True, **options)
