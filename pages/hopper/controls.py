"""The controls of the lesson on Hopper: presets, extents, type, rung on the stage, what its picture shows."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.i18n import decimal, mark, tr
from pages.gemm.address import bounds as gemm_bounds
from pages.gemm.controls import RARE, factors, name
from pages.hopper import address
from pages.parts import rates, run_settings, rung_picker
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, chooser, limits, numbers, presets
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from visuals import units
from visuals.gemm import notes

CHIPS = {
    "square-64-fp16": mark("64³ FP16"),
    "square-64-bf16": mark("64³ BF16"),
    "square-4096-fp16": mark("4096³ FP16"),
    "square-4096-bf16": mark("4096³ BF16"),
    "square-8192-fp16": mark("8192³ FP16"),
    "square-8192-bf16": mark("8192³ BF16"),
    "gpt2-qkv-fp16": mark("GPT-2 QKV FP16"),
    "gpt2-mlp-up-fp16": mark("GPT-2 MLP up FP16"),
    "gpt2-mlp-down-fp16": mark("GPT-2 MLP down FP16"),
}
LINE = ((("M", "M", 80), ("N", "N", 78), ("K", "K", 78)),)
REAL = GEMM_PRESETS["square-4096-fp16"].shape
SWIZZLE, WARP = "swizzle", "warp"  # URL parameters of one picture each


def read(page: str, order: str, visible: bool) -> tuple[Selection, Link]:
    """Draws the controls and returns their query and a function that links to another preset. `order`: that of the stage.

    The link keeps all other settings. If not `visible`, only the URL is read."""

    def controls(fields: Fields, query: Selection, link: Link) -> None:
        with st.container(key="chips", horizontal=True):
            chips = {key: tr(label) for key, label in CHIPS.items()}
            presets(link, chips, GEMM_PRESETS, address.ADDRESS.lit_shape(query))
            if order == "swizzle":
                chooser(SWIZZLE, {mode: tr(text) for mode, text in address.MODES.items()})
            if order == "accumulator":
                chooser(WARP, {warp: tr(text) for warp, text in address.WARPS.items()})
        _fields(fields, query)

    return rung_picker.selection(page, address.ADDRESS, controls if visible else None)


def _fields(fields: Fields, query: Selection) -> None:
    s, bounds = query.shape, gemm_bounds(query.shape)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        choose(fields, "dtype")
        with st.container(key="chips_more", width="content"), st.popover(factors(s) or tr("more"), key="more"):
            with st.container(key="params_rare", horizontal=True):
                numbers(fields, RARE, bounds)
            st.caption(tr("C = alpha · A × B + beta · C0. C and C0 are FP32."))
        text = tr(
            "C <b>{rows}×{cols}</b> · <b>{flops}</b> FLOP · at least <b>{bytes}</b> moved · <b>{intensity}</b> FLOP per byte",
            rows=decimal(f"{s.M:,}"),
            cols=decimal(f"{s.N:,}"),
            flops=units.count(s.flops),
            bytes=units.bytes_(s.bytes),
            intensity=units.ratio(s.flops / s.bytes),
        )
        st.html(f'<p class="kt-derived">{text}</p>')
    limits(s.params(), bounds)


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and the square product at which kernels are usually compared."""
    return Sizes(name, lambda shape: replace(REAL, dtype=shape.dtype), address.ADDRESS.chosen_tiles(query))


def rate_card(settings: run_settings.RunSettings) -> None:
    """Draws the kernels in FLOP/s at this shape."""
    with st.container(key="rates", horizontal=True):
        rates.card(settings, notes.library_row)
