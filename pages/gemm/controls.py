"""The controls of the GEMM lesson: presets, extents, the rung that is watched and its tile sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from pages.gemm import address
from pages.gemm.address import LADDER
from pages.parts import rate_cards as rates
from pages.parts import run_settings, rung_picker
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, limits, numbers, order_chooser, presets
from pages.parts.rung_address import Asked
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


def asked(
    page: str, shown: bool = True, orders: Callable[[str], Mapping[str, str]] | None = None
) -> tuple[Asked, Link]:
    """What the controls ask for, and what draws a link to another preset with all else kept. `orders(rung)` are those
    of the stage. Not `shown`: the address alone is read."""

    def controls(fields: Fields, asked: Asked, link: Link) -> None:
        with st.container(key="chips", horizontal=True):
            presets(link, CHIPS, GEMM_PRESETS, asked.shape)
            if orders:
                order_chooser(orders(asked.rung.name))
        _fields(fields, asked.shape)

    return rung_picker.asked(page, address.ADDRESS, controls if shown else None)


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
        least = shape.bytes
        st.html(
            f'<p class="kt-derived">C <b>{shape.M:,}×{shape.N:,}</b> · <b>{units.count(shape.flops)}</b> FLOP · '
            f"at least <b>{units.bytes_(least)}</b> moved · <b>{shape.flops / least:.3g}</b> FLOP a byte</p>"
        )
    limits(shape.params(), bounds)


def _more_label(shape: GemmShape) -> str:
    """What the popover hides, where it is not the usual."""
    parts = [
        f"{n} {getattr(shape, n):g}"
        for n in address.FACTORS
        if getattr(shape, n) != getattr(address.DEFAULT, n)
    ]
    if shape.dtype != "fp32":
        parts.append(shape.dtype)
    return ", ".join(parts) or "more"


# -- under the cards of Run ----------------------------------------------------------------------
def rate_cards(asked: run_settings.Asked) -> None:
    """The ladder in FLOP/s at this shape, and square products of this type over sizes."""
    with st.container(key="rates", horizontal=True):
        rates.card(asked, story.library_row)
        rates.sizes(LADDER, asked.shape, asked.timing, side(asked.shape), "M = N = K")


def side(of: GemmShape) -> Callable[[GemmShape], int | None]:
    """The side of a plain square product of the type of `of`, None for another shape."""

    def size(shape: GemmShape) -> int | None:
        return shape.M if shape == GemmShape(shape.M, shape.M, shape.M, dtype=of.dtype) else None

    return size
