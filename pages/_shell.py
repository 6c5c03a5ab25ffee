"""The frame of every page: theme, language, navigation bar, URLs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # Streamlit puts this folder first on the path, not the project's
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from kernels.i18n import tr  # noqa: E402
from pages import _language, _navigation  # noqa: E402
from pages._pages import pages  # noqa: E402
from pages.parts import address, gpu_choice, lesson, theme  # noqa: E402
from pages.parts.query import begin_page  # noqa: E402

_language.choose()
st.set_page_config(page_title=tr("Kernel Theatre"), layout="wide", initial_sidebar_state="collapsed")

PAGES = pages()
page = st.navigation(PAGES.all(), position="hidden")
presented = address.is_presented(st.query_params)
theme.draw(alone=lesson.is_stage_alone())
if not (presented or st.context.is_embedded):
    tools = {tr("Glossary"): PAGES.glossary, tr("History"): PAGES.history}
    _navigation.draw(PAGES.home, PAGES.lessons, tools, page)
begin_page(page.url_path)
gpu_choice.begin_page()
page.run()
