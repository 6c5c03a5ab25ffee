"""History: every stored run and every recording, the comparison of two, and links that contain the measured rows."""

from html import escape

import streamlit as st

from kernels.i18n import tr
from pages.history import history
from pages.parts.text import heading, idea

alone = st.context.is_embedded  # in a slide: only the comparison
if not alone:
    heading(tr("History"))
    idea(tr("All runs measured here or imported, and the recordings of the app. Compare two of them."))
archive = history.Archive()
chosen, notes = history.sides(archive)
query = None
if not alone:
    with st.container(key="filters", horizontal=True):
        query, more = history.filters(archive)
    notes = [*archive.notes, *more, *notes]
if notes:
    st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, notes))}</p>')
if query is None:
    history.comparison(chosen)
else:
    with st.container(key="history", horizontal=True):
        with st.container(key="history_list"):
            history.listing(archive, query, chosen)
        with st.container(key="card_compared", border=True):
            history.comparison(chosen)
