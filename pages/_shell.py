"""What stands round every page: the look, the line of lessons, the addresses."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # Streamlit puts this folder first on the path, not the project's
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from pages import _look  # noqa: E402

st.set_page_config(page_title="Kernel Theatre", layout="wide", initial_sidebar_state="collapsed")

HOME = st.Page("home.py", title="Kernel Theatre", default=True)
LESSONS = [st.Page("im2col.py", title="im2col", url_path="im2col")]

page = st.navigation([HOME, *LESSONS], position="hidden")
st.html(_look.css())
if not st.context.is_embedded:
    with st.container(key="nav", horizontal=True, gap=None, vertical_alignment="center"):
        st.page_link(HOME, label="**Kernel Theatre**")
        for lesson in LESSONS:
            st.page_link(lesson, label=f"*{lesson.title}*" if lesson == page else lesson.title)
page.run()
