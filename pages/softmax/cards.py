"""The card that runs every rung on the stage's row: elements moved, and whether the result is right."""

from __future__ import annotations

from html import escape

import streamlit as st

from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.softmax import ladder
from kernels.softmax.shape import SoftmaxShape
from pages.parts import lesson
from pages.parts.rung_address import Selection
from pages.parts.text import card_title, conclusion, details, paragraph, together
from pages.softmax import address
from visuals import units
from visuals.softmax import notes

ROW = "row"  # the name of the page part
TITLE = mark("This row in every kernel")
HEADERS = (mark("reads of x"), mark("writes of y"), mark("bytes for M×N"), mark("result for this row"))


def section(query: Selection, row: address.Row) -> None:
    with st.container(key="card_softmax_row", border=True):
        if not lesson.deferred_loaded():
            together(card_title(tr(TITLE)))
            return
        n = row.x.size
        outcomes = notes.outcomes(row.x, _tiles(query, n))
        badges = (
            units.badge("counted", tr("in the emulator, for this row")),
            units.badge("predicted", tr("passes, and bytes for M×N")),
        )
        how = tr(
            "Reads and writes: how many times the threads request each number, as counted. The prediction is named only if it "
            "differs. Run measures random numbers with standard deviation 1. The unsafe kernel is right for them. A kernel with a "
            "wrong result gets no time."
        )
        together(
            card_title(tr(TITLE)),
            conclusion(notes.outcomes_sentence(outcomes)),
            f'<p class="kt-figures">{" ".join(badges)}</p>',
            details(_table(outcomes, query.shape), paragraph(notes.row_sentence(row.x)), paragraph(how)),
        )


def _tiles(query: Selection, n: int) -> dict[str, dict[str, int]]:
    """Returns tile sizes for a row of n by rung. The rung on the stage has the page's."""
    found = {r.name: address.default_tiles_for(r, SoftmaxShape(1, n)) for r in ladder.RUNGS}
    return found | {query.rung.name: address.tiles_at(query, n)}


def _table(outcomes: list[notes.Outcome], shape: SoftmaxShape) -> str:
    header_cells = "".join(f'<th scope="col">{tr(head)}</th>' for head in HEADERS)
    lines = "".join(_line(outcome, shape) for outcome in outcomes)
    kernel = tr("kernel")
    return (
        f'<div class="kt-scroll" tabindex="0" role="region" aria-label="{tr(TITLE)}">'
        f'<table class="kt-table kt-shares"><tr><td>{kernel}</td>{header_cells}</tr>{lines}</table></div>'
    )


def _line(outcome: notes.Outcome, shape: SoftmaxShape) -> str:
    moved = 4 * (outcome.predicted + ladder.WRITES) * shape.elements
    sentence = escape(outcome.verdict) if outcome.is_right else f"<b>{escape(outcome.verdict)}</b>"
    cells = (
        _counted(outcome.reads, outcome.predicted),
        _counted(outcome.writes, ladder.WRITES),
        units.bytes_(moved),
        sentence,
    )
    title = escape(tr(find(outcome.rung).title))
    return f'<tr><th scope="row">{title}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'


def _counted(counted: float, predicted: int) -> str:
    if counted == predicted:
        return f"{predicted}"
    return tr("{counted}, predicted {predicted}", counted=decimal(f"{counted:g}"), predicted=predicted)
