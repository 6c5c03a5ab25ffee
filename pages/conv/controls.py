"""The controls of a convolution lesson: presets, choosers of picture, filter and order, fields, derived sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape

import numpy as np
import streamlit as st

from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.presets import CONV_GRID, CONV_PADDING, CONV_PRESETS
from kernels.conv.shape import EXTRA_SINCE, ConvShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.model.preset import Preset
from pages.conv import address
from pages.conv.address import FIELDS, ConvQuery
from pages.parts import address as parts_address
from pages.parts import every_step
from pages.parts import query as url_query
from pages.parts.controls import Link, choose, labels, limits, more, numbers, preset_link, presets
from pages.parts.controls import derived as derived_line
from pages.parts.ladder_page import Selected
from pages.parts.sizes import Sizes
from pages.parts.text import note
from pages.parts.theme import tokens
from visuals import units
from visuals.conv import pictures
from visuals.conv.direct.notes import loads_per_pixel
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import copies_per_pixel
from visuals.conv.pictures import CUSTOM, UPLOAD, PictureError

LINE = (
    (("N", "N", 48),),
    (("C", "C", 60),),
    (("H", "H", 54), ("W", "W", 56)),
    (("K", "K", 60),),
    (("R", "R", 50), ("S", "S", 48)),
    (("u", mark("stride u"), 87), ("v", mark("stride v"), 87)),
    (("pad_h", mark("pad h"), 72), ("pad_w", mark("pad w"), 75)),
)
EXTRA = ((("extra_h", mark("after h +"), 108), ("extra_w", mark("after w +"), 111)),)
RARE = ((("dilation_h", mark("dilation h"), 108), ("dilation_w", mark("dilation w"), 108)), *EXTRA)
PRESETS = CONV_PRESETS | CONV_GRID | CONV_PADDING
CHIPS = labels(
    PRESETS,
    "toy cudnn-paper lenet-conv1 resnet50-conv1-n1 resnet50-res3-3x3-n1 resnet50-res2-1x1 vgg-conv1_2 signal signal-causal "
    "signal-causal-dilated toy-same-stride2",
    {"resnet50-conv1-n1": "ResNet-50 conv1", "resnet50-res3-3x3-n1": "res3 3×3"},
)
PADDING_AFTER = mark(
    "The zeros after the input are pad + this number. A causal convolution has none: pad w = (S − 1) · dilation w, and the "
    "number is −pad w."
)

DIGIT = mark("The digit is shown instead.")


def inputs(
    page: str,
    visible: bool = True,
    fields: parts_address.Fields = FIELDS,
    chips: Mapping[str, str] = CHIPS,
    derived: Callable[[ConvShape], str] | None = None,
    folds: Callable[[ConvShape], bool] | None = None,
) -> tuple[Inputs, Link]:
    """Draws the controls; returns valid inputs and a function that links to another preset.

    The link keeps all other settings. `page` is the page's file. `fields` are those of pages.conv.address, possibly with
    other defaults. `derived(shape)`, HTML, ends the line of fields. The default is im2col's data matrix. If not `visible`,
    only the URL is read. `folds(shape)`: whether the stage folds repeated steps."""
    values, notes = url_query.current_values(fields, visible)
    query = address.query_of(values)
    link = preset_link(page, fields, lambda shape: fields.write(replace(query, shape=shape).params()))

    upload = None
    if visible:
        with st.container(key="chips", horizontal=True):
            presets(link, chips, PRESETS, query.shape)
            upload = _picture_chooser(fields, query)
            _filter_chooser(fields, query)
        if folds and folds(query.shape):
            every_step.toggle(page, fields)
        _fields(fields, query.shape, (derived or data_matrix)(query.shape))
    selected, unusable = _inputs(query, upload)
    note(*notes, *unusable)
    return selected, link


REAL = CONV_PRESETS["resnet50-res3-3x3-n32"]


def sizes(selected: Selected, real: Preset = REAL, fields: parts_address.Fields = FIELDS) -> Sizes:
    """Returns how the strip names a shape, and a layer of a real network. `fields`: those of the lesson."""
    tiles, opens = selected.tiles, address.query_of(fields.defaults).shape
    return Sizes(name, lambda shape: real.shape, {} if tiles == selected.rung.default_tiles else tiles, opens)


def name(s: ConvShape) -> str:
    """Returns a shape in a few words: a preset's label, or "input 8×8, 2 filters 3×3"."""
    for preset in PRESETS.values():
        if preset.shape == s:
            return preset.label
    images = trn("{n} image", "{n} images", s.N)
    channels = trn("{n} channel", "{n} channels", s.C)
    filters = trn("{n} filter", "{n} filters", s.K)
    return f"{images}, {channels}, {s.H}×{s.W}; {filters} {s.R}×{s.S}"


# -- shape ---------------------------------------------------------------------------------------
def _fields(fields: parts_address.Fields, shape: ConvShape, work: str) -> None:
    bounds = address.bounds(shape, fields.by_name)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with more(_more_label(shape), fields, RARE, bounds):
            st.caption(tr(PADDING_AFTER))
            choose(fields, "mode")
            st.caption(
                tr(
                    "Deep-learning frameworks do not flip the filter (cross-correlation). Mathematics and the cuDNN paper flip "
                    "it in both axes (convolution)."
                )
            )
        output = tr("output <b>{rows}×{columns}</b>", rows=shape.P, columns=shape.Q)
        derived_line(" · ".join(filter(None, (output, work, *causal(shape)))))
    limits({**EXTRA_SINCE, **shape.params()}, bounds)


# -- derived sizes, HTML ---------------------------------------------------------------------------
def data_matrix(shape: ConvShape) -> str:
    """Returns the size of im2col's data matrix, and the copies that it holds of a pixel."""
    size = decimal(f"{shape.CRS:,}×{shape.PQ:,}")
    matrix = (
        tr("data matrix <b>{size}</b> per image", size=size)
        if shape.N > 1
        else tr("data matrix <b>{size}</b>", size=size)
    )
    return " · ".join((matrix, tr("copies per pixel up to <b>{n}</b>", n=copies_per_pixel(shape))))


def virtual_matrix(shape: ConvShape) -> str:
    """Returns the size of implicit GEMM's data matrix, of all images, and the multiply-adds."""
    size = decimal(f"{shape.CRS:,}×{shape.N * shape.PQ:,}")
    return " · ".join((tr("data matrix <b>{size}</b>, not stored", size=size), _multiply_adds(shape)))


def direct_work(shape: ConvShape) -> str:
    """Returns the multiply-adds of direct convolution, and how often it loads a pixel."""
    loads = tr("loads per pixel up to <b>{n}</b>", n=decimal(f"{loads_per_pixel(shape):,}"))
    return f"{_multiply_adds(shape)} · {loads}"


def _multiply_adds(shape: ConvShape) -> str:
    return tr("<b>{n}</b> multiply-adds", n=units.count(shape.macs))


def padding_after(shape: ConvShape | TransposeShape) -> list[str]:
    """Returns a text about the padding after the input, if it differs from that before it."""
    if not (shape.extra_h or shape.extra_w):
        return []
    rows, columns = (decimal(f"{n:+d}").replace("-", "−") for n in (shape.extra_h, shape.extra_w))
    return [tr("after {rows}/{columns}", rows=rows, columns=columns)]


def causal(shape: ConvShape) -> list[str]:
    """Returns what the padding of a causal 1-D convolution means; nothing of another shape."""
    is_causal = shape.H == shape.R == 1 and 0 < shape.pad_w == shape.span_w - 1 and shape.after[1] == 0
    return [tr("<b>causal</b>: an output reads no later sample")] * is_causal


def _more_label(shape: ConvShape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = padding_after(shape)
    if shape.dilation != (1, 1):
        parts.append(tr("dilation {rows}×{columns}", rows=shape.dilation_h, columns=shape.dilation_w))
    if shape.flip:
        parts.append(tr("filter flipped"))
    return ", ".join(parts)


# -- picture and filters -------------------------------------------------------------------------
def _inputs(query: ConvQuery, upload: bytes | None) -> tuple[Inputs, list[str]]:
    """Returns the selected inputs, and a note for each unusable one that is replaced."""
    notes: list[str] = []
    s, picture, filter_name, custom, planes = query.shape, query.picture, query.filter, None, None
    if picture == UPLOAD:
        try:
            planes = _decoded(upload, s.H, s.W, min(s.C, 3)) if upload else None
            if upload is None:
                choose_file = tr("Choose a file under “picture”. A link does not contain your own picture.")
                notes.append(f"{choose_file} {tr(DIGIT)}")
        except PictureError as error:
            notes.append(f"{error} {tr(DIGIT)}")
    if filter_name == CUSTOM:
        try:
            custom = pictures.parse_taps(query.taps, s.R, s.S) if query.taps.strip() else _default_taps(s)
        except PictureError as error:
            notes.append(" ".join((str(error), tr("The filter “sharpen” is used instead."))))
            custom = _default_taps(s)
    picture = "digit" if picture == UPLOAD else picture
    return Inputs(s, picture, filter_name, query.seed, custom, planes), notes


def _default_taps(s: ConvShape) -> np.ndarray:
    return pictures.taps("sharpen", s.R, s.S)


@st.cache_data(max_entries=16, show_spinner=False)
def _decoded(data: bytes, H: int, W: int, planes: int) -> np.ndarray:
    return pictures.upload_planes(data, H, W, planes)


def _picture_chooser(fields: parts_address.Fields, query: ConvQuery) -> bytes | None:
    """Draws the chooser and returns the uploaded file's bytes, or None."""
    upload = None
    with st.popover(tr("picture: {name}", name=query.picture), key="picture_chooser"):
        choose(fields, "picture")
        if query.picture == UPLOAD:
            limits_text = tr(
                "PNG or JPEG, at most {size} and {pixels} megapixels",
                size=units.bytes_(pictures.MAX_BYTES),
                pixels=pictures.MAX_PIXELS // 10**6,
            )
            file = st.file_uploader(limits_text, ["png", "jpg", "jpeg"])
            upload = file.getvalue() if file else None
        # A control that is not drawn would drop out of the URL: it is hidden instead.
        with st.container(key="seed_line" if "random" in (query.picture, query.filter) else "away_seed"):
            st.number_input(
                tr("random seed"),
                0.0,
                float(pictures.MAX_SEED),
                0.0,
                1.0,
                "%.0f",
                required=True,
                key="seed",
                bind="query-params",
                width=180,
            )
    return upload


def _filter_chooser(fields: parts_address.Fields, query: ConvQuery) -> None:
    s = query.shape
    with st.popover(tr("filter: {name}", name=query.filter), key="filter_chooser"):
        choose(fields, "filter")
        with st.container(key="taps_grid" if query.filter == CUSTOM else "away_taps"):
            st.text_area(
                tr("{rows} × {columns} taps, one line per row", rows=s.R, columns=s.S),
                key="taps",
                bind="query-params",
                max_chars=parts_address.MAX_TEXT_CHARS,
                placeholder=pictures.taps_text(_default_taps(s)),
                height=34 + 22 * max(2, s.R),
            )
        names = ", ".join([*pictures.filter_names(min(s.K, 8), query.filter), *["…"] * (s.K > 8)])
        st.caption(tr("Filters in order: {names}. All channels use the same taps.", names=names))


def show_pictures(inputs: Inputs) -> None:
    """Draws the input's first channel and, beside it, the whole first plane of the output."""
    s, t, x = inputs.shape, tokens(), inputs.planes()[0]
    y = outputs(inputs, 1, s.P, s.Q)[0]
    size = f"{s.H} × {s.W}"
    name = tr("your picture") if inputs.upload is not None else inputs.picture
    input_caption = (
        tr("Input: {name}, {size}, first channel", name=name, size=size)
        if s.C > 1
        else tr("Input: {name}, {size}", name=name, size=size)
    )
    output_caption = tr(
        "Output of the first filter, {name}, {rows} × {columns}, from {low} to {high}",
        name=inputs.names()[0],
        rows=s.P,
        columns=s.Q,
        low=_value(y.min()),
        high=_value(y.max()),
    )
    images = ((x, "input", input_caption), (y, "output", output_caption))
    figures = ""
    for values, role, caption in images:
        uri = pictures.data_uri(pictures.picture_rgb(values, t[role], t["ground"], t["ink"]))
        figures += (
            f'<figure><img src="{uri}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
        )
    st.html(f'<div class="kt-pictures">{figures}</div>')


def _value(number: float) -> str:
    return decimal(f"{number:.4g}").replace("-", "−")
