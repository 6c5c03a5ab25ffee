"""Captions of the steps and cells of direct convolution: templates, filled by visuals/conv/direct/scene.py."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from visuals.conv.part import Part


def templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the templates TERM, ZERO, STORE, PIXEL. {0} k, {1} p, {2} q, {3} c, {4} r, {5} s, {6} h, {7} w, {8}
    address, {9} pixel, {10} tap, {11} product, {12} sum, {13} thread, {14} pixels inside, {15} outside, {16}
    {17} where the window begins."""
    indices = f"c = {{3}}, r = {{4}}, s = {{5}}: {_index_formula(s)}. "
    remainder = (
        f" with the {s.C - part.C:,} channels that are not shown, the [sum](output) is {{12}}"
        if part.C < s.C
        else ""
    )
    window = "Thread {13}: k = {0}, p = {1}, q = {2}. " + (
        "Its window begins at row {16}, column {17} of the [input](input)" + _gaps(s)
    )
    return (
        indices + "The [pixel](input) at address {8} is {9}, its [tap](filter) {10}; the product {11} makes the [sum](output) {12}.",
        indices + "That is in the padding: a zero that nobody reads. The [sum](output) stays {12}.",
        "The loops over c, r and s have ended" + ("; " + remainder.strip() if remainder else "")
        + ". Thread {13} stores its [sum](output), {12}, in y[0, {0}, {1}, {2}]. The other pixels have threads of their own.",
        window + ": {14} [pixels](input)" + ("" if not (s.pad_h or s.pad_w) else " inside, {15} zeros of the padding")
        + ", each times its [tap](filter)." + (f" Together{remainder}." if remainder else " Their [sum](output) is {12}."),
    )  # fmt: skip


def _index_formula(s: ConvShape) -> str:
    """Returns the address arithmetic of conv.cuh with the numbers of this shape."""
    r = f"({s.R - 1} − {{4}})" if s.flip else "{4}"
    t = f"({s.S - 1} − {{5}})" if s.flip else "{5}"
    return (
        f"h = {{1}}·{s.u} − {s.pad_h} + {r}·{s.dilation_h} = {{6}}, "
        f"w = {{2}}·{s.v} − {s.pad_w} + {t}·{s.dilation_w} = {{7}}"
    )


def _gaps(s: ConvShape) -> str:
    return f", its pixels {s.dilation_h} × {s.dilation_w} apart" if s.dilation != (1, 1) else ""


def pixel_templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the templates of a pixel. {0} address in one image, {1} windows of the part that contain it, {2}
    threads that read it."""
    address = "Its address is {0}."
    per_filter = f", once for each of {s.K:,} filters" if s.K > 1 else ""
    scope = "" if (part.P, part.Q) == (s.P, s.Q) else " of the part shown"
    return (
        address + f" It lies in the receptive field of no [output](output) pixel{scope}: it is never read.",
        address
        + f" It lies in the receptive field of 1 [output](output) pixel{scope}: {{2}} threads read it{per_filter}.",
        address
        + f" It lies in the receptive fields of {{1}} [output](output) pixels{scope}: {{2}} threads read it{per_filter}.",
    )


def tap_templates(s: ConvShape, part: Part) -> tuple[str, ...]:
    """Returns the template of a tap. {0} k, {1} c, {2} r, {3} s, {4} address, {5} pixels that it is multiplied
    by."""
    flip_note = (
        f" The filter is flipped: it meets row {s.R - 1} − {{2}}, column {s.S - 1} − {{3}} of each window."
        if s.flip
        else ""
    )
    scope = "" if (part.P, part.Q) == (s.P, s.Q) else " of the part shown"
    return (
        f"Filter {{0}}, channel {{1}}, tap ({{2}}, {{3}}), address {{4}}.{flip_note} It is multiplied by the {{5}} outlined "
        f"[pixels](input){scope}, each for another output.",
    )
