"""The controls of the GEMM lesson: presets, extents, rung on the stage, tile sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from pages.gemm import address
from pages.gemm.address import LADDER
from pages.parts import rates, run_settings, rung_picker
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, limits, numbers, order_chooser, presets
from pages.parts.rung_address import Selection
from visuals.charts import units
from visuals.gemm import story

CHIPS = {
    "square-8": "Toy 8×8", "square-16": "16×16", "square-64": "64×64", "square-1024": "1024³",
    "square-4096": "4096³", "odd-4095": "odd", "tall": "tall", "deep": "deep", "fc-vgg16-fc6": "VGG-16 fc6",
    "gpt2-qkv": "GPT-2 QKV", "gpt2-mlp-up": "GPT-2 MLP", "square-4096-fp16": "4096³ FP16",
    "square-4096-int8": "4096³ INT8",
}  # fmt: skip
LINE = ((("M", "M", 80), ("N", "N", 78), ("K", "K", 78)),)
RARE = ((("alpha", "alpha", 96), ("beta", "beta", 92)),)


def read(
    page: str, visible: bool = True, orders: Callable[[str], Mapping[str, str]] | None = None
) -> tuple[Selection, Link]:
    """Draws the controls and returns their query and a function that links to another preset.

    The link keeps all other settings. `orders(rung)` returns the stage's orders. If not `visible`, only the URL is
    read."""

    def controls(fields: Fields, query: Selection, link: Link) -> None:
        with st.container(key="chips", horizontal=True):
            presets(link, CHIPS, GEMM_PRESETS, query.shape)
            if orders:
                order_chooser(orders(query.rung.name))
        _fields(fields, query.shape)

    return rung_picker.selection(page, address.ADDRESS, controls if visible else None)


def _fields(fields: Fields, shape: GemmShape) -> None:
    bounds = address.bounds(shape)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with st.container(key="chips_more", width="content"), st.popover(_more_label(shape), key="more"):
            with st.container(key="params_rare", horizontal=True):
                numbers(fields, RARE, bounds)
            choose(fields, "dtype")
            st.caption(
                "C = alpha · A × B + beta · C0. The type is that of A and B; C is FP32, of INT8 a 32-bit "
                "whole number. A rung takes the types it was written for."
            )
        min_bytes = shape.bytes
        st.html(
            f'<p class="kt-derived">C <b>{shape.M:,}×{shape.N:,}</b> · <b>{units.count(shape.flops)}</b> FLOP · '
            f"at least <b>{units.bytes_(min_bytes)}</b> moved · <b>{shape.flops / min_bytes:.3g}</b> FLOP a byte</p>"
        )
    limits(shape.params(), bounds)


def _more_label(shape: GemmShape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = [
        f"{n} {getattr(shape, n):g}"
        for n in address.FACTORS
        if getattr(shape, n) != getattr(address.DEFAULT, n)
    ]
    if shape.dtype != "fp32":
        parts.append(shape.dtype)
    return ", ".join(parts) or "more"


# -- under the cards of Run ----------------------------------------------------------------------
def rate_cards(settings: run_settings.RunSettings) -> None:
    """Draws the ladder in FLOP/s at this shape, and square products of this type over sizes."""
    with st.container(key="rates", horizontal=True):
        rates.card(settings, story.library_row)
        rates.sizes(LADDER, settings.shape, settings.timing, side(settings.shape), "M = N = K")


def side(like: GemmShape) -> Callable[[GemmShape], int | None]:
    """Returns a function: the side of a plain square product with the type of `like`, None for any other shape."""

    def size(shape: GemmShape) -> int | None:
        return shape.M if shape == GemmShape(shape.M, shape.M, shape.M, dtype=like.dtype) else None

    return size
