"""The controls of the softmax lesson: presets, extents, the logits of the row on the stage, the rung that is watched."""

from __future__ import annotations

import streamlit as st

from kernels.shapes_softmax import SOFTMAX_PRESETS, SoftmaxShape
from pages import _lesson, _rung_line, _softmax
from pages._address import MOST_TEXT, Fields
from pages._ladder import Asked
from pages._softmax import ADDRESS, LOGITS, NUMBERS
from visuals import figures, logits

CHIPS = {
    "softmax-toy": "Toy 2×8", "softmax-40": "4×40", "softmax-128": "128×128", "softmax-ragged": "1,001×777",
    "softmax-attention": "8192×1024", "softmax-large": "32768×1024", "softmax-gpt2": "GPT-2 vocabulary",
    "softmax-long": "4 long rows",
}  # fmt: skip
LINE = ((("M", "M", 104), ("N", "N", 112)),)


def asked(page: str, shown: bool) -> tuple[Asked, _softmax.Row, _lesson.Link]:
    """What the controls ask for, the row on the stage, and what draws a link to another preset with all else kept. Not
    `shown`: the address alone is read."""
    found, link = _rung_line.asked(page, ADDRESS, _controls if shown else None)
    here = _row(found.shape)
    if here.note:
        _lesson.note(here.note)
    return found, here, link


def _row(s: SoftmaxShape) -> _softmax.Row:
    told = st.query_params.get(NUMBERS) if st.context.url else st.session_state.get(NUMBERS)
    return _softmax.row(s, _lesson.chosen(LOGITS, logits.LOGITS), told or "")


def _controls(fields: Fields, asked: Asked, link: _lesson.Link) -> None:
    with st.container(key="chips", horizontal=True):
        _lesson.presets(link, CHIPS, SOFTMAX_PRESETS, asked.shape)
        _lesson.chooser(LOGITS, logits.LOGITS)
    own = _lesson.chosen(LOGITS, logits.LOGITS) == logits.OWN
    s, bounds = asked.shape, _softmax.bounds(asked.shape)
    with st.container(key="params", horizontal=True):
        _lesson.numbers(fields, LINE, bounds)
        # A control that is not drawn would leave the address: it is hidden instead.
        with st.container(key="own_numbers" if own else "away_numbers", width="content"):
            st.text_input(
                "your row",
                key=NUMBERS,
                bind="query-params",
                max_chars=MOST_TEXT,
                placeholder=logits.USUAL_OWN,
                width=330,
            )
        st.html(
            f'<p class="kt-derived">x <b>{figures.bytes_(4 * s.elements)}</b> · at least <b>{figures.bytes_(s.bytes)}</b> '
            f"moved: read once, written once</p>"
        )
    _lesson.limits(s.params(), bounds)
    if own:
        _lesson.quiet(
            f"The stage plays your row: 1 to {logits.MOST_OWN} numbers of FP32, inf, -inf and nan among them. "
            f"Run measures {s.M:,}×{s.N:,} random numbers."
        )
