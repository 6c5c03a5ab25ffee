"""The controls of the lesson on attention's backward pass: presets, extents, numbers on the stage, rung on the stage."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from kernels.attention.backward.presets import BACKWARD_PRESETS
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import decimal, mark, tr, trn
from pages.attention.backward import address
from pages.attention.backward.address import ADDRESS
from pages.attention.controls import draw_fields, name
from pages.parts.address import Fields
from pages.parts.controls import Link, chooser, labels, presets
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from visuals import units
from visuals.attention.backward.inputs import KINDS
from visuals.attention.backward.notes import squares

CHIPS = labels(
    BACKWARD_PRESETS,
    "backward-toy backward-toy-causal backward-toy-fp16 backward-gpt2 backward-bert backward-2048 backward-2048-causal "
    "backward-2048-fp16 backward-8192 backward-d128 backward-ragged",
    {"backward-d128": "d=128", "backward-ragged": mark("ragged")},
)
REAL = BACKWARD_PRESETS["backward-2048"].shape


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and one of 2,048 tokens, causal and of the same type if the stage's is."""
    return Sizes(name, lambda s: replace(REAL, causal=s.causal, dtype=s.dtype), ADDRESS.chosen_tiles(query))


def draw(fields: Fields, query: Selection, link: Link) -> None:
    """Draws presets, numbers on the stage, extents and type."""
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, BACKWARD_PRESETS, ADDRESS.lit_shape(query))
        chooser(address.VALUES, KINDS)
    types = tr("The type is that of Q, K, V, O and of all gradients.")
    draw_fields(fields, query.shape, types, _derived(query.shape))


def _derived(s: AttentionBackwardShape) -> str:
    """Returns HTML: the bytes of P and dS, the FLOPs, and the least bytes that the backward pass of this shape moves."""
    return trn(
        "P and dS <b>{N}×{N}</b> for <b>{n}</b> head: <b>{squares}</b> · <b>{flops}</b> FLOP · at least <b>{bytes}</b> moved",
        "P and dS <b>{N}×{N}</b> for <b>{n}</b> heads: <b>{squares}</b> · <b>{flops}</b> FLOP · at least <b>{bytes}</b> moved",
        s.heads,
        N=decimal(f"{s.N:,}"),
        squares=units.bytes_(squares(s)),
        flops=units.count(s.flops),
        bytes=units.bytes_(s.bytes),
    )
