"""The navigation bar: the lessons, a menu of them on narrow screens, and a link that skips the bar."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from kernels.i18n import language, mark, tr
from pages import _language

NAME = mark("Kernel Theatre")
WITHOUT_STAGE = ("choose", "history", "glossary")


@cache
def _component():
    js = Path(__file__).with_name("_navigation.js").read_text(encoding="utf-8")
    return st.components.v2.component("navigation", js=js, isolate_styles=False)


def draw(
    home: StreamlitPage, lessons: Mapping[str, StreamlitPage], history: StreamlitPage, current: StreamlitPage
) -> None:
    """Draws the bar. `lessons` are the pages of the lessons by their title."""
    has_stage = current.url_path not in WITHOUT_STAGE
    kept = _language.kept()

    def link(page: StreamlitPage, title: str) -> None:
        st.page_link(page, label=f"*{title}*" if page == current else title, query_params=kept)

    title = next((title for title, page in lessons.items() if page == current), "")
    with st.container(key="nav", horizontal=True, gap=None, vertical_alignment="center"):
        _part("skip", tr("Skip to the stage") if has_stage else tr("Skip to the content"))
        st.page_link(home, label=f"**{tr(NAME)}**", query_params=kept)
        _part("menu", title or tr("Lessons"), tr("Lessons: {title}", title=title) if title else "")
        with st.container(key="nav_lessons", horizontal=True, gap=None, vertical_alignment="center"):
            for each, page in lessons.items():
                link(page, each)
        link(history, tr("History"))


def _part(kind: str, text: str, name: str = "") -> None:
    data = {"kind": kind, "text": text, "name": name or text, "language": language()}
    _component()(key=f"nav_{kind}", data=data, height="content")
