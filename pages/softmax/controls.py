"""The controls of the softmax lesson: presets, extents, logits of the row on the stage, rung on the stage."""

from __future__ import annotations

import streamlit as st

from kernels.i18n import decimal, tr, trn
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from pages.parts import rung_picker
from pages.parts.address import MAX_TEXT_CHARS, Fields
from pages.parts.controls import Link, chooser, derived, labels, limits, numbers, presets
from pages.parts.query import chosen, url_values
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from pages.parts.text import note, quiet
from pages.softmax import address
from pages.softmax.address import ADDRESS, LOGITS, NUMBERS
from visuals import units
from visuals.softmax import inputs

CHIPS = labels(SOFTMAX_PRESETS)
LINE = ((("M", "M", 104), ("N", "N", 112)),)


def read(visible: bool) -> tuple[Selection, Link]:
    """Draws the controls, or only reads the URL; returns what they select, and the links to presets."""
    query, link = rung_picker.selection("softmax/page.py", ADDRESS, _controls if visible else None)
    note(*filter(None, [row(query.shape).note]))
    return query, link


REAL = SOFTMAX_PRESETS["softmax-large"].shape
# Of the rungs for rows that are too long for one block.
REAL_LONG = {
    "softmax/cluster": SOFTMAX_PRESETS["softmax-gpt2"].shape,
    "softmax/split": SOFTMAX_PRESETS["softmax-long"].shape,
    "softmax/one-launch": SOFTMAX_PRESETS["softmax-long"].shape,
}


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and one beyond the caches."""
    return Sizes(name, lambda shape: REAL_LONG.get(query.rung.name, REAL), ADDRESS.chosen_tiles(query))


def name(s: SoftmaxShape) -> str:
    """Returns a shape in a few words: "4 rows of 40"."""
    return trn("{n} row of {columns}", "{n} rows of {columns}", s.M, columns=decimal(f"{s.N:,}"))


def row(s: SoftmaxShape) -> address.Row:
    """Returns the row on the stage."""
    text = url_values().get(NUMBERS) if st.context.url else st.session_state.get(NUMBERS)
    return address.row(s, chosen(LOGITS, inputs.LOGITS), text or "")


def _controls(fields: Fields, query: Selection, link: Link) -> None:
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, SOFTMAX_PRESETS, ADDRESS.lit_shape(query))
        chooser(LOGITS, inputs.LOGITS)
    custom = chosen(LOGITS, inputs.LOGITS) == inputs.OWN_NUMBERS
    s, bounds = query.shape, address.bounds(query.shape)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        # A control that is not drawn would drop out of the URL: it is hidden instead.
        with st.container(key="own_numbers" if custom else "away_numbers", width="content"):
            st.text_input(
                tr("your row"),
                key=NUMBERS,
                bind="query-params",
                max_chars=MAX_TEXT_CHARS,
                placeholder=inputs.DEFAULT_OWN_NUMBERS,
                width=330,
            )
        derived(
            tr(
                "x <b>{x}</b> · at least <b>{least}</b> moved: x read once, y written once",
                x=units.bytes_(4 * s.elements),
                least=units.bytes_(s.bytes),
            )
        )
    limits(s.params(), bounds)
    if custom:
        quiet(
            tr(
                "The stage shows your row. Enter 1 to {max} FP32 numbers; inf, -inf and nan are allowed. "
                "Run measures {rows}×{columns} random numbers.",
                max=inputs.MAX_OWN_NUMBERS,
                rows=decimal(f"{s.M:,}"),
                columns=decimal(f"{s.N:,}"),
            )
        )
