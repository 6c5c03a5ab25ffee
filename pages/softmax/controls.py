"""The controls of the softmax lesson: presets, extents, the logits of the row on the stage, the rung that is watched."""

from __future__ import annotations

import streamlit as st

from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from pages.parts import rung_picker
from pages.parts.address import MOST_TEXT, Fields
from pages.parts.controls import Link, chooser, limits, numbers, presets
from pages.parts.query import chosen
from pages.parts.rung_address import Asked
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


def asked(page: str, shown: bool) -> tuple[Asked, address.Row, Link]:
    """What the controls ask for, the row on the stage, and what draws a link to another preset with all else kept. Not
    `shown`: the address alone is read."""
    found, link = rung_picker.asked(page, ADDRESS, _controls if shown else None)
    here = _row(found.shape)
    if here.note:
        note(here.note)
    return found, here, link


def _row(s: SoftmaxShape) -> address.Row:
    told = st.query_params.get(NUMBERS) if st.context.url else st.session_state.get(NUMBERS)
    return address.row(s, chosen(LOGITS, inputs.LOGITS), told or "")


def _controls(fields: Fields, asked: Asked, link: Link) -> None:
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, SOFTMAX_PRESETS, asked.shape)
        chooser(LOGITS, inputs.LOGITS)
    own = chosen(LOGITS, inputs.LOGITS) == inputs.OWN
    s, bounds = asked.shape, address.bounds(asked.shape)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        # A control that is not drawn would leave the address: it is hidden instead.
        with st.container(key="own_numbers" if own else "away_numbers", width="content"):
            st.text_input(
                "your row",
                key=NUMBERS,
                bind="query-params",
                max_chars=MOST_TEXT,
                placeholder=inputs.USUAL_OWN,
                width=330,
            )
        st.html(
            f'<p class="kt-derived">x <b>{units.bytes_(4 * s.elements)}</b> · at least <b>{units.bytes_(s.bytes)}</b> '
            f"moved: read once, written once</p>"
        )
    limits(s.params(), bounds)
    if own:
        quiet(
            f"The stage plays your row: 1 to {inputs.MOST_OWN} numbers of FP32, inf, -inf and nan among them. "
            f"Run measures {s.M:,}×{s.N:,} random numbers."
        )
