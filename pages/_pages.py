"""The pages of the app, as Streamlit's navigation takes them."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from kernels.i18n import tr
from pages._lessons import LESSONS


@dataclass(frozen=True)
class Pages:
    home: StreamlitPage
    lessons: dict[str, StreamlitPage]  # by path
    glossary: StreamlitPage
    history: StreamlitPage

    def all(self) -> list[StreamlitPage]:
        return [self.home, *self.lessons.values(), self.history, self.glossary]


def pages() -> Pages:
    """Returns the pages in the reader's language."""
    return Pages(
        st.Page("home.py", title=tr("Kernel Theatre"), default=True),
        {row.path: st.Page(row.page, title=tr(row.title), url_path=row.path) for row in LESSONS},
        st.Page("glossary.py", title=tr("Glossary"), url_path="glossary"),
        st.Page("history/page.py", title=tr("History"), url_path="history"),
    )
