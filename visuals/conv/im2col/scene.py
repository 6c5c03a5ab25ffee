"""im2col as a scene: every window of the input becomes a column, and every column becomes an output pixel.

The index map here is the one that the CUDA kernel computes (kernels/conv/cuda/02_im2col.cu): row (c, r, s) and
column (p, q) of the data matrix read x[c, p*u - pad_h + r*dilation_h, q*v - pad_w + s*dilation_w]. r and s are
counted from the far end if the filter is flipped.
"""

from __future__ import annotations

import numpy as np

from kernels import sources
from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from visuals.conv.part import Part, copies_per_pixel, gather_index
from visuals.scene.parts import Captions, Group, MatMul, Reading, Source, Tensor, Write
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene
from visuals.scene.source import resources

FILE = "conv/02_im2col.cu"

ORDER = mark("explaining order")
ORDER_NOTE = mark(
    "Each step copies one column and computes its outputs. On the GPU, one launch fills the whole data matrix, many "
    "columns at once. A second launch computes the product."
)


def kernel_source() -> Source:
    """Returns the im2col kernel from its signature on, with its copying line highlighted."""
    rung = find("conv/im2col-gemm")
    launch = rung.build(ConvShape(1, 1, 1, 1, 1, 1, 1), rung.default_tiles).steps[0]
    lines = sources.text(FILE).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('extern "C"'))
    copying = next(i for i, line in enumerate(lines) if "column[" in line)
    return Source(
        FILE.rpartition("/")[2],
        "\n".join(lines[first:]),
        np.array([copying + 1]),
        first + 1,
        detail=resources(launch),
    )


def im2col_scene(s: ConvShape, part: Part, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> Scene:
    """Returns the scene of image 0. float32: x [N,C,H,W], w [K,C,R,S] (the first part.C channels and part.K
    filters are enough), y [part.K, part.P, part.Q]: the kernel's output for the part."""
    index = gather_index(s, part)
    crs, steps = index.shape
    rows, cols = slice(part.h, part.h + part.H), slice(part.w, part.w + part.W)
    left = np.ascontiguousarray(w[: part.K, : part.C], dtype=np.float32).reshape(part.K, crs)
    visible_x = np.ascontiguousarray(x[0, : part.C, rows, cols], dtype=np.float32)
    rest = None
    if part.C < s.C:
        columns = np.append(visible_x.ravel(), np.float32(0))[index]
        rest = y.reshape(part.K, steps) - left.astype(np.float64) @ columns
    pad = (
        s.pad_h * (part.h == 0),
        s.pad_w * (part.w == 0),
        s.pad_h * (part.h + part.H == s.H),
        s.pad_w * (part.w + part.W == s.W),
    )
    notes = {
        "x": part_note((0, part.C, s.C), (part.h, part.H, s.H), (part.w, part.W, s.W), plane="channel"),
        "w": part_note((0, part.K, s.K), (0, crs, s.CRS)),
        "y": part_note((0, part.K, s.K), (part.p, part.P, s.P), (part.q, part.Q, s.Q), plane="plane"),
    }
    tensors = (
        Tensor("x", "x", tr("input"), "input", part.C, part.H, part.W, visible_x.ravel(), (0, part.h, part.w),
               notes["x"], plane_name=tr("channel"), pad=pad),
        Tensor("w", "w", tr("filters"), "filter", 1, part.K, crs, left.ravel(), note=notes["w"]),
        Tensor("y", "y", tr("output"), "output", part.K, part.P, part.Q, None, (0, part.p, part.q), notes["y"],
               plane_name=tr("filter")),
        Tensor("D", "D", tr("data matrix (workspace)"), "workspace", 1, crs, steps, note=_matrix_note(s, part),
               partial=(crs, steps) != (s.CRS, s.PQ),
               col_index=None if steps == s.PQ else _full_matrix_columns(s, part)),
    )  # fmt: skip
    return Scene(
        key=f"im2col {part.p},{part.q} " + ",".join(f"{k}={v}" for k, v in s.params().items()),
        title="im2col",
        tensors=tensors,
        groups=(Group((("x", "w", "y"),)), Group((("D",),), "workspace")),
        steps=steps,
        step_name=tr("column"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE),
        writes=(
            Write("D", np.arange(steps), source="x", index=index.ravel()),
            Write("y", np.arange(steps), np.asarray(y, np.float32).ravel()),
        ),
        matmuls=(MatMul("w", "D", "y", rest),),
        readings=_readings(part, index),
        captions=_captions(s, part, index),
        source=kernel_source(),
    )


def _readings(part: Part, index: np.ndarray) -> tuple[Reading, ...]:
    """Returns the number of values moved and of multiply-adds so far, in the visible part."""
    crs, steps = index.shape
    columns = np.arange(1, steps + 1)
    return (
        Reading(tr("pixels loaded"), np.cumsum((index >= 0).sum(axis=0)), "predicted"),
        Reading(tr("values stored"), columns * crs, "predicted"),
        Reading(tr("multiply-adds"), columns * crs * part.K, "predicted"),
    )


def _matrix_note(s: ConvShape, part: Part) -> str:
    notes = [
        decimal(f"{s.CRS:,} × {s.PQ:,}"),
        trn("each pixel copied up to {n} time", "each pixel copied up to {n} times", copies_per_pixel(s)),
    ]
    if s.N > 1:
        notes.insert(0, tr("image 0 of {n}", n=s.N))
    rows, columns = part.C * s.R * s.S, part.P * part.Q
    if (rows, columns) != (s.CRS, s.PQ):
        notes.append(tr("part {size}", size=decimal(f"{rows:,} × {columns:,}")))
    return ", ".join(notes)


def _full_matrix_columns(s: ConvShape, part: Part) -> np.ndarray:
    """Returns int64[P*Q visible]: the column of the whole data matrix that each visible column is."""
    return ((part.p + np.arange(part.P))[:, None] * s.Q + part.q + np.arange(part.Q)).ravel()


def _captions(s: ConvShape, part: Part, index: np.ndarray) -> Captions:
    crs, steps = index.shape
    padding = (index < 0).sum(axis=0)
    step = np.arange(steps)
    row, column = part.p + step // part.Q, part.q + step % part.Q
    args = np.stack([row * s.Q + column, row, column, crs - padding, padding], axis=1)
    copied = (
        tr("Thread {0} copies the window of output row {1}, column {2} from the [input](input).")
        if s.C == 1
        else tr(
            "{threads} threads, one per channel, copy the window of output row {1}, column {2} from the [input](input).",
            threads=decimal(f"{s.C:,}"),
        )
    )
    target = tr("It becomes column {0} of the [data matrix](workspace).")
    outputs = trn(
        "Multiplied by the [filters](filter), this column gives {n} [output](output).",
        "Multiplied by the [filters](filter), this column gives {n} [outputs](output).",
        s.K,
    )
    if part.K < s.K:
        outputs += " " + tr("{n} of them are shown.", n=part.K)
    if part.C < s.C:
        outputs = " ".join((tr("Only the {n} channels shown are counted.", n=part.C), outputs))
    with_zeros = tr("Loads: {3}. Stores: {n}, {4} of them zeros of the padding.", n=crs)
    return Captions(
        templates=(
            " ".join((copied, target, tr("Loads: {n}. Stores: {n}.", n=crs), outputs)),
            " ".join((copied, target, with_zeros, outputs)),
        ),
        kind=(padding > 0).astype(np.int64),
        args=args,
    )
