"""The controls of the GEMM lesson: presets, extents, the rung that is watched and its tile sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import streamlit as st

from kernels.presets import GEMM_PRESETS
from kernels.program import Launch, Rung
from kernels.shapes import GemmShape
from pages import _asked, _gemm, _lesson, _rates, _tiles
from pages._gemm import LADDER, Asked
from visuals import figures, why_gemm

CHIPS = {
    "square-8": "Toy 8×8", "square-16": "16×16", "square-64": "64×64", "square-1024": "1024³",
    "square-4096": "4096³", "odd-4095": "odd", "tall": "tall", "deep": "deep", "fc-vgg16-fc6": "VGG-16 fc6",
    "gpt2-qkv": "GPT-2 QKV", "gpt2-mlp-up": "GPT-2 MLP", "square-4096-fp16": "4096³ FP16",
    "square-4096-int8": "4096³ INT8",
}  # fmt: skip
LINE = ((("M", "M", 80), ("N", "N", 78), ("K", "K", 78)),)
RARE = ((("alpha", "alpha", 96), ("beta", "beta", 92)),)
TILE_PX = 74  # of a field for a tile size, without its name


def asked(
    page: str, shown: bool = True, orders: Callable[[str], Mapping[str, str]] | None = None
) -> tuple[Asked, _lesson.Link]:
    """What the controls ask for, and what draws a link to another preset with all else kept. `orders(rung)` are those
    of the stage. Not `shown`: the address alone is read."""
    fields = _gemm.fields(_gemm.watched(st.query_params))
    values, notes = _lesson.asked(fields, shown)
    asked = _gemm.of(values)
    link = _lesson.preset_link(page, fields, lambda shape: _gemm.at_shape(asked, shape))
    if shown:
        with st.container(key="chips", horizontal=True):
            _lesson.presets(link, CHIPS, GEMM_PRESETS, asked.shape)
            if orders:
                _lesson.order_chooser(orders(asked.rung.name))
        _fields(fields, asked.shape)
        _rung_line(page, fields, asked)
    _lesson.note(*notes)
    return asked, link


def _fields(fields: _lesson.Fields, shape: GemmShape) -> None:
    bounds = _gemm.bounds(shape)
    with st.container(key="params", horizontal=True):
        _lesson.numbers(fields, LINE, bounds)
        with st.container(key="chips_more", width="content"), st.popover(_more_label(shape), key="more"):
            with st.container(key="params_rare", horizontal=True):
                _lesson.numbers(fields, RARE, bounds)
            _lesson.choose(fields, "dtype")
            st.caption(
                "C = alpha · A × B + beta · C0. The type is that of A and B; C is FP32, of INT8 a 32-bit "
                "whole number. A rung takes the types it was written for."
            )
        least = shape.bytes
        st.html(
            f'<p class="kt-derived">C <b>{shape.M:,}×{shape.N:,}</b> · <b>{figures.count(shape.flops)}</b> FLOP · '
            f"at least <b>{figures.bytes_(least)}</b> moved · <b>{shape.flops / least:.3g}</b> FLOP a byte</p>"
        )
    _lesson.limits(shape.params(), bounds)


def _more_label(shape: GemmShape) -> str:
    """What the popover hides, where it is not the usual."""
    parts = [
        f"{n} {getattr(shape, n):g}" for n in _gemm.FACTORS if getattr(shape, n) != getattr(_gemm.DEFAULT, n)
    ]
    if shape.dtype != "fp32":
        parts.append(shape.dtype)
    return ", ".join(parts) or "more"


# -- the rung that is watched --------------------------------------------------------------------
def _rung_line(page: str, fields: _lesson.Fields, asked: Asked) -> None:
    with st.container(key="params_tiles", horizontal=True):
        with st.container(key="chips_rung", width="content"):
            _rung_chooser(page, fields, asked)
        _tile_fields(fields, asked)
        st.html(f'<p class="kt-derived">{_launch_words(asked)}</p>')
    _lesson.quiet(asked.rung.idea)
    if asked.broken:
        _refused(page, fields, asked)


def _rung_chooser(page: str, fields: _lesson.Fields, asked: Asked) -> None:
    """Links, for another rung has other tile sizes: what the address says of them is to change with it."""
    with st.popover(f"rung {number(asked.rung)}: {asked.rung.title}", key="rung_chooser"):
        able = _gemm.able(asked.shape)
        with st.container(key="rungs", gap=None):
            for rung in LADDER.rungs:
                title = f"{number(rung)} {rung.title}"
                cannot = "" if rung in able else " (not at this shape)"
                label = f"**{title}**" if rung is asked.rung else f"{title}{cannot}"
                _link(page, fields, _gemm.at_rung(asked, rung), label, rung.idea)


def number(rung: Rung) -> int:
    """Its place in the ladder, from 1."""
    return LADDER.rungs.index(rung) + 1


def _link(page: str, fields: _lesson.Fields, params: dict[str, str], label: str, help: str = "") -> None:
    query = _lesson.others(fields) | params
    st.page_link(page, label=label, query_params=query, help=help or None)


def _tile_fields(fields: _lesson.Fields, asked: Asked) -> None:
    """A field for each tile size; its choices are those that are legal while the others stay."""
    for name, choices in _tiles.choices(asked.rung, asked.shape, asked.tiles).items():
        usual = fields.of[name].usual
        st.selectbox(
            name,
            choices,
            index=choices.index(usual) if usual in choices else None,
            key=name,
            bind="query-params",
            width=TILE_PX + 9 * len(name),
        )


def _launch_words(asked: Asked) -> str:
    """What the rung launches at these tile sizes: HTML; "" where it cannot or calls a library."""
    if asked.broken:
        return ""
    launches = [s for s in asked.rung.build(asked.shape, asked.tiles).steps if isinstance(s, Launch)]
    return " · ".join(
        f"<b>{math.prod(s.grid):,}</b> block{'s' if math.prod(s.grid) > 1 else ''} of <b>{math.prod(s.block):,}</b> threads"
        for s in launches
    )


def _refused(page: str, fields: _lesson.Fields, asked: Asked) -> None:
    """The rule that is broken, and where to go on: the nearest tile sizes, or the rungs that can."""
    _lesson.quiet(f"{asked.rung.title} cannot run so: {'; '.join(asked.broken)}")
    near = _tiles.nearest(asked.rung, asked.shape, asked.tiles)
    with st.container(key="chips_legal", horizontal=True):
        if near:
            words = ", ".join(f"{n} {v}" for n, v in near.items() if v != asked.tiles[n])
            _link(page, fields, _gemm.at_tiles(asked, near), f"nearest that can: {words}")
        else:
            st.html('<p class="kt-quiet">These can:</p>')
            for rung in _gemm.able(asked.shape):
                _link(page, fields, _gemm.at_rung(asked, rung), rung.title, rung.idea)


# -- under the cards of Run ----------------------------------------------------------------------
def rates(asked: _asked.Asked) -> None:
    """The ladder in FLOP/s at this shape, and square products of this type over sizes."""
    with st.container(key="rates", horizontal=True):
        _rates.card(asked, why_gemm.library_row)
        _rates.sizes(LADDER, asked.shape, asked.timing, side(asked.shape), "M = N = K")


def side(of: GemmShape) -> Callable[[GemmShape], int | None]:
    """The side of a plain square product of the type of `of`, None for another shape."""

    def size(shape: GemmShape) -> int | None:
        return shape.M if shape == GemmShape(shape.M, shape.M, shape.M, dtype=of.dtype) else None

    return size
