"""The card that runs every rung on the stage's row: elements moved, and whether the result is right."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.ladders import find
from kernels.softmax import ladder
from kernels.softmax.shape import SoftmaxShape
from pages.parts import cards, lesson
from pages.parts.rung_address import Selection
from pages.parts.text import quiet
from pages.softmax import address
from visuals.charts import units
from visuals.softmax import story

ROW = "row"  # the name of the page part
HEADERS = ("reads of x", "writes of y", "bytes at M×N", "this row’s y")


def section(query: Selection, row: address.Row) -> None:
    with st.container(key="card_softmax_row", border=True):
        st.html('<h2 class="kt-card">This row by every rung</h2>')
        if not lesson.deferred_loaded():
            return
        n = row.x.size
        outcomes = story.outcomes(row.x, _tiles(query, n))
        badges = (
            units.badge("counted", "by the emulator, for the row on the stage"),
            units.badge("predicted", "passes, and bytes at the page's shape"),
        )
        st.html(f'<p class="kt-figures">{" ".join(badges)}</p>{_table(outcomes, query.shape)}')
        cards.sentence(story.row_sentence(row.x))
        quiet(
            "Counted over predicted: how often a thread asked for each number of the row. Run measures random numbers of standard "
            "deviation 1, which the unsafe kernel gets right; what is wrong gets no time."
        )


def _tiles(query: Selection, n: int) -> dict[str, dict[str, int]]:
    """Returns tile sizes for a row of n by rung. The rung on the stage has the page's."""
    found = {r.name: address.default_tiles_for(r, SoftmaxShape(1, n)) for r in ladder.RUNGS}
    return found | {query.rung.name: address.tiles_at(query, n)}


def _table(outcomes: list[story.Outcome], shape: SoftmaxShape) -> str:
    header_cells = "".join(f'<th scope="col">{head}</th>' for head in HEADERS)
    lines = "".join(_line(outcome, shape) for outcome in outcomes)
    return (
        '<div class="kt-scroll" tabindex="0" role="region" aria-label="This row by every rung">'
        f'<table class="kt-table kt-shares"><tr><td>rung</td>{header_cells}</tr>{lines}</table></div>'
    )


def _line(outcome: story.Outcome, shape: SoftmaxShape) -> str:
    moved = 4 * (outcome.predicted + ladder.WRITES) * shape.elements
    sentence = escape(outcome.verdict) if outcome.is_right else f"<b>{escape(outcome.verdict)}</b>"
    cells = (
        f"{outcome.reads:g}, predicted {outcome.predicted}",
        f"{outcome.writes:g}, predicted {ladder.WRITES}",
        units.bytes_(moved),
        sentence,
    )
    return f'<tr><th scope="row">{escape(find(outcome.rung).title)}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
