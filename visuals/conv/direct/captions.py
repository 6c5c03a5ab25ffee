"""Captions of the steps and cells of direct convolution: templates, filled by visuals/conv/direct/scene.py."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr, trn
from visuals.conv.part import Part

ONE_ZERO, ZEROS = 1, 2  # added to PIXEL if one, or more, of the values of the window are zeros of the padding


def templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the templates TERM, ZERO, STORE, PIXEL, PIXEL + ONE_ZERO, PIXEL + ZEROS. {0} k, {1} p, {2} q, {3} c,
    {4} r, {5} s, {6} h, {7} w, {8} address, {9} pixel, {10} tap, {11} product, {12} sum, {13} thread, {14} pixels
    inside, {15} outside, {16} {17} where the window begins."""
    position = _index_formula(s)
    window = " ".join(
        filter(
            None,
            (
                tr("Thread {13}: k = {0}, p = {1}, q = {2}."),
                tr("Its window starts at row {16}, column {17} of the [input](input)."),
                _gaps(s),
                _products(s, part),
            ),
        )
    )
    total = " ".join(filter(None, (tr("The [sum](output) is {12}."), _hidden_channels(s, part))))
    return (
        tr(
            "c = {3}, r = {4}, s = {5}: {position}. The [pixel](input) at address {8} is {9}. Its [tap](filter) is {10}. "
            "Adding the product {11} makes the [sum](output) {12}.",
            position=position,
        ),
        tr(
            "c = {3}, r = {4}, s = {5}: {position}. This position is in the padding. Its value is zero and is not loaded. "
            "The [sum](output) stays {12}.",
            position=position,
        ),
        " ".join(
            filter(
                None,
                (
                    tr("The loops over c, r and s are complete."),
                    _hidden_channels(s, part),
                    tr("Thread {13} stores its [sum](output), {12}, in y[0, {0}, {1}, {2}]."),
                    tr("Every other output pixel has its own thread."),
                ),
            )
        ),
        f"{window} {total}",
        " ".join((window, tr("1 of these values is a zero of the padding."), total)),
        " ".join((window, tr("{15} of these values are zeros of the padding."), total)),
    )


def folded() -> str:
    """Returns the template of many products that are one step: the first and the last one, from 1, and the sum."""
    return tr(
        "Products {0} to {1}: each [pixel](input) of the window is multiplied by its [tap](filter) and added in the same way. "
        "The [sum](output) is now {2}."
    )


def _products(s: ConvShape, part: Part) -> str:
    """Returns a sentence on the products of one thread, in the channels shown."""
    terms = part.C * s.R * s.S
    if part.C < s.C:
        return tr(
            "In the {channels} channels shown, the thread multiplies {n} values of the window by their [taps](filter).",
            channels=part.C,
            n=terms,
        )
    return trn(
        "The thread multiplies {n} value of the window by its [tap](filter).",
        "The thread multiplies {n} values of the window by their [taps](filter).",
        terms,
    )


def _hidden_channels(s: ConvShape, part: Part) -> str:
    if part.C == s.C:
        return ""
    return trn(
        "The [sum](output) includes {n} channel that is not shown.",
        "The [sum](output) includes {n} channels that are not shown.",
        s.C - part.C,
    )


def _index_formula(s: ConvShape) -> str:
    """Returns the address arithmetic of conv.cuh with the numbers of this shape."""
    r = f"({s.R - 1} − {{4}})" if s.flip else "{4}"
    t = f"({s.S - 1} − {{5}})" if s.flip else "{5}"
    return (
        f"h = {{1}}·{s.u} − {s.pad_h} + {r}·{s.dilation_h} = {{6}}, "
        f"w = {{2}}·{s.v} − {s.pad_w} + {t}·{s.dilation_w} = {{7}}"
    )


def _gaps(s: ConvShape) -> str:
    if s.dilation == (1, 1):
        return ""
    return tr("Dilation sets its taps {rows} × {columns} pixels apart.", rows=s.dilation_h, columns=s.dilation_w)


def pixel_templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the templates of a pixel in no window, in one, in more. {0} address in one image, {1} windows of the
    part that contain it, {2} threads that read it."""
    address = tr("Its address is {0}.")
    if s.K > 1:
        filters = decimal(f"{s.K:,}")
        one = tr("It is in 1 window. {2} threads load it: 1 window × {filters} filters.", filters=filters)
        more = tr("It is in {1} windows. {2} threads load it: {1} windows × {filters} filters.", filters=filters)
    else:
        one = tr("It is in 1 window. 1 thread loads it.")
        more = tr("It is in {1} windows. {2} threads load it, one per window.")
    none = tr("It is in no window. No thread loads it.")
    return tuple(" ".join(filter(None, (address, text, _scope(s, part)))) for text in (none, one, more))


def _scope(s: ConvShape, part: Part) -> str:
    if (part.P, part.Q) == (s.P, s.Q):
        return ""
    return tr("Only the [outputs](output) shown are counted.")


def tap_templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the templates of a tap that is multiplied by no pixel, one, more. {0} k, {1} c, {2} r, {3} s, {4}
    address, {5} pixels that it is multiplied by."""
    name = tr("Filter {0}, channel {1}, tap ({2}, {3}), address {4}.")
    flip = ""
    if s.flip:
        flip = tr(
            "The filter is flipped: this tap multiplies row {last_row} − {2}, column {last_column} − {3} of each window.",
            last_row=s.R - 1,
            last_column=s.S - 1,
        )
    products = (
        tr("It multiplies only zeros of the padding."),
        tr("It multiplies the outlined [pixel](input)."),
        tr("It multiplies the {5} outlined [pixels](input), one per [output](output)."),
    )
    return tuple(" ".join(filter(None, (name, flip, text, _scope(s, part)))) for text in products)
