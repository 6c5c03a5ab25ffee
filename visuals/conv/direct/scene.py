"""Direct convolution as a scene: the window of an output pixel slides over the padded input. Each product of a
pixel and a tap is added to one sum.

The index map is the kernel's (kernels/conv/cuda/01_direct.cu and conv.cuh): tap (c, r, s) of output pixel (p, q)
is multiplied by x[c, p*u - pad_h + r*dilation_h, q*v - pad_w + s*dilation_w]. r and s are counted from the far
end if the filter is flipped. The first output pixel takes one step per term, in the order of the innermost loops.
Each other one takes one step.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from visuals.conv.direct import captions
from visuals.conv.part import Part, gather_index, part_of
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Annotation, Captions, Group, Reading, Sum, Tensor, Write
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

FILE = "conv/01_direct.cu"
MARKS = ("channel_sum += input_pixel(", "output[(size_t)")
TERM, ZERO, STORE, PIXEL = range(4)  # what a step does; captions.py has its templates
MARK_INDEX = (0, 0, 1, 0)
MANY_TERMS = 12  # of a sum: 3 x 3 taps of one channel are fewer
SUM_ARGUMENT = 12  # which number of a caption is the sum
MAX_PIXELS, MAX_TERMS = 1_024, 5_000  # steps of one output pixel each, and all their products

ORDER = mark("explaining order")
ORDER_NOTE = mark(
    "The steps show one thread after another. The first thread takes one step per product. On the GPU all threads of "
    "a block run at the same time. The 32 threads of a warp execute each instruction together."
)


def part_shown(s: ConvShape, picture: np.ndarray | None = None) -> Part:
    """Returns the part that im2col shows, with fewer filters if there would be too many steps."""
    part = part_of(s, picture, MAX_TERMS)
    pixels, terms = part.P * part.Q, part.C * s.R * s.S
    max_filters = max(1, min(MAX_PIXELS // pixels, MAX_TERMS // (pixels * terms)))
    return dataclasses.replace(part, K=min(part.K, max_filters))


def direct_scene(
    s: ConvShape, part: Part, x: np.ndarray, w: np.ndarray, y: np.ndarray, block: int | None = None
) -> Scene:
    """Returns the scene of image 0. float32: x [N,C,H,W], w [K,C,R,S] (the first part.C channels and part.K
    filters are enough), y [part.K, part.P, part.Q]: the kernel's output for the part. `block`: BLOCK, the default if
    None."""
    steps = DirectSteps(s, part, x, w, y)
    kind = steps.kind
    rung = find("conv/direct")
    launch = rung.build(s, rung.default_tiles | ({"BLOCK": block} if block else {})).launch()
    return Scene(
        key=f"direct {part.p},{part.q},{part.K} " + ",".join(f"{k}={v}" for k, v in s.params().items()),
        title=tr("direct"),
        tensors=(
            *tensors(s, part, steps.x, steps.w),
            Tensor("win", "pixel", tr("pixels"), "input", part.C, s.R, s.S),
            Tensor("tap", "tap", tr("taps"), "filter", part.C, s.R, s.S),
            Tensor("prod", "product", tr("products"), "output", part.C, s.R, s.S, note=tr("pixel × tap")),
            Tensor("sum", "sum", tr("sum"), "output", 1, 1, 1),
        ),
        groups=(
            Group((("x", "w", "y"),)),
            Group((("win", "tap", "prod", "sum"),), "registers", tr("registers of one thread")),
        ),
        steps=len(kind),
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=steps.writes(),
        sums=(output_sum(s, part, steps.index),),
        annotations=annotations_of(s, part, steps.index),
        readings=steps.readings(),
        captions=Captions(captions.templates(s, part), steps.caption_kind(), steps.args()),
        source=source_of(FILE, MARKS, np.array(MARK_INDEX)[kind], detail=resources(launch)),
    )


def folded_scene(scene: Scene) -> Scene:
    """Returns a direct_scene whose products of the first pixel are one step, except the first, second and last, if they are
    many."""
    kind = np.asarray(scene.captions.kind)
    if int(np.argmax(kind == STORE)) <= MANY_TERMS:
        return scene
    runs = repeats(np.where(kind <= ZERO, TERM, kind), (TERM,))
    sums = {run: scene.captions.args[run[1]][SUM_ARGUMENT] for run in runs}
    brief = folded(scene, runs, captions.folded(), lambda run: (run[0] + 1, run[1] + 1, sums[run]))
    return dataclasses.replace(brief, key=f"{scene.key} folded")


class DirectSteps:
    """The steps. Each has its `kind`, its output `pixel` (flat in the part's [K, P, Q]) and its `term`, -1 if all
    terms of the pixel are one step."""

    def __init__(self, s: ConvShape, part: Part, x: np.ndarray, w: np.ndarray, y: np.ndarray):
        self.s, self.part = s, part
        self.index = gather_index(s, part)  # [terms, P*Q]
        rows, cols = slice(part.h, part.h + part.H), slice(part.w, part.w + part.W)
        self.x = np.ascontiguousarray(x[0, : part.C, rows, cols], np.float32).ravel()
        self.w = np.ascontiguousarray(w[: part.K, : part.C], np.float32)
        self.y = np.asarray(y, np.float32).ravel()
        terms, pixels = self.index.shape
        self.terms = terms
        inside = self.index[:, 0] >= 0
        later_pixels = np.arange(1, part.K * pixels)
        self.kind = np.concatenate([np.where(inside, TERM, ZERO), [STORE], np.full(len(later_pixels), PIXEL)])
        self.pixel = np.concatenate([np.zeros(terms + 1, int), later_pixels])
        self.term = np.concatenate([np.arange(terms), np.full(1 + len(later_pixels), -1)])
        k, output = np.divmod(np.arange(part.K * pixels), pixels)
        pixel = np.append(self.x, np.float32(0))[self.index.T]
        taps = self.w.reshape(part.K, terms)
        self.products = (pixel[output] * taps[k]).astype(np.float32)  # [K*P*Q, terms]

    def _product_order(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (step, pixel, term) of every product, in order. Each product of the first pixel has its own
        step."""
        whole_pixels = np.flatnonzero(self.kind == PIXEL)
        step = np.concatenate([np.arange(self.terms), np.repeat(whole_pixels, self.terms)])
        pixel = np.repeat(np.arange(len(whole_pixels) + 1), self.terms)
        return step, pixel, np.tile(np.arange(self.terms), len(whole_pixels) + 1)

    def partial(self) -> np.ndarray:
        """Returns float32[terms]: the sum of the first pixel after each term. It is added in the kernel's order,
        with one sum per channel."""
        by_channel = self.products[0].reshape(self.part.C, -1)  # [C, R*S]
        within = np.cumsum(by_channel, axis=1)
        before = np.cumsum(np.append(np.float32(0), within[:-1, -1]))
        return (before[:, None] + within).ravel()

    def writes(self) -> tuple[Write, ...]:
        step, pixel, term = self._product_order()
        pixels = self.index.shape[1]
        done = np.flatnonzero(self.kind >= STORE)
        sums = np.concatenate([self.partial(), self.y])
        return (
            Write("win", step, source="x", index=self.index[term, pixel % pixels], cells=term),
            Write("tap", step, source="w", index=pixel // pixels * self.terms + term, cells=term),
            Write("prod", step, self.products[pixel, term], cells=term),
            Write("sum", np.arange(len(self.kind)), sums, cells=np.zeros(len(sums), int)),
            Write("y", done, self.y, cells=self.pixel[done]),
        )

    def loops(self) -> np.ndarray:
        """Returns int64[steps, 7]: n, k, p, q, c, r, s. If all iterations of a loop are one step, the values are
        those of the last iteration."""
        s, part = self.s, self.part
        k, output = np.divmod(self.pixel, part.P * part.Q)
        last = np.where(self.term < 0, self.terms - 1, self.term)
        c, tap = np.divmod(last, s.R * s.S)
        return np.stack(
            [0 * k, k, part.p + output // part.Q, part.q + output % part.Q, c, tap // s.S, tap % s.S], axis=1
        )

    def readings(self) -> tuple[Reading, ...]:
        names = [Reading(name, values) for name, values in zip("nkpqcrs", self.loops().T, strict=True)]
        inside = (self.index >= 0).sum(axis=0)[self.pixel % self.index.shape[1]]
        is_single_term = self.kind <= ZERO
        read = np.where(is_single_term, self.kind == TERM, inside * (self.kind == PIXEL))
        added = np.where(is_single_term, 1, self.terms * (self.kind == PIXEL))
        return (
            *names,
            Reading(tr("pixels loaded"), np.cumsum(read), "predicted"),
            Reading(tr("multiply-adds"), np.cumsum(added), "predicted"),
        )

    def caption_kind(self) -> np.ndarray:
        """Returns int64[steps]: the caption template of each step. A window over the padding has its own."""
        zeros = (self.index < 0).sum(axis=0)[self.pixel % self.index.shape[1]]
        return self.kind + (self.kind == PIXEL) * np.minimum(zeros, captions.ZEROS)

    def args(self) -> np.ndarray:
        """Returns float64[steps, n]: the numbers that fill the caption templates."""
        s, part = self.s, self.part
        _, k, p, q, c, r, t = self.loops().T
        down, right = (s.R - 1 - r, s.S - 1 - t) if s.flip else (r, t)
        h, w = p * s.u - s.pad_h + down * s.dilation_h, q * s.v - s.pad_w + right * s.dilation_w
        output = self.pixel % (part.P * part.Q)
        inside = (self.index >= 0).sum(axis=0)[output]
        term = np.where(self.term < 0, 0, self.term)
        pixel = np.append(self.x, np.float32(0))[self.index[term, output]]
        tap = self.w.reshape(part.K, -1)[k, term]
        sums = np.concatenate([self.partial(), self.y])
        thread = (k * s.P + p) * s.Q + q
        columns = (
            k,
            p,
            q,
            c,
            r,
            t,
            h,
            w,
            (c * s.H + h) * s.W + w,
            pixel,
            tap,
            self.products[self.pixel, term],
            sums,
            thread,
            inside,
            self.terms - inside,
            p * s.u - s.pad_h,
            q * s.v - s.pad_w,
        )
        return np.stack([np.asarray(column, float) for column in columns], axis=1)


def tensors(s: ConvShape, part: Part, x: np.ndarray, w: np.ndarray) -> tuple[Tensor, ...]:
    """Returns the visible parts of input, filters and output in global memory."""
    pad = (
        s.pad_h * (part.h == 0),
        s.pad_w * (part.w == 0),
        s.after[0] * (part.h + part.H == s.H),
        s.after[1] * (part.w + part.W == s.W),
    )
    first = (0, part.h, part.w), (0, part.p, part.q)
    return (
        Tensor("x", "x", tr("input"), "input", part.C, part.H, part.W, x.ravel(), first[0], plane_name=tr("channel"), pad=pad,
               note=part_note((0, part.C, s.C), (part.h, part.H, s.H), (part.w, part.W, s.W), plane="channel")),
        Tensor("w", "w", tr("filters"), "filter", part.K * part.C, s.R, s.S, w.ravel(), plane_name=tr("map"),
               note=_taps_note(s, part)),
        Tensor("y", "y", tr("output"), "output", part.K, part.P, part.Q, None, first[1], plane_name=tr("filter"),
               note=part_note((0, part.K, s.K), (part.p, part.P, s.P), (part.q, part.Q, s.Q), plane="plane")),
    )  # fmt: skip


def _taps_note(s: ConvShape, part: Part) -> str:
    filters, channels = decimal(f"{s.K:,}"), decimal(f"{s.C:,}")
    if (part.K, part.C) == (s.K, s.C):
        if s.C > 1:
            return f"{filters} × {channels} × {s.R} × {s.S}"
        return tr("{n} of {rows} × {columns}", n=filters, rows=s.R, columns=s.S)
    shown = [tr("filters 0–{last} of {n}", last=part.K - 1, n=filters)]
    if s.C > 1:
        shown.append(tr("channels 0–{last} of {n}", last=part.C - 1, n=channels))
    return ", ".join([*shown, f"{s.R} × {s.S}"])


# -- annotations of cells --------------------------------------------------------------------------
def output_sum(s: ConvShape, part: Part, index: np.ndarray) -> Sum:
    """Returns y as the sum over its receptive field: the terms whose pixel lies in the input."""
    terms = len(index)
    inside = (index >= 0).T  # [P*Q, terms]
    output, term = np.nonzero(inside)
    k = np.repeat(np.arange(part.K), len(output))
    start = np.concatenate([[0], np.cumsum(np.tile(inside.sum(axis=1), part.K))])
    return Sum(
        "y",
        "x",
        start,
        np.tile(index.T[inside], part.K),
        k * terms + np.tile(term, part.K),
        left="w",
        rest=tr("channels") if part.C < s.C else "",
    )


def annotations_of(s: ConvShape, part: Part, index: np.ndarray) -> tuple[Annotation, ...]:
    """Returns, for each pixel, how many threads read it; for each tap, the pixels that it is multiplied by."""
    terms = len(index)
    cells = part.C * part.H * part.W
    term, output = np.nonzero(index >= 0)
    pixel = index[term, output]
    fields = np.bincount(pixel, minlength=cells)
    c, h, w = np.unravel_index(np.arange(cells), (part.C, part.H, part.W))
    address = (c * s.H + part.h + h) * s.W + part.w + w
    k, c, r, t = np.unravel_index(np.arange(part.K * terms), (part.K, part.C, s.R, s.S))
    taps = np.stack(
        [k, c, r, t, (k * s.C + c) * s.R * s.S + r * s.S + t, np.tile(np.bincount(term, minlength=terms), part.K)],
        axis=1,
    )
    links = np.tile(_padded_lists(term, pixel, terms), (part.K, 1))
    pixels = np.stack([address, fields, fields * s.K], axis=1)
    return (
        Annotation("x", Captions(captions.pixel_templates(s, part), np.minimum(fields, 2), pixels)),
        Annotation("w", Captions(captions.tap_templates(s, part), np.minimum(taps[:, 5], 2), taps), {"x": links}),
    )


def _padded_lists(key: np.ndarray, value: np.ndarray, keys: int) -> np.ndarray:
    """Returns int64[keys, n]: the values that belong to each key, padded with -1."""
    count = np.bincount(key, minlength=keys)
    out = np.full((keys, max(1, int(count.max(initial=0)))), -1)
    order = np.argsort(key, kind="stable")
    position = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
    out[key[order], position] = value[order]
    return out
