"""The controls of a convolution lesson: presets, choosers of picture, filter and order, fields, derived sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape

import numpy as np
import streamlit as st

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape, conv_bounds
from pages.conv import address
from pages.conv.address import FIELDS, ConvQuery
from pages.parts import address as parts_address
from pages.parts import query as url_query
from pages.parts.controls import Link, choose, limits, numbers, order_chooser, preset_link, presets
from pages.parts.text import note
from pages.parts.theme import tokens
from visuals.conv import pictures
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.part import copies_per_pixel
from visuals.conv.pictures import CUSTOM, UPLOAD, PictureError

CHIPS = {
    "toy": "Toy 8×8", "cudnn-paper": "cuDNN paper", "lenet-conv1": "LeNet conv1",
    "resnet50-conv1-n1": "ResNet-50 conv1", "resnet50-res3-3x3-n1": "res3 3×3",
    "resnet50-res2-1x1": "1×1", "vgg-conv1_2": "VGG conv1_2",
}  # fmt: skip
LINE = (
    (("N", "N", 48),), (("C", "C", 60),), (("H", "H", 54), ("W", "W", 56)), (("K", "K", 60),),
    (("R", "R", 50), ("S", "S", 48)), (("u", "stride u", 87), ("v", "stride v", 87)),
    (("pad_h", "pad h", 72), ("pad_w", "pad w", 75)),
)  # fmt: skip
RARE = ((("dilation_h", "dilation h", 108), ("dilation_w", "dilation w", 108)),)


def inputs(
    page: str,
    visible: bool = True,
    orders: Mapping[str, str] | None = None,
    fields: parts_address.Fields = FIELDS,
    chips: Mapping[str, str] = CHIPS,
    derived: Callable[[ConvShape], str] | None = None,
) -> tuple[Inputs, Link]:
    """Draws the controls; returns valid inputs and a function that links to another preset.

    The link keeps all other settings. `page` is the page's file. `fields` are those of pages.conv.address, possibly with
    other defaults. `derived(shape)`, HTML, ends the line of fields. If not `visible`, only the URL is read."""
    values, notes = url_query.current_values(fields, visible)
    query = address.query_of(values)
    link = preset_link(page, fields, lambda shape: fields.write(replace(query, shape=shape).params()))
    upload = None
    if visible:
        with st.container(key="chips", horizontal=True):
            presets(link, chips, CONV_PRESETS, query.shape)
            upload = _picture_chooser(fields, query)
            _filter_chooser(fields, query)
            if orders:
                order_chooser(orders)
        _fields(fields, query.shape, (derived or _data_matrix)(query.shape))
    note(*notes)
    return _inputs(query, upload), link


# -- shape ---------------------------------------------------------------------------------------
def _fields(fields: parts_address.Fields, shape: ConvShape, derived: str) -> None:
    bounds = conv_bounds(shape, address.MAX)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with st.container(key="chips_more", width="content"), st.popover(_more_label(shape), key="more"):
            with st.container(key="params_rare", horizontal=True):
                numbers(fields, RARE, bounds)
            choose(fields, "mode")
            st.caption(
                "Deep-learning frameworks do not flip the filter: cross-correlation. The convolution "
                "of mathematics, and of the cuDNN paper, flips it in both axes."
            )
        st.html(f'<p class="kt-derived">output <b>{shape.P}×{shape.Q}</b> · {derived}</p>')
    limits(shape.params(), bounds)


def _data_matrix(shape: ConvShape) -> str:
    an_image = " an image" if shape.N > 1 else ""
    return (
        f"data matrix <b>{shape.CRS:,}×{shape.PQ:,}</b>{an_image} · "
        f"copies per pixel up to <b>{copies_per_pixel(shape)}</b>"
    )


def _more_label(shape: ConvShape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = []
    if shape.dilation != (1, 1):
        parts.append(f"dilation {shape.dilation_h}×{shape.dilation_w}")
    if shape.flip:
        parts.append("filter flipped")
    return ", ".join(parts) or "more"


# -- picture and filters -------------------------------------------------------------------------
def _inputs(query: ConvQuery, upload: bytes | None) -> Inputs:
    """Returns the selected inputs. Unusable ones are replaced, with a note."""
    s, picture, filter_name, custom, planes = query.shape, query.picture, query.filter, None, None
    if picture == UPLOAD:
        try:
            planes = _decoded(upload, s.H, s.W, min(s.C, 3)) if upload else None
            if upload is None:
                note(
                    "Choose a file under “picture”: one of your own does not travel in a link. Until then: the digit."
                )
        except PictureError as error:
            note(f"{error}. Until then: the digit.")
    if filter_name == CUSTOM:
        try:
            custom = pictures.parse_taps(query.taps, s.R, s.S) if query.taps.strip() else _default_taps(s)
        except PictureError as error:
            note(f"{error}. Until then: sharpen.")
            custom = _default_taps(s)
    return Inputs(s, "digit" if picture == UPLOAD else picture, filter_name, query.seed, custom, planes)


def _default_taps(s: ConvShape) -> np.ndarray:
    return pictures.taps("sharpen", s.R, s.S)


@st.cache_data(max_entries=16, show_spinner=False)
def _decoded(data: bytes, H: int, W: int, planes: int) -> np.ndarray:
    return pictures.upload_planes(data, H, W, planes)


def _picture_chooser(fields: parts_address.Fields, query: ConvQuery) -> bytes | None:
    """Draws the chooser and returns the uploaded file's bytes, or None."""
    upload = None
    with st.popover(f"picture: {query.picture}", key="picture_chooser"):
        choose(fields, "picture")
        if query.picture == UPLOAD:
            file = st.file_uploader("PNG or JPEG, at most 10 MB and 40 megapixels", ["png", "jpg", "jpeg"])
            upload = file.getvalue() if file else None
        # A control that is not drawn would drop out of the URL: it is hidden instead.
        with st.container(key="seed_line" if "random" in (query.picture, query.filter) else "away_seed"):
            st.number_input("seed of what is random", 0.0, float(pictures.MAX_SEED), 0.0, 1.0, "%.0f",
                            required=True, key="seed", bind="query-params", width=180)  # fmt: skip
    return upload


def _filter_chooser(fields: parts_address.Fields, query: ConvQuery) -> None:
    s = query.shape
    with st.popover(f"filter: {query.filter}", key="filter_chooser"):
        choose(fields, "filter")
        with st.container(key="taps_grid" if query.filter == CUSTOM else "away_taps"):
            st.text_area(
                f"{s.R} × {s.S} taps, a line a row",
                key="taps",
                bind="query-params",
                max_chars=parts_address.MAX_TEXT_CHARS,
                placeholder=pictures.taps_text(_default_taps(s)),
                height=34 + 22 * max(2, s.R),
            )
        names = pictures.filter_names(min(s.K, 8), query.filter)
        st.caption(
            "Filters in order: "
            + ", ".join(names)
            + (", …" if s.K > 8 else "")
            + ". The same taps on every channel."
        )


def show_pictures(inputs: Inputs) -> None:
    """Draws the input's first channel and, beside it, the whole first plane of the output."""
    s, t, x = inputs.shape, tokens(), inputs.planes()[0]
    y = outputs(inputs, 1, s.P, s.Q)[0]
    name = "your picture" if inputs.upload is not None else inputs.picture
    span = f"from {y.min():.4g} to {y.max():.4g}".replace("-", "−")
    images = (
        (x, "input", f"Input: {name}, {s.H} × {s.W}" + (", first channel" if s.C > 1 else "")),
        (y, "output", f"Output of filter 1, {inputs.names()[0]}, {s.P} × {s.Q}, {span}"),
    )
    figures = ""
    for values, role, caption in images:
        uri = pictures.data_uri(pictures.picture_rgb(values, t[role], t["ground"], t["ink"]))
        figures += f'<figure><img src="{uri}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
    st.html(f'<div class="kt-pictures">{figures}</div>')
