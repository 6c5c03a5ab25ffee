"""The controls of the lesson on choosing: presets with their layers' bias, ReLU and groups, and the shape's fields."""

from __future__ import annotations

from math import gcd

import streamlit as st

from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PADDING, CONV_PRESETS
from kernels.conv.shape import EXTRA_SINCE, ConvShape
from kernels.i18n import mark, tr, trn
from pages.conv.address import bounds as conv_bounds
from pages.conv.choose import address
from pages.conv.choose.address import FIELDS
from pages.conv.controls import LINE, PADDING_AFTER, RARE, causal, padding_after
from pages.parts import query
from pages.parts.controls import Link, choose, limits, more, numbers, preset_link, presets
from pages.parts.controls import derived as derived_line
from pages.parts.text import note
from visuals import units

WIDER = {"N": 54, "C": 68, "K": 68}  # for 2,048 maps
FIELD_LINE = tuple(tuple((name, label, WIDER.get(name, width)) for name, label, width in group) for group in LINE)
PRESETS = CONV_PRESETS | CONV_LAYER_PRESETS | CONV_PADDING
CHIPS = {
    "resnet50-res3-3x3-n32": "res3 3×3",
    "resnet50-res5-3x3-n32": "res5 3×3",
    "resnet50-res2-3x3-n32": "res2 3×3",
    "resnet50-res3-3x3-n1": "res3 3×3, N=1",
    "resnet50-conv1-n32": "ResNet-50 conv1",
    "resnet50-res2-1x1": "1×1",
    "lenet-conv1": "LeNet conv1",
    "vgg-conv1_2": "VGG conv1_2",
    "vgg-conv1_1": "VGG conv1_1 + ReLU",
    "resnext50-res2-grouped-n32": "ResNeXt (groups)",
    "mobilenet-depthwise-n32": "depthwise",
    "mobilenet-conv1-same-n32": mark("MobileNet conv1, zeros after"),
    "causal-c64-n32": mark("1-D, causal, 64 maps"),
}


def read(page: str, visible: bool) -> tuple[ConvShape, str, Link]:
    """Draws the controls; returns the shape, the guess and a function that links to a preset.

    If not `visible`, only the URL is read."""
    values, notes = query.current_values(FIELDS, visible)
    shape, predict = address.shape_of(values), values["predict"]
    link = preset_link(page, FIELDS, lambda to: address.at_shape(to, predict))
    if visible:
        with st.container(key="chips", horizontal=True):
            presets(link, CHIPS, PRESETS, shape)
        _fields(shape)
    note(*notes)
    return shape, predict, link


def _fields(shape: ConvShape) -> None:
    bounds = conv_bounds(shape, FIELDS.by_name)
    with st.container(key="params", horizontal=True):
        numbers(FIELDS, FIELD_LINE, bounds)
        with more("", FIELDS, RARE, bounds):
            st.caption(tr(PADDING_AFTER))
            choose(FIELDS, "mode")
            with st.container(key="params_layer", horizontal=True):
                choose(FIELDS, "bias", tr("bias"))
                choose(FIELDS, "relu", "ReLU")
            choose(FIELDS, "groups", tr("groups"), _groups(shape))
        derived_line(derived(shape))
    limits({**EXTRA_SINCE, **shape.params()}, bounds)


def _groups(s: ConvShape) -> list[int]:
    """Returns the numbers of groups that divide both the channels and the filters."""
    both = gcd(s.C, s.K)
    return [n for n in range(1, both + 1) if both % n == 0]


def derived(s: ConvShape) -> str:
    """Returns, as HTML, sizes derived from the fields and the settings that the fields do not show."""
    facts = [trn("<b>{n}</b> group", "<b>{n}</b> groups", s.groups)] * (s.groups > 1) + [tr("bias")] * s.bias
    facts += ["ReLU"] * s.relu + [tr("filter flipped")] * s.flip + padding_after(s)
    facts.append(tr("output <b>{size}</b>", size=f"{s.P}×{s.Q}"))
    facts.append(tr("direct convolution: <b>{flops}</b> FLOPs", flops=units.count(s.flops)))
    return " · ".join((*facts, *causal(s)))
