"""The controls of the softmax lesson: presets, extents, logits of the row on the stage, rung on the stage."""

from __future__ import annotations

import streamlit as st

from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from pages.parts import rung_picker
from pages.parts.address import MAX_TEXT_CHARS, Fields
from pages.parts.controls import Link, chooser, limits, numbers, presets
from pages.parts.query import chosen
from pages.parts.rung_address import Selection
from pages.parts.text import note, quiet
from pages.softmax import address
from pages.softmax.address import ADDRESS, LOGITS, NUMBERS
from visuals.charts import units
from visuals.softmax import inputs

CHIPS = {
    "softmax-toy": "Toy 2×8", "softmax-40": "4×40", "softmax-128": "128×128", "softmax-ragged": "1,001×777",
    "softmax-attention": "8192×1024", "softmax-large": "32768×1024", "softmax-gpt2": "GPT-2 vocabulary",
    "softmax-long": "4 long rows",
}  # fmt: skip
LINE = ((("M", "M", 104), ("N", "N", 112)),)


def read(page: str, visible: bool) -> tuple[Selection, address.Row, Link]:
    """Draws the controls; returns their query, the row on the stage and a function that links to another preset.

    The link keeps all other settings. If not `visible`, only the URL is read."""
    query, link = rung_picker.selection(page, ADDRESS, _controls if visible else None)
    stage_row = _row(query.shape)
    if stage_row.note:
        note(stage_row.note)
    return query, stage_row, link


def _row(s: SoftmaxShape) -> address.Row:
    text = st.query_params.get(NUMBERS) if st.context.url else st.session_state.get(NUMBERS)
    return address.row(s, chosen(LOGITS, inputs.LOGITS), text or "")


def _controls(fields: Fields, query: Selection, link: Link) -> None:
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, SOFTMAX_PRESETS, query.shape)
        chooser(LOGITS, inputs.LOGITS)
    custom = chosen(LOGITS, inputs.LOGITS) == inputs.OWN_NUMBERS
    s, bounds = query.shape, address.bounds(query.shape)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        # A control that is not drawn would drop out of the URL: it is hidden instead.
        with st.container(key="own_numbers" if custom else "away_numbers", width="content"):
            st.text_input(
                "your row",
                key=NUMBERS,
                bind="query-params",
                max_chars=MAX_TEXT_CHARS,
                placeholder=inputs.DEFAULT_OWN_NUMBERS,
                width=330,
            )
        st.html(
            f'<p class="kt-derived">x <b>{units.bytes_(4 * s.elements)}</b> · at least <b>{units.bytes_(s.bytes)}</b> '
            f"moved: read once, written once</p>"
        )
    limits(s.params(), bounds)
    if custom:
        quiet(
            f"The stage plays your row: 1 to {inputs.MAX_OWN_NUMBERS} numbers of FP32, inf, -inf and nan among them. "
            f"Run measures {s.M:,}×{s.N:,} random numbers."
        )
