"""The controls of the lesson on moving data."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import tr
from kernels.model.shape import Bound
from kernels.transfers.scenarios import MAX_N, MAX_ROWS, PIECES, SCENARIOS
from pages.parts.address import Fields, Values
from pages.parts.controls import numbers
from pages.parts.links import drawn
from pages.parts.query import explored, others
from pages.transfers import address


def draw(page: str, fields: Fields, values: Values) -> None:
    """Draws the scenarios as links, then the numbers that the current one has."""
    row = SCENARIOS[values["scenario"]]
    with (
        st.container(key="chips", horizontal=True),
        st.popover(tr("scenario: {name}", name=tr(row.title)), key="scenario_chooser"),
        st.container(key="rungs_scenarios", gap=None),
    ):
        for key, other in SCENARIOS.items():
            label = f"**{tr(other.title)}**" if key == row.key else tr(other.title)
            rows = (
                {"rows": int(values["rows"])} if not address.settings({**values, "scenario": key, "n": 1}).short else {}
            )
            st.page_link(
                page,
                label=label,
                query_params=drawn(explored({**others(fields), **address.params(key, **rows)}), fields.by_name),
            )
    with st.container(key="params", horizontal=True):
        most = min(MAX_N, int(values["rows"])) if row.n == PIECES else MAX_N
        why = tr("a piece has at least one row") if most < MAX_N else ""
        bounds = {"rows": Bound(1, MAX_ROWS), "n": Bound(1, most, why_high=why)}
        short = address.settings(values).short
        line = ([] if short else [(("rows", tr("rows"), 170),)]) + ([(("n", tr(row.n), 150),)] if row.n else [])
        numbers(fields, line, bounds)
