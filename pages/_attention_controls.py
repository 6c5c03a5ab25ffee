"""The controls of the attention lesson: presets, extents, what the stage computes with, the rung that is watched."""

from __future__ import annotations

import streamlit as st

from kernels.presets_attention import ATTENTION_PRESETS
from kernels.shapes_attention import AttentionShape
from pages import _attention, _lesson, _rung_line
from pages._address import Fields
from pages._attention import ADDRESS
from pages._ladder import Asked
from visuals import figures
from visuals.inputs_attention import KINDS

CHIPS = {
    "attention-toy": "Toy N=8", "attention-16": "N=16", "attention-toy-causal": "N=16, causal", "paper-cpu": "N=1024",
    "gpt2": "GPT-2", "bert": "BERT", "attention-2048": "N=2048", "attention-2048-causal": "N=2048, causal",
    "attention-2048-fp16": "N=2048, FP16", "attention-8192": "N=8192", "attention-d128": "d=128", "attention-ragged": "ragged",
}  # fmt: skip
LINE = ((("B", "B", 64),), (("H", "H", 70),), (("N", "N", 92),), (("d", "d", 70),))
RARE = ((("scale", "scale", 110),),)
CAUSAL_PX = 98
WORDS = {name: words for name, (words, _) in KINDS.items()}


def asked(page: str, shown: bool) -> tuple[Asked, _lesson.Link]:
    """What the controls ask for, and what draws a link to another preset with all else kept. Not `shown`: the address
    alone is read."""
    return _rung_line.asked(page, ADDRESS, _controls if shown else None)


def _controls(fields: Fields, asked: Asked, link: _lesson.Link) -> None:
    with st.container(key="chips", horizontal=True):
        _lesson.presets(link, CHIPS, ATTENTION_PRESETS, asked.shape)
        _lesson.chooser(_attention.VALUES, WORDS)
    _fields(fields, asked.shape)


def _fields(fields: Fields, s: AttentionShape) -> None:
    bounds = _attention.bounds(s)
    with st.container(key="params", horizontal=True):
        _lesson.numbers(fields, LINE, bounds)
        _lesson.select(fields, "causal", CAUSAL_PX)
        with st.container(key="chips_more", width="content"), st.popover(_more_label(s), key="more"):
            with st.container(key="params_rare", horizontal=True):
                _lesson.numbers(fields, RARE, bounds)
            _lesson.choose(fields, "dtype")
            st.caption(
                "B sequences, H heads each, N queries and keys, head size d. The scores are multiplied by scale; 0 stands for "
                f"1/√d, here {1 / s.d**0.5:.3g}. The type is that of Q, K, V and O; sums are FP32. A rung takes the types it was "
                "written for."
            )
        st.html(
            f'<p class="kt-derived">S <b>{s.N:,}×{s.N:,}</b>{_heads(s)} · <b>{figures.count(s.flops)}</b> FLOP · at least '
            f"<b>{figures.bytes_(s.bytes)}</b> moved</p>"
        )
    _lesson.limits(s.params(), bounds)


def _heads(s: AttentionShape) -> str:
    return f" for each of <b>{s.heads:,}</b> heads" if s.heads > 1 else ""


def _more_label(s: AttentionShape) -> str:
    """What the popover hides, where it is not the usual."""
    parts = [f"scale {s.scale:g}"] * bool(s.scale) + [s.dtype] * (s.dtype != _attention.DEFAULT.dtype)
    return ", ".join(parts) or "more"
