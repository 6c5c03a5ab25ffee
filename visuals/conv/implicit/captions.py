"""Captions of the steps and cells of implicit GEMM: templates and the numbers that fill them."""

from __future__ import annotations

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.model.fast_division import Magic, magic
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
) = range(11)
MARK_INDEX = (0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 5)  # index into Plan.marks, by kind of step
W, X, D, Y = "[filters](filter)", "[pixels](input)", "[data matrix](workspace)", "[output](output)"


def templates(plan: Plan) -> tuple[str, ...]:
    copy = (
        f"Tile {{0}} of {{1}}: rows {{3}} to {{4}} of the {D} are made in stage {{2}}. Row {{3}} is tap c = {{5}}, r = {{6}}, "
        f"s = {{7}}. {{8}} {X} are copied from where they lie, {{9}} are zeros."
    )
    filters = f"Tile {{0}} of {{1}}: columns {{3}} to {{4}} of the {W} are on their way to stage {{2}} of shared memory, {{5}} values, turned"
    done = (
        f"Turn {{0}}: tile {{0}} has arrived in stage {{1}}. Each thread adds its {plan.BK} products to each of its "
        f"{plan.TM * plan.TN} [sums](output): {plan.TM * plan.TN * plan.BK} multiply-adds for {(plan.TM + plan.TN) * plan.BK} "
        "reads of shared memory. "
    )
    return (
        f"Block 0 of {{2}} computes {Y} of filters 0 to {{0}}, columns 0 to {{1}}. {_outside(plan)}Each thread finds the windows of "
        f"its {plan.BN // 32} columns of the {D} once, by two divisions each, and keeps them.",
        filters + ".",
        filters + "; {6} places of the tile lie outside and become zeros.",
        copy,
        copy + " Turn {10} does not wait for them.",
        done + "Meanwhile the copies of tiles {2} to {3} are on their way.",
        done + "Meanwhile the copies of tile {2} are on their way.",
        done + "Nothing is on its way any more.",
        f"The loop goes on in the same way for {{0}} more turns, to row {{1}} of the {D}: not shown one by one.",
        f"The block stores its {{0}} [sums](output) that lie in the {Y}. Of the {D} nothing is left: it never was in memory.",
        f"The other {{0}} blocks did the same at the same time, on other SMs: the {Y} is whole.",
    )  # fmt: skip


def _outside(plan: Plan) -> str:
    """Returns a sentence on the share of the block's tile that lies outside; "" if none does."""
    rows, cols = plan.inside
    part = 1 - rows * cols / (plan.BM * plan.BN)
    if not part:
        return ""
    return f"Of its tile of {plan.BM} × {plan.BN} sums {max(part, 0.01):.0%} lie outside: they are computed and not stored. "


def x_note(s: ConvShape, box: tuple[int, ...]) -> str:
    images, channels, h0, H, w0, W = box
    whole = (s.N, s.C, s.H, s.W)
    if (images, channels, H, W) == whole:
        return f"{s.C} channel{'s' * (s.C > 1)} of {s.H} × {s.W}" + (f", {s.N} images" if s.N > 1 else "")
    part = f"rows {h0}–{h0 + H - 1}, columns {w0}–{w0 + W - 1} of {s.H} × {s.W}, channels 0–{channels - 1} of {s.C}"
    return part + (f", images 0–{images - 1} of {s.N}" if s.N > 1 else "")


# -- annotations of cells --------------------------------------------------------------------------
def _high_half(by: Magic, n: np.ndarray) -> np.ndarray:
    """Returns the upper half of 2n times the multiplier. The kernel then shifts it."""
    return (((n.astype(np.uint64) << np.uint64(1)) * np.uint64(by.multiplier)) >> np.uint64(32)).astype(
        np.int64
    )


def row_numbers(plan: Plan) -> np.ndarray:
    """Returns int64[C*R*S, 18]: what the row of a cell adds to each number of `cell_templates`."""
    s, k = plan.s, np.arange(plan.s.CRS)
    c, r, t, h, w, offset = plan.taps.T
    tap = k - c * s.R * s.S
    out = np.zeros((len(k), 18), int)
    out[:, :7] = np.stack(
        [k, _high_half(magic(s.R * s.S), k), c, tap, _high_half(magic(s.S), tap), r, t], axis=1
    )
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
        f"[\nRow {{0}}](workspace): c = {{0}} / {s.R * s.S} = {{2}}, {{3}} left; r = {{3}} / {s.S} = {{5}}, s = {{6}}."
        f"[\nColumn {{7}}](workspace): n = {{7}} / {s.PQ} = {{9}}, {{10}} left; p = {{10}} / {s.Q} = {{12}}, q = {{13}}."
        f"[\nh](input) = {{12}}·{s.u} − {s.pad_h} + {r}·{s.dilation_h} = {{15}}, "
        f"[w](input) = {{13}}·{s.v} − {s.pad_w} + {t}·{s.dilation_w} = {{16}}"
    )
    divided = "" if plan.rung == RUNGS[0] else _divided(s)
    return (
        f"{indices}: address (({{9}}·{s.C} + {{2}})·{s.H} + {{15}})·{s.W} + {{16}} = {{17}}.{divided}",
        f"{indices}: in the padding, a zero read from nowhere.{divided}",
    )


def _divided(s: ConvShape) -> str:
    """Returns the kernel's division: the upper half of a product, shifted."""
    columns = []
    for divisor, n, high, result in (
        (s.R * s.S, 0, 1, 2),
        (s.S, 3, 4, 5),
        (s.PQ, 7, 8, 9),
        (s.Q, 10, 11, 12),
    ):
        m = magic(divisor)
        columns.append(
            f"/ {divisor}: 2·{{{n}}}·{m.multiplier} >> 32 = {{{high}}}, >> {m.shift} = {{{result}}}"
        )
    return "[\nDivisions](output) as the kernel makes them: " + "; ".join(columns) + "."


def output_templates(s: ConvShape) -> tuple[str, ...]:
    return ("Filter {0}, image {9}, row {12}, column {13}.",)
