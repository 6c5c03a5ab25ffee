"""The frame of every page: theme, navigation bar, URLs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # Streamlit puts this folder first on the path, not the project's
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from pages._lessons import LESSONS  # noqa: E402
from pages.parts import address, theme  # noqa: E402
from pages.parts.query import NOW  # noqa: E402

st.set_page_config(page_title="Kernel Theatre", layout="wide", initial_sidebar_state="collapsed")

HOME = st.Page("home.py", title="Kernel Theatre", default=True)
HISTORY = st.Page("history/page.py", title="History", url_path="history")
PAGES = [st.Page(lesson.page, title=lesson.title, url_path=lesson.path) for lesson in LESSONS]

page = st.navigation([HOME, *PAGES, HISTORY], position="hidden")
presented = address.is_presented(st.query_params)
st.html(theme.css(alone=presented or (st.context.is_embedded and st.query_params.get("view") == "watch")))
if not (presented or st.context.is_embedded):
    with st.container(key="nav", horizontal=True, gap=None, vertical_alignment="center"):
        st.page_link(HOME, label="**Kernel Theatre**")
        for lesson in PAGES:
            st.page_link(lesson, label=f"*{lesson.title}*" if lesson == page else lesson.title)
        st.page_link(HISTORY, label="*History*" if page == HISTORY else "History")
st.session_state[NOW] = []
page.run()
