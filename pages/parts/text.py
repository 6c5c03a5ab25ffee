"""Headings and notes, as every page writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import streamlit as st

from kernels.i18n import tr


def nothing(*_: object) -> None:
    """Draws nothing."""


def heading(title: str) -> None:
    """Writes the title of a page."""
    st.html(f'<h1 class="kt-title">{title}</h1>')


def idea(text: str) -> None:
    """Writes the idea of a lesson in a few sentences. Trusted HTML: `.kt-math` and `.kt-<role>` style its words."""
    st.html(f'<p class="kt-idea">{text}</p>')


def card_title(text: str, size: str = "") -> str:
    """Returns the HTML of a card's title. `size`: the shape of its figures in words."""
    about = f" <small>{escape(size)}</small>" if size else ""
    return f'<h2 class="kt-card">{escape(text)}{about}</h2>'


def note(*texts: str) -> None:
    """Writes messages about invalid values, one line each. They may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, texts))}</p>')


def note_in_place(*texts: str | None) -> None:
    """Writes messages as `note` does; None and "" are none. Without any it still takes one place of the page.

    What follows keeps its place. A stage that moved would be drawn anew, and the old one would stay until the run ends.
    """
    with st.container():
        note(*filter(None, texts))


def quiet(*texts: str) -> None:
    """Writes one line of small print. The texts may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-quiet">{" · ".join(map(escape, texts))}</p>')


def details(*pieces: str, label: str = "") -> str:
    """Returns folded HTML: pieces of trusted HTML under a line to open them, "Details" without `label`. "" if there are
    no pieces."""
    if not (body := "".join(pieces)):
        return ""
    summary = escape(label or tr("Details"))
    return (
        f'<details class="kt-more kt-details"><summary>{summary}</summary><div class="kt-stack">{body}</div></details>'
    )


def paragraph(text: str, kind: str = "quiet") -> str:
    """Returns the HTML of a paragraph of any text: small print, or a sentence (`kind` "why"); "" without text."""
    return f'<p class="kt-{kind}">{escape(text)}</p>' if text else ""


def legend(names: Mapping[str, str]) -> str:
    """Returns the HTML of a line that names the colours of a chart, by role ("input", "workspace")."""
    marks = (f'<span class="kt-{role}">■</span>&nbsp;{escape(name)}' for role, name in names.items())
    return f'<p class="kt-quiet">{" &ensp;".join(marks)}</p>'


def table(head: Iterable[str], rows: Iterable[Iterable[str]], label: str) -> str:
    """Returns the HTML of a table of texts that scrolls alone if it is wide. `label` is its name for a screen reader."""
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<table class="kt-table kt-shares"><tr>{first}</tr>{lines}</table></div>'
    )


def conclusion(text: str) -> str:
    """Returns the HTML of the sentence with which a card begins; "" without text."""
    return f'<p class="kt-why kt-conclusion"><strong>{escape(text)}</strong></p>' if text else ""


def stale_mark(settings: str = "") -> str:
    """Returns the HTML that says that a result is stale, and at which settings it was measured."""
    text = tr("stale: measured at {settings}", settings=settings) if settings else tr("stale")
    return f'<span class="kt-stale">{escape(text)}</span>'


def together(*pieces: str) -> None:
    """Writes pieces of trusted HTML under each other as one element, because each Streamlit element is a message."""
    if html := "".join(pieces):
        st.html(f'<div class="kt-stack">{html}</div>')
