"""The index arithmetic of implicit GEMM in words: which pixel a cell of the data matrix is, and how the kernels divide."""

from __future__ import annotations

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.fast_division import Magic, magic
from visuals.conv.implicit.plan import RUNGS, Plan
from visuals.scene.parts import Annotation, Captions


def cell_notes(plan: Plan) -> tuple[Annotation, Annotation]:
    """Returns what is said of each cell of the data matrix and of the output."""
    down, across = row_numbers(plan), column_numbers(plan)
    numbers = (down[:, None] + across).reshape(len(down) * len(across), -1)
    filters = np.zeros((plan.s.K, across.shape[1]), int)
    filters[:, 0] = np.arange(plan.s.K)
    outputs = (filters[:, None] + np.where(np.arange(across.shape[1]) == 0, 0, across)).reshape(-1, across.shape[1])
    padding = (plan.address < 0).astype(int).ravel()
    return (
        Annotation("D", Captions(cell_templates(plan), padding, numbers)),
        Annotation("y", Captions(output_templates(plan.s), np.zeros(len(outputs), int), outputs)),
    )


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
    """Returns int64[columns, 18]: what the column of a cell adds."""
    s, j = plan.s, np.arange(plan.columns)
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
