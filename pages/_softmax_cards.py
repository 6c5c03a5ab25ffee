"""The card that puts the row on the stage through every rung: what each moved, and how its result turned out."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.ladders import find
from kernels.ladders import softmax as ladder
from kernels.shapes_softmax import SoftmaxShape
from pages import _cards, _lesson, _softmax
from pages._ladder import Asked
from visuals import figures, why_softmax

ROW = "row"  # the part of the page
HEADS = ("reads of x", "writes of y", "bytes at M×N", "this row’s y")


def section(asked: Asked, row: _softmax.Row) -> None:
    with st.container(key="card_softmax_row", border=True):
        st.html('<h2 class="kt-card">This row by every rung</h2>')
        if not _lesson.settled():
            return
        n = row.x.size
        told = why_softmax.outcomes(row.x, _tiles(asked, n))
        badges = (
            figures.badge("counted", "by the emulator, for the row on the stage"),
            figures.badge("predicted", "passes, and bytes at the page's shape"),
        )
        st.html(f'<p class="kt-figures">{" ".join(badges)}</p>{_table(told, asked.shape)}')
        _cards.sentence(why_softmax.row_words(row.x))
        _lesson.quiet(
            "Counted over predicted: how often a thread asked for each number of the row. Run measures random numbers of standard "
            "deviation 1, which the unsafe kernel gets right; what is wrong gets no time."
        )


def _tiles(asked: Asked, n: int) -> dict[str, dict[str, int]]:
    """Of each rung of ours those at which it runs a row of n: the page's for the one that is watched."""
    found = {r.name: _softmax.fitting(r, SoftmaxShape(1, n)) for r in ladder.RUNGS}
    return found | {asked.rung.name: _softmax.tiles_at(asked, n)}


def _table(told: list[why_softmax.Outcome], shape: SoftmaxShape) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    lines = "".join(_line(of, shape) for of in told)
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="This row by every rung">'
        f'<table class="kt-table kt-shares"><tr><td>rung</td>{heads}</tr>{lines}</table></div>'
    )


def _line(of: why_softmax.Outcome, shape: SoftmaxShape) -> str:
    moved = 4 * (of.predicted + ladder.WRITES) * shape.elements
    words = escape(of.words) if of.right else f"<b>{escape(of.words)}</b>"
    cells = (
        f"{of.reads:g}, predicted {of.predicted}",
        f"{of.writes:g}, predicted {ladder.WRITES}",
        figures.bytes_(moved),
        words,
    )
    return f'<tr><th scope="row">{escape(find(of.rung).title)}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
