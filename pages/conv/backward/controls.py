"""The controls of the lesson on convolution backward: gradient, presets, extents, rung."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from kernels.conv.backward.presets import BACKWARD_PRESETS
from kernels.conv.backward.transpose import PRESETS as TRANSPOSE_PRESETS
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import EXTRA_SINCE
from kernels.i18n import decimal, mark, tr, trn
from pages.conv import controls as conv_controls
from pages.conv.backward import address
from pages.conv.backward.address import FILTERS, GRADIENT, TRANSPOSED, Shape
from pages.parts import every_step
from pages.parts.address import Fields
from pages.parts.controls import Link, choose, derived, limits, more, numbers, presets
from pages.parts.links import drawn
from pages.parts.query import explored, others, url_values
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from visuals import units
from visuals.conv.backward.notes import most_additions
from visuals.conv.backward.scene import folds

PAGE = "conv/backward/page.py"
CHIPS = {
    "backward-stride-toy": mark("Toy, stride 2"),
    "backward-toy": mark("Toy 8×8"),
    "backward-odd": mark("odd"),
    "backward-lenet-conv1": "LeNet conv1",
    "backward-resnet50-conv1-n32": "ResNet-50 conv1",
    "backward-resnet50-res2-3x3-n32": "res2 3×3",
    "backward-resnet50-res3-3x3-n32": "res3 3×3",
    "backward-resnet50-res4-3x3-n32": "res4 3×3",
    "backward-resnet50-res5-3x3-n32": "res5 3×3",
    "backward-resnet50-res3-stride2-n32": mark("res3 3×3, stride 2"),
    "backward-vgg-conv1_2": "VGG conv1_2",
    "backward-resnext50-res2-grouped-n32": mark("ResNeXt, groups"),
    "backward-signal": mark("1-D, 64 samples"),
    "backward-signal-causal": mark("1-D, causal"),
    "backward-signal-causal-dilated": mark("1-D, causal, dilation 4"),
    "backward-toy-same-stride2": mark("Toy 8×8, zeros after"),
}
TRANSPOSE_CHIPS = {
    "transpose-toy": mark("Toy 3×3"),
    "transpose-odd": mark("odd"),
    "dcgan-conv2-n128": "DCGAN conv2",
    "unet-up4": "U-Net",
    "fcn8s-upscore": "FCN-8s",
    "transpose-signal": mark("1-D, 16 samples"),
    "transpose-signal-causal": mark("1-D, causal"),
}
LINE = ((("N", "N", 62),), *conv_controls.LINE[1:])
RARE = (*conv_controls.RARE, (("groups", mark("groups"), 90),))
OUTPUT_PAD = ((("output_pad_h", mark("out pad h"), 108), ("output_pad_w", mark("out pad w"), 111)),)
REAL = BACKWARD_PRESETS["backward-resnet50-res3-3x3-n32"].shape
REAL_STRIDED = BACKWARD_PRESETS["backward-resnet50-res3-stride2-n32"].shape
REAL_TRANSPOSED = TRANSPOSE_PRESETS["dcgan-conv2-n128"].shape


def sizes(gradient: str, selection: Selection) -> Sizes:
    """Returns how the strip names a shape, and a layer of a real network: with a stride if the shape on the stage has one."""

    def real(shape: Shape) -> Shape:
        if isinstance(shape, TransposeShape):
            return REAL_TRANSPOSED
        return REAL if shape.stride == (1, 1) else REAL_STRIDED

    at = address.ADDRESSES[gradient]
    return Sizes(name, real, at.chosen_tiles(selection), at.read({})[0].shape)


def name(s: Shape) -> str:
    """Returns a shape in a few words: a preset's label, or "1 image, 2 channels, 8×8; 2 filters 3×3"."""
    for preset in (*address.presets(FILTERS).values(), *address.presets(TRANSPOSED).values()):
        if preset.shape == s:
            return tr(preset.label)
    if not isinstance(s, TransposeShape):
        return conv_controls.name(s)
    images = trn("{n} image", "{n} images", s.N)
    channels = trn("{n} channel", "{n} channels", s.C)
    maps = trn("{n} map", "{n} maps", s.K)
    return f"{images}, {channels}, {s.H}×{s.W}; {maps} {s.P}×{s.Q}"


# -- drawing ---------------------------------------------------------------------------------------
def draw(gradient: str, fields: Fields, selection: Selection, link: Link) -> None:
    """Draws gradients, presets, extents and what is rare of a shape."""
    chips = TRANSPOSE_CHIPS if gradient == TRANSPOSED else CHIPS
    with st.container(key="chips", horizontal=True):
        _gradients(gradient, fields, selection)
        presets(link, chips, address.presets(gradient), selection.shape)
    if folds(selection.rung.name):
        every_step.toggle(PAGE, fields)
    _fields(gradient, fields, selection.shape)


def _gradients(gradient: str, fields: Fields, selection: Selection) -> None:
    """Draws the gradients as links: another one has other kernels, and its shape may have other fields."""
    kept = {name: value for name, value in others(fields).items() if name != GRADIENT}
    for other, about in address.ABOUT.items():
        label = f"**{tr(other)}**" if other == gradient else tr(other)
        params = drawn(explored(_other_fields_left_out(kept) | address.at_gradient(selection, other)), fields.by_name)
        st.page_link(PAGE, label=label, query_params=params, help=tr(about))


def _other_fields_left_out(params: Mapping[str, str]) -> dict[str, str]:
    of_any = {name for each in address.ADDRESSES.values() for name in each.shape}
    return {name: value for name, value in params.items() if name not in of_any}


def _fields(gradient: str, fields: Fields, shape: Shape) -> None:
    bounds = address.bounds(shape)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with more(_more_label(shape), fields, (*OUTPUT_PAD, *RARE) if gradient == TRANSPOSED else RARE, bounds):
            if gradient == TRANSPOSED:
                st.caption(tr("Several output sizes fit a stride. The output pad chooses one of them."))
                st.caption(tr("At the end of the output, pad + “after” elements are cut off."))
            else:
                st.caption(tr(conv_controls.PADDING_AFTER))
                choose(fields, "mode")
                st.caption(tr("The mode “convolution” flips the filter in both axes in the forward pass."))
        derived(_derived(gradient, shape))
    limits({"groups": shape.groups, **EXTRA_SINCE, **shape.params()}, bounds)


def _more_label(shape: Shape) -> str:
    """Returns the settings in the popover that differ from their defaults."""
    parts = conv_controls.padding_after(shape)
    if isinstance(shape, TransposeShape) and (shape.output_pad_h or shape.output_pad_w):
        parts.append(tr("output pad {rows}×{columns}", rows=shape.output_pad_h, columns=shape.output_pad_w))
    if (shape.dilation_h, shape.dilation_w) != (1, 1):
        parts.append(tr("dilation {rows}×{columns}", rows=shape.dilation_h, columns=shape.dilation_w))
    if shape.groups > 1:
        parts.append(trn("{n} group", "{n} groups", shape.groups))
    if url_values().get("mode") == "convolution" and not isinstance(shape, TransposeShape):
        parts.append(tr("filter flipped"))
    return ", ".join(parts)


def _derived(gradient: str, s: Shape) -> str:
    """Returns HTML: the output's size, and what the work of this gradient grows with."""
    conv = s.conv if isinstance(s, TransposeShape) else s
    output = tr("output <b>{rows}×{columns}</b>", rows=s.P, columns=s.Q)
    if gradient == FILTERS:
        sums = decimal(f"{conv.N * conv.PQ:,}")
        return " · ".join((output, tr("sums of <b>{n}</b> products", n=sums), *conv_controls.causal(conv)))
    work = tr("<b>{n}</b> multiply-adds", n=units.count(conv.macs))
    most = most_additions(conv)
    if gradient == TRANSPOSED:
        return f"{output} · {work} · " + tr("up to <b>{n}</b> input pixels per output", n=most)
    fed = tr("up to <b>{n}</b> outputs fed by a pixel", n=most)
    return " · ".join((output, work, fed, *conv_controls.causal(conv)))
