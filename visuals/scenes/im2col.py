"""im2col as a scene: every window of the input becomes a column, every column an output pixel.

The index map here is the one the CUDA kernel computes (kernels/cuda/conv/02_im2col.cu): row
(c, r, s) and column (p, q) of the data matrix read x[c, p*u - pad_h + r*dilation_h,
q*v - pad_w + s*dilation_w], with r and s counted from the far end where the filter is flipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import cuda
from kernels.ladders import find
from kernels.shapes import ConvShape
from visuals.scene import Captions, Group, MatMul, Reading, Scene, Source, Tensor, Write
from visuals.scenes.elements import resources

FILE = "conv/02_im2col.cu"
MOST_CELLS, MOST_STEPS = 20_000, 1_024  # of the data matrix: beyond them a cell falls below the eye
PART = 8  # rows and columns of output shown where the whole does not fit
MOST_CHANNELS, MOST_FILTERS = 3, 4

ORDER = "explaining order"
ORDER_NOTE = (
    "One column at a time, copied and multiplied at once, so that the eye can follow. "
    "The GPU first fills the whole data matrix, many columns at the same moment, "
    "and multiplies in a second launch."
)


@dataclass(frozen=True)
class Part:
    """Which part of the convolution is on the stage: of image 0 the first C channels and K filters, the
    P x Q outputs from (p, q) on, and the H x W pixels from (h, w) on that they read."""

    C: int
    K: int
    P: int
    Q: int
    H: int
    W: int
    p: int = 0
    q: int = 0
    h: int = 0
    w: int = 0


def part_of(s: ConvShape, picture: np.ndarray | None = None, most: int = MOST_CELLS) -> Part:
    """The whole where it fits on a stage (`most` cells of the data matrix), else a block of the output with stride and padding kept: the
    one under which `picture` [H, W] varies most, the first where no picture is given."""
    C, K = min(s.C, MOST_CHANNELS), min(s.K, MOST_FILTERS)
    P, Q = s.P, s.Q
    cells = C * s.R * s.S * P * Q
    if cells > most or P * Q > MOST_STEPS:
        P, Q = min(P, PART), min(Q, PART)
    blocks = [
        _block(s, C, K, P, Q, p, q) for p in _starts(s.P, P) for q in _starts(s.Q, Q)
    ]  # at most 128 x 128: pages show no larger input
    if picture is None or len(blocks) == 1:
        return blocks[0]
    return max(blocks, key=lambda b: liveliness(picture[b.h : b.h + b.H, b.w : b.w + b.W]))


def liveliness(picture: np.ndarray) -> tuple[float, float]:
    """More where a picture changes along both axes, then where it changes at all."""
    down, across = (float(np.abs(np.diff(picture, axis=axis)).sum()) for axis in (0, 1))
    return min(down, across), down + across


def _starts(extent: int, shown: int) -> range:
    return range(0, extent - shown + 1, shown)


def _block(s: ConvShape, C: int, K: int, P: int, Q: int, p: int, q: int) -> Part:
    h, H = _reach(s.H, p, P, s.P, s.u, s.pad_h, s.span_h)
    w, W = _reach(s.W, q, Q, s.Q, s.v, s.pad_w, s.span_w)
    return Part(C, K, P, Q, H, W, p, q, h, w)


def _reach(size: int, first: int, count: int, of: int, stride: int, pad: int, span: int) -> tuple[int, int]:
    """(start, length) of what `count` of the `of` windows along an axis read; all of it for all of them.
    Windows that lie in the padding alone read nothing: then one pixel, the nearest, is shown."""
    if count == of:
        return 0, size
    start = min(max(0, first * stride - pad), size - 1)
    stop = min(size, (first + count - 1) * stride - pad + span)
    return start, max(1, stop - start)


def gather_index(s: ConvShape, part: Part) -> np.ndarray:
    """int64[C*R*S, P*Q]: flat index into the shown input (C, H, W), -1 where the tap is padding."""
    r, t = np.arange(s.R), np.arange(s.S)
    if s.flip:
        r, t = r[::-1], t[::-1]
    h = (part.p + np.arange(part.P)) * s.u - s.pad_h + r[:, None] * s.dilation_h  # (R, P)
    w = (part.q + np.arange(part.Q)) * s.v - s.pad_w + t[:, None] * s.dilation_w  # (S, Q)
    inside_h, inside_w = (h >= 0) & (h < s.H), (w >= 0) & (w < s.W)
    c = np.arange(part.C)[:, None, None, None, None] * part.H
    index = (c + h[None, :, None, :, None] - part.h) * part.W + w[None, None, :, None, :] - part.w
    inside = inside_h[None, :, None, :, None] & inside_w[None, None, :, None, :]
    return np.where(inside, index, -1).reshape(part.C * s.R * s.S, part.P * part.Q)


def kernel_source() -> Source:
    """The im2col kernel from its signature on, its copying line lit."""
    rung = find("conv/im2col-gemm")
    launch = rung.build(ConvShape(1, 1, 1, 1, 1, 1, 1), rung.default_tiles).steps[0]
    lines = cuda.text(FILE).splitlines()
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
    """The scene of image 0. float32: x [N,C,H,W], w [K,C,R,S] (the first part.C channels and part.K
    filters are enough), y [part.K, part.P, part.Q]: what the kernel computed for the part."""
    index = gather_index(s, part)
    crs, steps = index.shape
    rows, cols = slice(part.h, part.h + part.H), slice(part.w, part.w + part.W)
    left = np.ascontiguousarray(w[: part.K, : part.C], dtype=np.float32).reshape(part.K, crs)
    shown_x = np.ascontiguousarray(x[0, : part.C, rows, cols], dtype=np.float32)
    rest = None
    if part.C < s.C:
        columns = np.append(shown_x.ravel(), np.float32(0))[index]
        rest = y.reshape(part.K, steps) - left.astype(np.float64) @ columns
    pad = (
        s.pad_h * (part.h == 0),
        s.pad_w * (part.w == 0),
        s.pad_h * (part.h + part.H == s.H),
        s.pad_w * (part.w + part.W == s.W),
    )
    notes = {
        "x": _note(s.C, "channel", part.C, (s.H, part.h, part.H), (s.W, part.w, part.W)),
        "w": _note(1, "", 1, (s.K, 0, part.K), (s.CRS, 0, crs)),
        "y": _note(s.K, "plane", part.K, (s.P, part.p, part.P), (s.Q, part.q, part.Q)),
    }
    tensors = (
        Tensor("x", "x", "input", "input", part.C, part.H, part.W, shown_x.ravel(), (0, part.h, part.w),
               notes["x"], plane_name="channel", pad=pad),
        Tensor("w", "w", "filters", "filter", 1, part.K, crs, left.ravel(), note=notes["w"]),
        Tensor("y", "y", "output", "output", part.K, part.P, part.Q, None, (0, part.p, part.q), notes["y"],
               plane_name="filter"),
        Tensor("D", "D", "data matrix (workspace)", "workspace", 1, crs, steps, note=_matrix_note(s, part),
               partial=(crs, steps) != (s.CRS, s.PQ),
               col_index=None if steps == s.PQ else _whole_column(s, part)),
    )  # fmt: skip
    return Scene(
        key=f"im2col {part.p},{part.q} " + ",".join(f"{k}={v}" for k, v in s.params().items()),
        title="im2col",
        tensors=tensors,
        groups=(Group((("x", "w", "y"),)), Group((("D",),), "workspace")),
        steps=steps,
        step_name="column",
        order_name=ORDER,
        order_note=ORDER_NOTE,
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
    """What the steps have moved and multiplied so far, in the part shown."""
    crs, steps = index.shape
    columns = np.arange(1, steps + 1)
    return (
        Reading("values read", np.cumsum((index >= 0).sum(axis=0)), "predicted"),
        Reading("values written", columns * crs, "predicted"),
        Reading("multiply-adds", columns * crs * part.K, "predicted"),
    )


def _note(planes: int, plane: str, shown: int, rows: tuple[int, int, int], cols: tuple[int, int, int]) -> str:
    """The size of a whole tensor and which part of it is shown; rows, cols are (of, first, count)."""
    axes = ([(planes, 0, shown)] if plane and planes > 1 else []) + [rows, cols]
    if all(count == of for of, _, count in axes):
        size = f"{rows[0]:,} × {cols[0]:,}"
        return f"{planes} {plane}s of {size}" if len(axes) == 3 else size
    told = ", ".join(f"{first}–{first + count - 1}" for _, first, count in axes)
    return f"part {told} of {' × '.join(f'{of:,}' for of, _, _ in axes)}"


def _matrix_note(s: ConvShape, part: Part) -> str:
    note = f"{s.CRS:,} × {s.PQ:,}, each pixel copied up to {copies_per_pixel(s)} times"
    if s.N > 1:
        note = f"of the first of {s.N} images: " + note
    shown = part.C * s.R * s.S, part.P * part.Q
    if shown != (s.CRS, s.PQ):
        note += f"; part {shown[0]:,} × {shown[1]:,}"
    return note


def copies_per_pixel(s: ConvShape) -> int:
    """The most columns any one input pixel is copied into: at most R*S, fewer where windows do not
    overlap (stride) or are few (a small output)."""

    def along(size, out, taps, stride, pad, dilation):
        at = np.arange(out)[:, None] * stride - pad + np.arange(taps) * dilation
        at = at[(at >= 0) & (at < size)]
        return int(np.bincount(at).max()) if at.size else 0

    return along(s.H, s.P, s.R, s.u, s.pad_h, s.dilation_h) * along(s.W, s.Q, s.S, s.v, s.pad_w, s.dilation_w)


def _whole_column(s: ConvShape, part: Part) -> np.ndarray:
    """int64[P*Q shown]: each shown column's place in the whole data matrix."""
    return ((part.p + np.arange(part.P))[:, None] * s.Q + part.q + np.arange(part.Q)).ravel()


def _captions(s: ConvShape, part: Part, index: np.ndarray) -> Captions:
    crs, steps = index.shape
    padding = (index < 0).sum(axis=0)
    shown = np.arange(steps)
    row, column = part.p + shown // part.Q, part.q + shown % part.Q
    args = np.stack([row * s.Q + column, row, column, crs - padding, padding], axis=1)
    who = "Thread {0} copies" if s.C == 1 else f"{s.C:,} threads, one for each channel, copy"
    window = f"{who} the window of output row {{1}}, column {{2}} from the [input](input) into column {{0}} of the [data matrix](workspace): "
    outputs = f"{s.K:,} [outputs](output)" if s.K > 1 else "one [output](output)"
    sums = f"; with the [filters](filter) it gives {outputs}{f', {part.K} of them shown' if part.K < s.K else ''}."
    if part.C < s.C:
        sums = f" in the {part.C} channels shown" + sums
    return Captions(
        templates=(
            window + f"{crs} reads, {crs} writes" + sums,
            window + f"{{3}} reads, {crs} writes, {{4}} of them zeros of the padding" + sums,
        ),
        kind=(padding > 0).astype(np.int64),
        args=args,
    )
