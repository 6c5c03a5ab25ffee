"""Headings and notes, as every page writes them."""

from __future__ import annotations

from html import escape

import streamlit as st


def heading(title: str, idea: str) -> None:
    """Writes the title and three sentences. `idea` is trusted HTML; `.kt-math` and `.kt-<role>` style its words."""
    st.html(f'<h1 class="kt-title">{title}</h1><p class="kt-idea">{idea}</p>')


def note(*texts: str) -> None:
    """Writes messages about invalid values, one line each. They may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, texts))}</p>')


def quiet(*texts: str) -> None:
    """Writes one line of small print. The texts may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-quiet">{" · ".join(map(escape, texts))}</p>')


def together(*pieces: str) -> None:
    """Writes pieces of trusted HTML under each other as one element, because each Streamlit element is a message."""
    if pieces := "".join(pieces):
        st.html(f'<div class="kt-stack">{pieces}</div>')
