"""The controls of the lesson on Hopper: presets, extents, type, rung on the stage, what its picture shows."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.i18n import tr
from pages.gemm.address import bounds as gemm_bounds
from pages.gemm.controls import LINE, RARE, factors, name, work
from pages.hopper import address
from pages.parts import rates, run_settings
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, chooser, derived, labels, limits, more, numbers, presets
from pages.parts.query import chosen
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from visuals.gemm import notes

CHIPS = labels(
    GEMM_PRESETS,
    "square-64-fp16 square-64-bf16 square-4096-fp16 square-4096-bf16 square-8192-fp16 square-8192-bf16 gpt2-qkv-fp16 "
    "gpt2-mlp-up-fp16 gpt2-mlp-down-fp16",
)
REAL = GEMM_PRESETS["square-4096-fp16"].shape
SWIZZLE, WARP = "swizzle", "warp"  # URL parameters of one picture each


def draw(fields: Fields, query: Selection, link: Link) -> None:
    """Draws presets, what the picture of the stage shows, extents, type and factors."""
    s, bounds, order = query.shape, gemm_bounds(query.shape), chosen("order", address.ORDERS)
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, GEMM_PRESETS, address.ADDRESS.lit_shape(query))
        if order == "swizzle":
            chooser(SWIZZLE, address.MODES)
        if order == "accumulator":
            chooser(WARP, address.WARPS)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        choose(fields, "dtype")
        with more(factors(s), fields, RARE, bounds):
            st.caption(tr("C = alpha · A × B + beta · C0. C and C0 are FP32."))
        derived(work(s))
    limits(s.params(), bounds)


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and the square product at which kernels are usually compared."""
    return Sizes(name, lambda shape: replace(REAL, dtype=shape.dtype), address.ADDRESS.chosen_tiles(query))


def rate_card(settings: run_settings.RunSettings) -> None:
    """Draws the kernels in FLOP/s at this shape."""
    with st.container(key="rates", horizontal=True):
        rates.card(settings, notes.library_row)
