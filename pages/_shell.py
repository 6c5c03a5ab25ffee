"""The frame of every page: theme, language, navigation bar, URLs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # Streamlit puts this folder first on the path, not the project's
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from kernels.i18n import tr  # noqa: E402
from pages import _language, _navigation  # noqa: E402
from pages._lessons import LESSONS  # noqa: E402
from pages.parts import address, card_choice, lesson, theme  # noqa: E402
from pages.parts.query import begin_page  # noqa: E402

_language.choose()
st.set_page_config(page_title=tr("Kernel Theatre"), layout="wide", initial_sidebar_state="collapsed")

HOME = st.Page("home.py", title=tr("Kernel Theatre"), default=True)
HISTORY = st.Page("history/page.py", title=tr("History"), url_path="history")
GLOSSARY = st.Page("glossary.py", title=tr("Glossary"), url_path="glossary")
PAGES = {row.path: st.Page(row.page, title=tr(row.title), url_path=row.path) for row in LESSONS}

page = st.navigation([HOME, *PAGES.values(), HISTORY, GLOSSARY], position="hidden")
presented = address.is_presented(st.query_params)
st.html(theme.css(alone=lesson.is_stage_alone()))
if not (presented or st.context.is_embedded):
    _navigation.draw(HOME, PAGES, {tr("Glossary"): GLOSSARY, tr("History"): HISTORY}, page)
begin_page(page.url_path)
card_choice.begin_page()
page.run()
