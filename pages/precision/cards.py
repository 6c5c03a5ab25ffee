"""The cards of the lesson on precision: the tables of a topic, each under its conclusion."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from kernels.i18n import mark, tr
from pages.parts.address import Values
from pages.parts.text import card_title, conclusion, details, paragraph, together
from pages.precision import address
from visuals.precision import tables
from visuals.precision.tables import Table


def draw(topic: str, values: Values) -> None:
    """Draws the cards of a topic side by side."""
    found = _tables(topic, values)
    with st.container(key="cards_precision", horizontal=True):
        for n, (title, table) in enumerate(found):
            with st.container(key=f"card_precision_{n}", border=True):
                notes = details(*map(paragraph, table.notes))
                together(card_title(tr(title)), conclusion(table.conclusion), table.html(tr(title)), notes)


def _tables(topic: str, values: Values) -> Sequence[tuple[str, Table]]:
    match topic:
        case address.BITS:
            return [(mark("Formats"), tables.formats())]
        case address.GRADIENTS:
            return [(mark("What is lost"), tables.gradient_losses(f"d {values['tensor']}", values["at"]))]
        case address.SCALING:
            return [(mark("Four trainings"), tables.scaling())]
        case address.WEIGHTS:
            return [(mark("Four trainings"), tables.weights())]
        case address.SUMS:
            return [(mark("Errors of sums"), tables.accumulation())]
        case address.INT8:
            return [(mark("The digits net in INT8"), tables.int8())]
        case address.PRODUCTS:
            return [(mark("Errors of FP8 sums"), tables.fp8_sums())]
    return [(mark("Instructions"), tables.instructions()), (mark("Control"), tables.control())]
