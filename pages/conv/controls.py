"""The controls of a convolution: presets, choosers of picture, filter and order, fields, derived sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape

import numpy as np
import streamlit as st

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape, conv_bounds
from pages.conv import address
from pages.conv.address import FIELDS, Asked
from pages.parts import address as parts_address
from pages.parts import query
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
    shown: bool = True,
    orders: Mapping[str, str] | None = None,
    fields: parts_address.Fields = FIELDS,
    chips: Mapping[str, str] = CHIPS,
    derived: Callable[[ConvShape], str] | None = None,
) -> tuple[Inputs, Link]:
    """What the controls ask for, always valid, and what draws a link to another preset with all else kept.
    `page` is the page's file; `fields` those of _conv, with defaults of its own; `derived(shape)`, HTML, ends the line
    of fields. Not `shown`: the address alone is read."""
    values, notes = query.asked(fields, shown)
    asked = address.of(values)
    link = preset_link(page, fields, lambda shape: fields.write(replace(asked, shape=shape).params()))
    upload = None
    if shown:
        with st.container(key="chips", horizontal=True):
            presets(link, chips, CONV_PRESETS, asked.shape)
            upload = _picture_chooser(fields, asked)
            _filter_chooser(fields, asked)
            if orders:
                order_chooser(orders)
        _fields(fields, asked.shape, (derived or _data_matrix)(asked.shape))
    note(*notes)
    return _inputs(asked, upload), link


# -- shape ---------------------------------------------------------------------------------------
def _fields(fields: parts_address.Fields, shape: ConvShape, derived: str) -> None:
    bounds = conv_bounds(shape, address.MOST)
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
    """What the popover hides, where it is not the usual."""
    parts = []
    if shape.dilation != (1, 1):
        parts.append(f"dilation {shape.dilation_h}×{shape.dilation_w}")
    if shape.flip:
        parts.append("filter flipped")
    return ", ".join(parts) or "more"


# -- picture and filters -------------------------------------------------------------------------
def _inputs(asked: Asked, upload: bytes | None) -> Inputs:
    """The inputs asked for; what cannot be had is named and replaced."""
    s, picture, first, custom, planes = asked.shape, asked.picture, asked.filter, None, None
    if picture == UPLOAD:
        try:
            planes = _decoded(upload, s.H, s.W, min(s.C, 3)) if upload else None
            if upload is None:
                note(
                    "Choose a file under “picture”: one of your own does not travel in a link. Until then: the digit."
                )
        except PictureError as error:
            note(f"{error}. Until then: the digit.")
    if first == CUSTOM:
        try:
            custom = pictures.parse_taps(asked.taps, s.R, s.S) if asked.taps.strip() else _usual_taps(s)
        except PictureError as error:
            note(f"{error}. Until then: sharpen.")
            custom = _usual_taps(s)
    return Inputs(s, "digit" if picture == UPLOAD else picture, first, asked.seed, custom, planes)


def _usual_taps(s: ConvShape) -> np.ndarray:
    return pictures.taps("sharpen", s.R, s.S)


@st.cache_data(max_entries=16, show_spinner=False)
def _decoded(data: bytes, H: int, W: int, planes: int) -> np.ndarray:
    return pictures.upload_planes(data, H, W, planes)


def _picture_chooser(fields: parts_address.Fields, asked: Asked) -> bytes | None:
    """The file of the reader's own, where one is chosen."""
    upload = None
    with st.popover(f"picture: {asked.picture}", key="picture_chooser"):
        choose(fields, "picture")
        if asked.picture == UPLOAD:
            file = st.file_uploader("PNG or JPEG, at most 10 MB and 40 megapixels", ["png", "jpg", "jpeg"])
            upload = file.getvalue() if file else None
        # A control that is not drawn would leave the address: it is hidden instead.
        with st.container(key="seed_line" if "random" in (asked.picture, asked.filter) else "away_seed"):
            st.number_input("seed of what is random", 0.0, float(pictures.MOST_SEED), 0.0, 1.0, "%.0f",
                            required=True, key="seed", bind="query-params", width=180)  # fmt: skip
    return upload


def _filter_chooser(fields: parts_address.Fields, asked: Asked) -> None:
    s = asked.shape
    with st.popover(f"filter: {asked.filter}", key="filter_chooser"):
        choose(fields, "filter")
        with st.container(key="taps_grid" if asked.filter == CUSTOM else "away_taps"):
            st.text_area(
                f"{s.R} × {s.S} taps, a line a row",
                key="taps",
                bind="query-params",
                max_chars=parts_address.MOST_TEXT,
                placeholder=pictures.taps_text(_usual_taps(s)),
                height=34 + 22 * max(2, s.R),
            )
        names = pictures.filter_names(min(s.K, 8), asked.filter)
        st.caption(
            "Filters in order: "
            + ", ".join(names)
            + (", …" if s.K > 8 else "")
            + ". The same taps on every channel."
        )


def show_pictures(inputs: Inputs) -> None:
    """The input's first channel, and beside it the first plane of the output, whole."""
    s, t, x = inputs.shape, tokens(), inputs.planes()[0]
    y = outputs(inputs, 1, s.P, s.Q)[0]
    name = "your picture" if inputs.upload is not None else inputs.picture
    span = f"from {y.min():.4g} to {y.max():.4g}".replace("-", "−")
    shown = (
        (x, "input", f"Input: {name}, {s.H} × {s.W}" + (", first channel" if s.C > 1 else "")),
        (y, "output", f"Output of filter 1, {inputs.names()[0]}, {s.P} × {s.Q}, {span}"),
    )
    figures = ""
    for values, role, caption in shown:
        uri = pictures.data_uri(pictures.picture_rgb(values, t[role], t["ground"], t["ink"]))
        figures += f'<figure><img src="{uri}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
    st.html(f'<div class="kt-pictures">{figures}</div>')
