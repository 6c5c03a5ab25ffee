"""The navigation bar: menus of lessons, one menu of them on narrow screens, and a link that skips the bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from kernels.i18n import language, mark, tr
from pages import _language
from pages._lessons import LESSONS, entries
from pages.parts.component import component

HERE = Path(__file__).parent
NAME = mark("Kernel Theatre")
WITHOUT_STAGE = ("choose", "history", "glossary")


def draw(
    home: StreamlitPage,
    lessons: Mapping[str, StreamlitPage],
    tools: Mapping[str, StreamlitPage],
    current: StreamlitPage,
) -> None:
    """Draws the bar. `lessons` are the pages of the lessons by their path, `tools` those at its end by their title."""
    has_stage = current.url_path not in WITHOUT_STAGE
    opened = next((lesson.title for lesson in LESSONS if lesson.path == current.url_path), "")
    title = tr(opened) if opened else ""
    kept = _language.kept()

    with st.container(key="nav", horizontal=True, gap=None, vertical_alignment="center"):
        _part("skip", tr("Skip to the stage") if has_stage else tr("Skip to the content"))
        st.page_link(home, label=f"**{tr(NAME)}**", query_params=kept)
        _part("menu", title or tr("Lessons"), tr("Lessons: {title}", title=title) if title else "")
        with st.container(key="nav_lessons", horizontal=True, gap=None, vertical_alignment="center"):
            for n, (group, members) in enumerate(entries()):
                pages = [(tr(lesson.title), lessons[lesson.path]) for lesson in members]
                _entry(n, group, pages, current)
            with st.container(key="nav_more", gap=None):  # on a phone, whose bar has no room for it
                text, page = next(iter(tools.items()))
                _link(page, text, current)
        with st.container(key="nav_tools", horizontal=True, gap=None, width="content"):
            for text, page in tools.items():
                _link(page, text, current)


def _entry(n: int, group: str, pages: Sequence[tuple[str, StreamlitPage]], current: StreamlitPage) -> None:
    """Draws a link, or a menu with the name of its group."""
    if not group:
        for text, page in pages:
            _link(page, text, current)
        return
    here = any(page == current for _, page in pages)
    with st.container(key=f"nav_group_{n}", gap=None, width="content"):
        _part("group", tr(group), key=f"button_{n}", current=here)
        with st.container(key=f"nav_items_{n}", gap=None):
            for text, page in pages:
                _link(page, text, current)


def _link(page: StreamlitPage, text: str, current: StreamlitPage) -> None:
    label = f"*{text}*" if page == current else text
    st.page_link(page, label=label, query_params=_language.kept())


def _part(kind: str, text: str, name: str = "", key: str = "", current: bool = False) -> None:
    data = {"kind": kind, "text": text, "name": name or text, "language": language(), "current": current}
    script = (
        "navigation" if kind == "skip" else "menu"
    )  # apart: there are several menus, and each message has its script
    component(script, HERE / f"_{script}.js")(key=f"nav_{key or kind}", data=data, height="content")
