"""The pages of the app, as Streamlit's navigation takes them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from kernels.i18n import cached, tr
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
    """Returns the pages in the reader's language. To make one reads its file's place from the disk: they are copies, since a
    run of the app marks the page that it may run."""
    made = _made(st.Page)
    lessons = {path: copy(page) for path, page in made.lessons.items()}
    return Pages(copy(made.home), lessons, copy(made.glossary), copy(made.history))


@cached(8)
def _made(make: type[StreamlitPage]) -> Pages:
    return Pages(
        make("home.py", title=tr("Kernel Theatre"), default=True),
        {row.path: make(row.page, title=tr(row.title), url_path=row.path) for row in LESSONS},
        make("glossary.py", title=tr("Glossary"), url_path="glossary"),
        make("history/page.py", title=tr("History"), url_path="history"),
    )
