"""The controls of the lesson on layers: layer, pass, presets, shape, and the rung on the stage."""

from __future__ import annotations

from functools import partial

import streamlit as st

from kernels.attention.lse.shape import LseShape
from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.elementwise.shape import MapsShape
from kernels.embedding.shape import EmbeddingShape
from kernels.heads.shape import HeadsShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.linear.shape import LinearShape
from kernels.model.shape import Shape
from kernels.norm.shape import MapsShape as ChannelsShape
from kernels.norm.shape import RowsShape
from kernels.optimizer.shape import OptimizerShape
from kernels.pooling.shape import GlobalShape, PoolShape
from pages.layers import address
from pages.layers.layers import BACKWARD, FORWARD, INFERENCE, LAYERS, MERGE, SPLIT, STEP, UPDATE, WEIGHTS
from pages.parts.address import MAX_TEXT_CHARS, Fields
from pages.parts.controls import Link, derived, limits, numbers, presets, select
from pages.parts.links import drawn
from pages.parts.query import explored, others
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from pages.parts.text import quiet
from visuals import units

PAGE = "layers/page.py"
PASSES = {
    FORWARD: (mark("forward"), mark("From the input to the output")),
    BACKWARD: (
        mark("backward"),
        mark("From the gradient of the output to the gradient of the input, over the same links"),
    ),
    INFERENCE: (mark("inference"), mark("With the statistics of the training")),
    WEIGHTS: (mark("weights"), mark("The gradients of the weights and of the bias")),
    SPLIT: (mark("split"), mark("From rows of tokens to heads, before attention")),
    MERGE: (mark("merge"), mark("From heads to rows of tokens, after attention; also the gradient of the split")),
    STEP: (mark("both in one"), mark("Loss and gradient in one kernel")),
    UPDATE: (mark("update"), mark("The step of the optimiser after the backward pass")),
}


def draw(layer: str, side: str, fields: Fields, selected: Selection, link: Link) -> None:
    """Draws layers, passes, presets and what the layer's shape has."""
    row, one = address.of(layer, side)
    bounds = address.bounds(layer, side, selected.shape)
    with st.container(key="chips", horizontal=True):
        with st.popover(tr("layer: {name}", name=tr(row.name)), key="layer_chooser"):
            _layers(layer, fields)
        if len(row.passes) > 1:
            _passes(layer, side, fields, selected)
        chips = {key: preset.label for key, preset in one.presets.items()}
        presets(link, chips, one.presets, address.address(layer, side).lit_shape(selected))
    with st.container(key="params", horizontal=True):
        numbers(fields, row.lines, bounds)
        for name, (label, width) in row.choices.items():
            select(fields, name, width, tr(label))
        for name, (label, width) in row.text.items():
            _text(fields, name, tr(label), width)
        derived(_derived(selected.shape))
    limits(selected.shape.params(), bounds)


def _layers(layer: str, fields: Fields) -> None:
    kept = _without_stage(fields)
    with st.container(key="rungs_layers", gap=None):
        for name, row in LAYERS.items():
            label = f"**{tr(row.name)}**" if name == layer else tr(row.name)
            first = next(iter(row.passes))
            params = drawn(explored(kept | address.write(name, first)), fields.by_name)
            st.page_link(PAGE, label=label, query_params=params, help=tr(row.title))


def _passes(layer: str, side: str, fields: Fields, selected: Selection) -> None:
    """Draws the passes as links that keep the shape: forward and backward are one press apart."""
    kept = _without_stage(fields)
    for name in LAYERS[layer].passes:
        to = address.across(layer, name, selected.shape)
        label, help = map(tr, PASSES[name])
        label = f"**{label}**" if name == side else label
        params = drawn(explored(kept | address.write(layer, name) | to), fields.by_name)
        st.page_link(PAGE, label=label, query_params=params, help=help)


def _without_stage(fields: Fields) -> dict[str, str]:
    """Returns the parameters that a link to another layer or pass keeps."""
    return {k: v for k, v in others(fields).items() if k not in (address.LAYER, address.PASS)}


def _text(fields: Fields, name: str, label: str, width: int) -> None:
    default = fields.by_name[name].default
    st.text_input(label, value=default, key=name, bind="query-params", max_chars=MAX_TEXT_CHARS, width=width)


def _derived(s: Shape) -> str:
    """Returns HTML with the output's size of a pooling, and the bytes that are moved at least."""
    moved = tr("at least <b>{bytes}</b> moved", bytes=units.bytes_(s.bytes))
    if isinstance(s, PoolShape):
        return tr("output <b>{rows}×{columns}</b>", rows=s.P, columns=s.Q) + f" · {moved}"
    return moved


# -- the two sizes -------------------------------------------------------------------------------------
def sizes(layer: str, side: str, selected: Selection) -> Sizes:
    """Returns how the strip names a shape, and one beyond the caches."""
    return Sizes(name, partial(address.real, layer, side), address.address(layer, side).chosen_tiles(selected))


def name(s: Shape) -> str:
    """Returns a shape in a few words."""
    if isinstance(s, CrossEntropyShape):
        rows = trn("{n} row of {classes} classes", "{n} rows of {classes} classes", s.M, classes=_count(s.N))
        return rows
    if isinstance(s, OptimizerShape):
        count = len(s.counts)
        return trn("{n} tensor, {weights} weights", "{n} tensors, {weights} weights", count, weights=_count(s.elements))
    if isinstance(s, RowsShape):
        return trn("{n} row of {count} numbers", "{n} rows of {count} numbers", s.M, count=_count(s.N))
    if isinstance(s, LinearShape):
        return f"{_count(s.M)}×{_count(s.N)}×{_count(s.K)}"
    if isinstance(s, EmbeddingShape):
        return tr("{count} tokens, table {rows}×{columns}", count=_count(s.M), rows=_count(s.V), columns=s.d)
    if isinstance(s, LseShape):
        heads = trn("{n} head of {d}", "{n} heads of {d}", s.heads, d=s.d)
        return tr("N = {N}, {heads}", N=_count(s.N), heads=heads) + (", " + tr("causal")) * bool(s.causal)
    if isinstance(s, HeadsShape):
        tokens = trn("{n} token", "{n} tokens", s.N * s.T)
        return tr("{tokens}, {parts} × {h} heads of {d}", tokens=tokens, parts=s.parts, h=s.h, d=s.d)
    assert isinstance(s, MapsShape | ChannelsShape | PoolShape | GlobalShape)
    rows, columns = (s.P, s.Q) if isinstance(s, MapsShape) else (s.H, s.W)
    text = f"N {_count(s.N)}, C {_count(s.C)}, {rows}×{columns}"
    return tr("{maps}, window {window}", maps=text, window=f"{s.R}×{s.S}") if isinstance(s, PoolShape) else text


def _count(n: int) -> str:
    return decimal(f"{n:,}")


def part_note(layer: str, shape: Shape) -> None:
    """Writes which part of the shape the stage shows, if it does not show all of it."""
    part = address.staged(layer, shape)
    with st.container():  # also without the line: the stage keeps its place in the page
        if part != shape:
            quiet(tr("The stage shows a part of {shape}: {part}.", shape=name(shape), part=name(part)))
