"""The terms of the field, each with one sentence, and the chapter that shows it."""

from html import escape
from urllib.parse import urlencode

import streamlit as st

from kernels.i18n import tr
from pages import _language
from pages.parts.address import CHAPTER, STORY, VIEW
from pages.parts.glossary import GROUPS, PARAM, TERMS, Term
from pages.parts.text import heading, idea, note

CELLS = {"r": "read", "w": "write", "i": "input", "f": "filter", "o": "output", "s": "workspace", "-": "other"}


def picture(rows: str) -> str:
    """Returns HTML with the rows of cells of a term's picture; "" without one."""
    if not rows:
        return ""
    lines = rows.split("/")
    cells = "".join(f'<i class="kt-cell-{CELLS[cell]}"></i>' for cell in "".join(lines))
    return f'<span class="kt-cells" style="--kt-columns:{len(lines[0])}">{cells}</span>'


def entry(term: Term) -> str:
    """Returns HTML with a term, its sentence and the link to its chapter."""
    lesson, n = term.place()
    query = urlencode({VIEW: STORY, CHAPTER: n + 1} | _language.kept())
    place = tr("{lesson}, chapter {n}", lesson=tr(lesson.title), n=n + 1)
    link = f'<a href="{lesson.path}?{query}">{escape(place)}</a>'
    text = f"<p>{escape(tr(term.text))}</p>"
    return f"<div><dt>{escape(term.name)}</dt><dd>{text}{link}</dd><dd>{picture(term.picture)}</dd></div>"


def group(title: str, terms: tuple[Term, ...]) -> str:
    """Returns HTML with a group of terms."""
    return f'<section><h2 class="kt-section">{escape(title)}</h2><dl class="kt-terms">{"".join(map(entry, terms))}</dl></section>'


heading(tr("Glossary"))
idea(tr("What the words of the lessons mean, and the chapter that shows each of them."))
key = st.query_params.get(PARAM, "")
if key in TERMS:
    st.html(f'<dl class="kt-terms kt-term">{entry(TERMS[key])}</dl>')
elif key:
    note(tr("There is no term {term} here.", term=f"“{key[:20]}”"))
st.html(f'<div class="kt-glossary">{"".join(group(tr(title), terms) for title, terms in GROUPS.items())}</div>')
