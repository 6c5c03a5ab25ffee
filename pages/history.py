"""History: every run kept here and every recording, two of them compared, and links that carry the evidence."""

from html import escape

import streamlit as st

from pages import _history, _lesson

alone = st.context.is_embedded  # in a slide: the evidence, nothing round it
if not alone:
    _lesson.heading(
        "History",
        "Every run measured here or imported, and the app's recordings. Do two of them differ by more than noise?",
    )
archive = _history.Archive()
chosen, notes = _history.sides(archive)
if not alone:
    with st.container(key="filters", horizontal=True):
        asked, more = _history.filters(archive)
    notes = [*archive.notes, *more, *notes]
if notes:
    st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, notes))}</p>')
if alone:
    _history.comparison(chosen)
else:
    with st.container(key="history", horizontal=True):
        with st.container(key="history_list"):
            _history.listing(archive, asked, chosen)
        with st.container(key="card_compared", border=True):
            _history.comparison(chosen)
