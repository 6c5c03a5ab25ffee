"""Captions of the steps and cells of implicit GEMM: templates and the numbers that fill them."""

from __future__ import annotations

import math

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr, trn
from kernels.model.fast_division import Magic, magic
from visuals import units
from visuals.conv.implicit.plan import RUNGS, Plan

(
    START,
    FETCH_A,
    FETCH_A_ZEROS,
    FETCH_B,
    FETCH_B_LATER,
    MULTIPLY,
    MULTIPLY_ONE,
    MULTIPLY_LAST,
    REMAINING,
    STORE,
    OTHER_BLOCKS,
    WAIT,
    COMPLETE_FIRST,
    COMPLETE,
) = range(14)
MARK_INDEX = (0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 5, 6, 7, 7)  # index into Plan.marks, by kind of step


def templates(plan: Plan) -> tuple[str, ...]:
    """Returns the template of each kind of step."""
    filters = tr(
        "Tile {0} of {1}: the threads start to copy columns {3} to {4} of the [filters](filter) into buffer {2} of shared "
        "memory. Values: {5}. The copy is transposed."
    )
    pixels = tr(
        "Tile {0} of {1}: the threads start to copy rows {3} to {4} of the [data matrix](workspace) into buffer {2}. "
        "Row {3} is tap c = {5}, r = {6}, s = {7}. [Pixels](input) copied directly from the input: {8}. Zeros: {9}."
    )
    product = tr(
        "Iteration {0}: tile {0} is in buffer {1}. Each thread adds {depth} products to each of its {sums} [sums](output). "
        "That is {multiply_adds} multiply-adds for {reads} values read from shared memory.",
        depth=plan.BK,
        sums=plan.TM * plan.TN,
        multiply_adds=decimal(f"{plan.TM * plan.TN * plan.BK:,}"),
        reads=decimal(f"{(plan.TM + plan.TN) * plan.BK:,}"),
    )
    return (
        _start(plan),
        filters,
        " ".join((filters, tr("The {6} elements outside the [filters](filter) become zero."))),
        pixels,
        " ".join((pixels, tr("Iteration {10} does not wait for this copy."))),
        " ".join((product, tr("Meanwhile, tiles {2} to {3} are being copied."))),
        " ".join((product, tr("Meanwhile, tile {2} is being copied."))),
        " ".join((product, tr("No other tile is being copied."))),
        tr(
            "The loop runs {0} more iterations, up to row {1} of the [data matrix](workspace). They are shown as one step."
        ),
        trn(
            "The block stores its {n} [sum](output) in the [output](output). "
            "The [data matrix](workspace) was never in global memory.",
            "The block stores its {n} [sums](output) in the [output](output). "
            "The [data matrix](workspace) was never in global memory.",
            math.prod(plan.inside),
        ),
        trn(
            "The other block computes its tile in the same way. The [output](output) is complete.",
            "The other {n} blocks compute their tiles in the same way. The [output](output) is complete.",
            math.prod(plan.blocks) - 1,
        ),
        *_syncs(),
    )


def _syncs() -> tuple[str, ...]:
    """Returns the templates of WAIT, COMPLETE_FIRST and COMPLETE."""
    complete = tr("Barrier: every thread of the block waits until all copies of tile {0} are complete.")
    return (
        tr("Each thread waits until its own copies of tile {0} have arrived in shared memory."),
        " ".join((complete, tr("A thread reads values that other threads have copied."))),
        " ".join((complete, tr("All threads have then also read tile {1}. Its buffer may be overwritten."))),
    )


def _start(plan: Plan) -> str:
    """Returns the template of the step that finds the windows."""
    sentences = [
        tr("Block 0 computes the [output](output) of filters 0 to {0}, columns 0 to {1}."),
        _outside(plan),
        trn(
            "Each thread finds the window of its {n} column of the [data matrix](workspace) once.",
            "Each thread finds the windows of its {n} columns of the [data matrix](workspace) once.",
            plan.BN // 32,
        ),
        tr("This takes two divisions per column."),
    ]
    return " ".join(filter(None, sentences))


def _outside(plan: Plan) -> str:
    """Returns a sentence on the share of the block's tile that is outside the output; "" if none is."""
    share = 1 - math.prod(plan.inside) / (plan.BM * plan.BN)
    if not share:
        return ""
    return tr(
        "{share} of its {rows} × {columns} sums are outside the [output](output): they are computed but not stored.",
        share=units.share(share),
        rows=plan.BM,
        columns=plan.BN,
    )


def x_note(s: ConvShape, box: tuple[int, ...]) -> str:
    """Returns the size of the input, or the part of it that is shown."""
    images, channels, h0, H, w0, W = box
    size = f"{s.H:,} × {s.W:,}"
    if (images, channels, H, W) == (s.N, s.C, s.H, s.W):
        notes = [trn("{n} channel of {size}", "{n} channels of {size}", s.C, size=size)]
        if s.N > 1:
            notes.append(trn("{n} image", "{n} images", s.N))
        return ", ".join(notes)
    notes = [
        tr("rows {first}–{last}", first=h0, last=h0 + H - 1),
        tr("columns {first}–{last} of {size}", first=w0, last=w0 + W - 1, size=size),
        tr("channels 0–{last} of {n}", last=channels - 1, n=s.C),
    ]
    if s.N > 1:
        notes.append(tr("images 0–{last} of {n}", last=images - 1, n=s.N))
    return ", ".join(notes)


# -- annotations of cells --------------------------------------------------------------------------
def _high_half(by: Magic, n: np.ndarray) -> np.ndarray:
    """Returns the upper half of 2n times the multiplier. The kernel then shifts it."""
    return (((n.astype(np.uint64) << np.uint64(1)) * np.uint64(by.multiplier)) >> np.uint64(32)).astype(np.int64)


def row_numbers(plan: Plan) -> np.ndarray:
    """Returns int64[C*R*S, 18]: what the row of a cell adds to each number of `cell_templates`."""
    s, k = plan.s, np.arange(plan.s.CRS)
    c, r, t, h, w, offset = plan.taps.T
    tap = k - c * s.R * s.S
    out = np.zeros((len(k), 18), int)
    out[:, :7] = np.stack([k, _high_half(magic(s.R * s.S), k), c, tap, _high_half(magic(s.S), tap), r, t], axis=1)
    out[:, 15:] = np.stack([h, w, offset], axis=1)
    return out


def column_numbers(plan: Plan) -> np.ndarray:
    """Returns int64[columns shown, 18]: what the column of a cell adds."""
    s, j = plan.s, np.arange(plan.columns_shown)
    n, p, q, h, w, offset = plan.windows.T
    pixel = j - n * s.PQ
    out = np.zeros((len(j), 18), int)
    columns = [j, _high_half(magic(s.PQ), j), n, pixel, _high_half(magic(s.Q), pixel), p, q]
    out[:, 7:14] = np.stack(columns, axis=1)
    out[:, 15:] = np.stack([h, w, offset], axis=1)
    return out


def cell_templates(plan: Plan) -> tuple[str, ...]:
    """Returns the templates of a cell in the input and of one in the padding. {0} row, {1} upper half for R*S,
    {2} c, {3} tap, {4} upper half for S, {5} r, {6} s; {7} column, {8} upper half for P*Q, {9} n, {10} pixel,
    {11} upper half for Q, {12} p, {13} q; {15} h, {16} w, {17} address."""
    s = plan.s
    r, t = (f"({s.R - 1} − {{5}})", f"({s.S - 1} − {{6}})") if s.flip else ("{5}", "{6}")
    indices = (
        tr(
            "[\nRow {0}](workspace): c = {0} / {area} = {2}, remainder {3}; r = {3} / {width} = {5}, s = {6}.",
            area=s.R * s.S,
            width=s.S,
        )
        + tr(
            "[\nColumn {7}](workspace): n = {7} / {area} = {9}, remainder {10}; p = {10} / {width} = {12}, q = {13}.",
            area=s.PQ,
            width=s.Q,
        )
        + f"[\nh](input) = {{12}}·{s.u} − {s.pad_h} + {r}·{s.dilation_h} = {{15}}, "
        f"[w](input) = {{13}}·{s.v} − {s.pad_w} + {t}·{s.dilation_w} = {{16}}. "
    )
    divided = "" if plan.rung == RUNGS[0] else _divided(s)
    padding = tr("This position is in the padding. Its value is zero and is not loaded.")
    address = tr(
        "The address is (({9}·{channels} + {2})·{rows} + {15})·{columns} + {16} = {17}.",
        channels=s.C,
        rows=s.H,
        columns=s.W,
    )
    return (f"{indices}{address}{divided}", f"{indices}{padding}{divided}")


def _divided(s: ConvShape) -> str:
    """Returns the kernel's division: the upper half of a product, shifted."""
    columns = []
    for divisor, n, high, result in ((s.R * s.S, 0, 1, 2), (s.S, 3, 4, 5), (s.PQ, 7, 8, 9), (s.Q, 10, 11, 12)):
        m = magic(divisor)
        columns.append(f"/ {divisor}: 2·{{{n}}}·{m.multiplier} >> 32 = {{{high}}}, >> {m.shift} = {{{result}}}")
    return tr("[\nDivisions](output) as computed in the kernel: {divisions}.", divisions="; ".join(columns))


def output_templates(s: ConvShape) -> tuple[str, ...]:
    return (tr("Filter {0}, image {9}, row {12}, column {13}."),)
