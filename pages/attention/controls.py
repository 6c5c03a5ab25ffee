"""The controls of the attention lesson: presets, extents, numbers on the stage, rung on the stage."""

from __future__ import annotations

import streamlit as st

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from pages.attention import address
from pages.attention.address import ADDRESS
from pages.parts import rung_picker
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, chooser, limits, numbers, presets, select
from pages.parts.rung_address import Selection
from visuals.attention.inputs import KINDS
from visuals.charts import units

CHIPS = {
    "attention-toy": "Toy N=8", "attention-16": "N=16", "attention-toy-causal": "N=16, causal", "paper-cpu": "N=1024",
    "gpt2": "GPT-2", "bert": "BERT", "attention-2048": "N=2048", "attention-2048-causal": "N=2048, causal",
    "attention-2048-fp16": "N=2048, FP16", "attention-8192": "N=8192", "attention-d128": "d=128", "attention-ragged": "ragged",
}  # fmt: skip
LINE = ((("B", "B", 64),), (("H", "H", 70),), (("N", "N", 92),), (("d", "d", 70),))
RARE = ((("scale", "scale", 110),),)
CAUSAL_PX = 98
CAPTIONS = {name: caption for name, (caption, _) in KINDS.items()}


def read(page: str, visible: bool) -> tuple[Selection, Link]:
    """Draws the controls and returns their query and a function that links to another preset.

    The link keeps all other settings. If not `visible`, only the URL is read."""
    return rung_picker.selection(page, ADDRESS, _controls if visible else None)


def _controls(fields: Fields, query: Selection, link: Link) -> None:
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, ATTENTION_PRESETS, query.shape)
        chooser(address.VALUES, CAPTIONS)
    _fields(fields, query.shape)


def _fields(fields: Fields, s: AttentionShape) -> None:
    bounds = address.bounds(s)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        select(fields, "causal", CAUSAL_PX)
        with st.container(key="chips_more", width="content"), st.popover(_more_label(s), key="more"):
            with st.container(key="params_rare", horizontal=True):
                numbers(fields, RARE, bounds)
            choose(fields, "dtype")
            st.caption(
                "B sequences, H heads each, N queries and keys, head size d. The scores are multiplied by scale; 0 stands for "
                f"1/√d, here {1 / s.d**0.5:.3g}. The type is that of Q, K, V and O; sums are FP32. A rung takes the types it was "
                "written for."
            )
        st.html(
            f'<p class="kt-derived">S <b>{s.N:,}×{s.N:,}</b>{_heads(s)} · <b>{units.count(s.flops)}</b> FLOP · at least '
            f"<b>{units.bytes_(s.bytes)}</b> moved</p>"
        )
    limits(s.params(), bounds)


def _heads(s: AttentionShape) -> str:
    return f" for each of <b>{s.heads:,}</b> heads" if s.heads > 1 else ""


def _more_label(s: AttentionShape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = [f"scale {s.scale:g}"] * bool(s.scale) + [s.dtype] * (s.dtype != address.DEFAULT.dtype)
    return ", ".join(parts) or "more"
