"""The card that puts the row on the stage through every rung: what each moved, and how its result turned out."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.ladders import find
from kernels.softmax import ladder
from kernels.softmax.shape import SoftmaxShape
from pages.parts import cards, lesson
from pages.parts.rung_address import Asked
from pages.parts.text import quiet
from pages.softmax import address
from visuals.charts import units
from visuals.softmax import story

ROW = "row"  # the part of the page
HEADS = ("reads of x", "writes of y", "bytes at M×N", "this row’s y")


def section(asked: Asked, row: address.Row) -> None:
    with st.container(key="card_softmax_row", border=True):
        st.html('<h2 class="kt-card">This row by every rung</h2>')
        if not lesson.settled():
            return
        n = row.x.size
        told = story.outcomes(row.x, _tiles(asked, n))
        badges = (
            units.badge("counted", "by the emulator, for the row on the stage"),
            units.badge("predicted", "passes, and bytes at the page's shape"),
        )
        st.html(f'<p class="kt-figures">{" ".join(badges)}</p>{_table(told, asked.shape)}')
        cards.sentence(story.row_words(row.x))
        quiet(
            "Counted over predicted: how often a thread asked for each number of the row. Run measures random numbers of standard "
            "deviation 1, which the unsafe kernel gets right; what is wrong gets no time."
        )


def _tiles(asked: Asked, n: int) -> dict[str, dict[str, int]]:
    """Of each rung of ours those at which it runs a row of n: the page's for the one that is watched."""
    found = {r.name: address.fitting(r, SoftmaxShape(1, n)) for r in ladder.RUNGS}
    return found | {asked.rung.name: address.tiles_at(asked, n)}


def _table(told: list[story.Outcome], shape: SoftmaxShape) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    lines = "".join(_line(of, shape) for of in told)
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="This row by every rung">'
        f'<table class="kt-table kt-shares"><tr><td>rung</td>{heads}</tr>{lines}</table></div>'
    )


def _line(of: story.Outcome, shape: SoftmaxShape) -> str:
    moved = 4 * (of.predicted + ladder.WRITES) * shape.elements
    words = escape(of.words) if of.right else f"<b>{escape(of.words)}</b>"
    cells = (
        f"{of.reads:g}, predicted {of.predicted}",
        f"{of.writes:g}, predicted {ladder.WRITES}",
        units.bytes_(moved),
        words,
    )
    return f'<tr><th scope="row">{escape(find(of.rung).title)}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
