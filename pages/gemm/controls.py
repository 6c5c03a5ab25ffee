"""The controls of the GEMM lesson: presets, extents, rung on the stage, tile sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.i18n import decimal, mark, tr
from pages.gemm import address
from pages.gemm.address import LADDER
from pages.parts import every_step, rates, run_settings
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, derived, labels, limits, more, numbers, presets
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from visuals import units
from visuals.gemm import notes
from visuals.gemm.scene import folds

PAGE = "gemm/page.py"
CHIPS = labels(
    GEMM_PRESETS,
    """square-8 square-16 square-64 square-1024 square-4096 odd-4095 tall
    deep fc-vgg16-fc6 gpt2-qkv gpt2-mlp-up square-4096-fp16 square-4096-int8""",
    {"odd-4095": mark("odd"), "tall": mark("tall"), "deep": mark("deep"), "gpt2-mlp-up": "GPT-2 MLP"},
)
LINE = ((("M", "M", 80), ("N", "N", 78), ("K", "K", 78)),)
RARE = ((("alpha", "alpha", 96), ("beta", "beta", 92)),)


REAL = GEMM_PRESETS["square-4096"].shape


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and the square product at which kernels are usually compared."""
    return Sizes(name, lambda shape: replace(REAL, dtype=shape.dtype), address.ADDRESS.chosen_tiles(query))


def name(shape: GemmShape) -> str:
    """Returns a shape in a few words: "4,096³"."""
    sizes = [decimal(f"{size:,}") for size in (shape.M, shape.N, shape.K)]
    text = f"{sizes[0]}³" if len(set(sizes)) == 1 else " × ".join(sizes)
    return text if shape.dtype == "fp32" else f"{text}, {shape.dtype.upper()}"


def draw(fields: Fields, query: Selection, link: Link) -> None:
    """Draws presets, extents, factors and type."""
    shape = query.shape
    bounds = address.bounds(shape)
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, GEMM_PRESETS, address.ADDRESS.lit_shape(query))
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with more(_more_label(shape), fields, RARE, bounds):
            choose(fields, "dtype")
            st.caption(
                tr(
                    "C = alpha · A × B + beta · C0. A and B have the chosen type. C is FP32, or INT32 if A and B are INT8. "
                    "Each kernel supports only some of the types."
                )
            )
        if folds(shape, query.rung.name, query.tiles):
            every_step.toggle(PAGE, fields)
        derived(work(shape))
    limits(shape.params(), bounds)


def work(s: GemmShape) -> str:
    """Returns HTML: the size of C, the FLOPs, and the least bytes that a product of this shape moves."""
    return tr(
        "C <b>{rows}×{cols}</b> · <b>{flops}</b> FLOP · at least <b>{bytes}</b> moved · <b>{intensity}</b> FLOP per byte",
        rows=decimal(f"{s.M:,}"),
        cols=decimal(f"{s.N:,}"),
        flops=units.count(s.flops),
        bytes=units.bytes_(s.bytes),
        intensity=units.ratio(s.flops / s.bytes),
    )


def _more_label(shape: GemmShape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = factors(shape), "" if shape.dtype == "fp32" else shape.dtype
    return ", ".join(filter(None, parts))


def factors(shape: GemmShape) -> str:
    """Returns alpha and beta if they differ from their defaults: "beta 1"."""
    different = [n for n in address.FACTORS if getattr(shape, n) != getattr(address.DEFAULT, n)]
    return ", ".join(f"{n} {getattr(shape, n):g}" for n in different)


# -- under the cards of Run ----------------------------------------------------------------------
def rate_cards(settings: run_settings.RunSettings) -> None:
    """Draws the ladder in FLOP/s at this shape, and square products of this type over sizes."""
    with st.container(key="rates", horizontal=True):
        rates.card(settings, notes.library_row)
        rates.sizes(LADDER, settings.shape, settings.timing, side(settings.shape), "M = N = K")


def side(like: GemmShape) -> Callable[[GemmShape], int | None]:
    """Returns a function: the side of a plain square product with the type of `like`, None for any other shape."""

    def size(shape: GemmShape) -> int | None:
        return shape.M if shape == GemmShape(shape.M, shape.M, shape.M, dtype=like.dtype) else None

    return size
