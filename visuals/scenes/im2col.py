"""im2col as a scene: every window of the input becomes a column, every column an output pixel.

The index map here is the one the CUDA kernel computes (kernels/cuda/conv/02_im2col.cu): row
(c, r, s) and column (p, q) of the data matrix read x[c, p*u - pad_h + r*dilation_h,
q*v - pad_w + s*dilation_w], with r and s counted from the far end where the filter is flipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import cuda
from kernels.shapes import ConvShape
from visuals.scene import Captions, Gather, MatMul, Scene, Source, Tensor

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
    """Which part of the convolution is on the stage: the first C channels, K filters, P x Q outputs
    of image 0, and the H x W corner of the input they read."""

    C: int
    K: int
    P: int
    Q: int
    H: int
    W: int

    def whole(self, s: ConvShape) -> bool:
        return (s.N, s.C, s.K, s.P, s.Q) == (1, self.C, self.K, self.P, self.Q)


def part_of(s: ConvShape) -> Part:
    """The whole where it fits on a stage, else its first corner, strides and padding kept."""
    C, K = min(s.C, MOST_CHANNELS), min(s.K, MOST_FILTERS)
    P, Q = s.P, s.Q
    if C * s.R * s.S * P * Q > MOST_CELLS or P * Q > MOST_STEPS:
        P, Q = min(P, PART), min(Q, PART)
    H = s.H if s.P == P else min(s.H, max(1, (P - 1) * s.u - s.pad_h + s.span_h))
    W = s.W if s.Q == Q else min(s.W, max(1, (Q - 1) * s.v - s.pad_w + s.span_w))
    return Part(C, K, P, Q, H, W)


def gather_index(s: ConvShape, part: Part) -> np.ndarray:
    """int64[C*R*S, P*Q]: flat index into the shown input (C, H, W), -1 where the tap is padding."""
    r, t = np.arange(s.R), np.arange(s.S)
    if s.flip:
        r, t = r[::-1], t[::-1]
    h = np.arange(part.P) * s.u - s.pad_h + r[:, None] * s.dilation_h  # (R, P)
    w = np.arange(part.Q) * s.v - s.pad_w + t[:, None] * s.dilation_w  # (S, Q)
    inside_h, inside_w = (h >= 0) & (h < s.H), (w >= 0) & (w < s.W)
    c = np.arange(part.C)[:, None, None, None, None]
    index = (c * part.H + h[None, :, None, :, None]) * part.W + w[None, None, :, None, :]
    inside = inside_h[None, :, None, :, None] & inside_w[None, None, :, None, :]
    return np.where(inside, index, -1).reshape(part.C * s.R * s.S, part.P * part.Q)


def kernel_source() -> Source:
    """The im2col kernel from its signature on, its copying line lit."""
    lines = cuda.text(FILE).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('extern "C"'))
    copying = next(i for i, line in enumerate(lines) if "column[" in line)
    return Source(FILE.rpartition("/")[2], "\n".join(lines[first:]), np.array([copying + 1]), first + 1)


def im2col_scene(s: ConvShape, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> Scene:
    """The scene of image 0. x [N,C,H,W], w [K,C,R,S]: float32; y [1,>=K shown,>=P shown,>=Q shown]:
    what the kernel computed for them (a crop is enough)."""
    part = part_of(s)
    index = gather_index(s, part)
    crs, steps = part.C * s.R * s.S, part.P * part.Q
    left = w[: part.K, : part.C].reshape(part.K, crs)
    shown_x = np.ascontiguousarray(x[0, : part.C, : part.H, : part.W], dtype=np.float32)
    shown_y = np.ascontiguousarray(y[0, : part.K, : part.P, : part.Q], dtype=np.float32)
    rest = None
    if part.C < s.C:
        columns = np.append(shown_x.ravel(), np.float32(0))[index]
        rest = shown_y.reshape(part.K, steps) - left.astype(np.float64) @ columns
    tensors = (
        Tensor("x", "x", "input", "input", part.C, part.H, part.W, shown_x.ravel(),
               note=_note((part.H, part.W), (s.H, s.W), part.C, s.C, "channel"), plane_name="channel",
               pad=(s.pad_h, s.pad_w, s.pad_h * (part.H == s.H), s.pad_w * (part.W == s.W))),
        Tensor("w", "w", "filters", "filter", 1, part.K, crs, np.ascontiguousarray(left).ravel(),
               note=_note((part.K, crs), (s.K, s.CRS), 1, 1, "")),
        Tensor("y", "y", "output", "output", part.K, part.P, part.Q, shown_y.ravel(),
               note=_note((part.P, part.Q), (s.P, s.Q), part.K, s.K, "plane"), plane_name="filter"),
        Tensor("D", "D", "data matrix (workspace)", "workspace", 1, crs, steps, workspace=True,
               note=_matrix_note(s, part), partial=(crs, steps) != (s.CRS, s.PQ),
               col_index=None if part.Q == s.Q else _whole_column(s, part)),
    )  # fmt: skip
    return Scene(
        key="im2col " + ",".join(f"{k}={v}" for k, v in s.params().items()),
        title="im2col",
        tensors=tensors,
        rows=(("x", "w", "y"), ("D",)),
        steps=steps,
        step_name="column",
        order_name=ORDER,
        order_note=ORDER_NOTE,
        born={"D": np.arange(steps), "y": np.arange(steps)},
        gathers=(Gather("x", "D", index.ravel()),),
        matmuls=(MatMul("w", "D", "y", rest),),
        captions=_captions(s, part, index),
        source=kernel_source(),
    )


def _note(shown: tuple[int, int], whole: tuple[int, int], planes: int, of_planes: int, name: str) -> str:
    size = f"{whole[0]} × {whole[1]}"
    if name and of_planes > 1:
        size = f"{of_planes} {name}s of {size}"
    parts = []
    if name and planes < of_planes:
        parts.append(f"{name}{'s 1–' + str(planes) if planes > 1 else ' 1'}")
    if shown[0] < whole[0]:
        parts.append(f"rows 1–{shown[0]}")
    if shown[1] < whole[1]:
        parts.append(f"columns 1–{shown[1]}")
    return size + (", shown: " + ", ".join(parts) if parts else "")


def _matrix_note(s: ConvShape, part: Part) -> str:
    note = f"{s.CRS:,} × {s.PQ:,}, each pixel copied up to {copies_per_pixel(s)} times"
    if s.N > 1:
        note = f"image 1 of {s.N}: " + note
    shown = part.C * s.R * s.S, part.P * part.Q
    if shown != (s.CRS, s.PQ):
        note += f"; shown: {shown[0]:,} × {shown[1]:,}"
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
    return (np.arange(part.P)[:, None] * s.Q + np.arange(part.Q)).ravel()


def _captions(s: ConvShape, part: Part, index: np.ndarray) -> Captions:
    crs, steps = index.shape
    padding = (index < 0).sum(axis=0)
    shown = np.arange(steps)
    args = np.stack([_whole_column(s, part), shown // part.Q, shown % part.Q, crs - padding, padding], axis=1)
    who = "Thread {0} copies" if s.C == 1 else f"{s.C:,} threads, one for each channel, copy"
    window = f"{who} the window of output row {{1}}, column {{2}} from the [input](input) into column {{0}} of the [data matrix](workspace): "
    sums = "; with the [filters](filter) it gives " + (
        f"{part.K} [outputs](output)." if part.K > 1 else "one [output](output)."
    )
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
