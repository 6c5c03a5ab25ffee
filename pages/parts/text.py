"""Headings and notes, as every page writes them."""

from __future__ import annotations

from html import escape

import streamlit as st


def heading(title: str, idea: str) -> None:
    """Title and three sentences; `idea` is HTML of ours, `.kt-math` and `.kt-<role>` set its words."""
    st.html(f'<h1 class="kt-title">{title}</h1><p class="kt-idea">{idea}</p>')


def note(*texts: str) -> None:
    """Messages about what could not be taken as asked, a line each; they may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, texts))}</p>')


def quiet(*texts: str) -> None:
    """One line of small print; the texts may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-quiet">{" · ".join(map(escape, texts))}</p>')


def together(*pieces: str) -> None:
    """Pieces of HTML of ours under each other, as one element: each of Streamlit's costs a message."""
    if pieces := "".join(pieces):
        st.html(f'<div class="kt-told">{pieces}</div>')
