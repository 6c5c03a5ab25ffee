"""The controls of the lesson on moving data."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import mark, tr
from kernels.model.shape import Bound
from kernels.transfers.scenarios import MAX_N, PIECES, SCENARIOS
from pages.parts.address import Values
from pages.parts.controls import choice_links, numbers
from pages.transfers.address import FIELDS, settings, usual

PAGE = "transfers/page.py"


def draw(values: Values) -> None:
    """Draws the scenarios as links, then the numbers that the current one has."""
    row = SCENARIOS[values["scenario"]]
    titles = {key: other.title for key, other in SCENARIOS.items()}
    with st.container(key="chips", horizontal=True):
        label = tr("scenario: {name}", name=tr(row.title))
        choice_links(PAGE, FIELDS, values, "scenario", label, titles, usual)
    with st.container(key="params", horizontal=True):
        most = min(MAX_N, int(values["rows"])) if row.n == PIECES else MAX_N
        why = tr("a piece has at least one row") if most < MAX_N else ""
        rows = [] if settings(values).short else [(("rows", mark("rows"), 170),)]
        n = [(("n", row.n, 150),)] if row.n else []
        numbers(FIELDS, rows + n, FIELDS.bounds | {"n": Bound(1, most, why_high=why)})
