"""The part of a convolution that a scene shows: image, channels and filters that fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.conv.shape import ConvShape

MAX_CELLS, MAX_STEPS = 20_000, 1_024  # of the data matrix: with more, a cell is too small to see


PART_SIDE = 8  # rows and columns of output that are visible if the whole does not fit


MAX_CHANNELS, MAX_FILTERS = 3, 4


@dataclass(frozen=True)
class Part:
    """The part of the convolution on the stage. Of image 0 it holds the first C channels and K filters, the P x Q
    outputs from (p, q) on, and the H x W pixels from (h, w) on that they read."""

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

    def shape(self, s: ConvShape) -> ConvShape:
        """Returns the convolution of the part alone: one image, with padding only where the part has some."""
        down = _padding(s.u, s.pad_h, s.after[0], s.span_h, (self.p, self.P, s.P), self.h, self.H)
        across = _padding(s.v, s.pad_w, s.after[1], s.span_w, (self.q, self.Q, s.Q), self.w, self.W)
        pads = {"pad_h": down[0], "pad_w": across[0], "extra_h": down[1] - down[0], "extra_w": across[1] - across[0]}
        return s.with_(N=1, C=self.C, K=self.K, H=self.H, W=self.W, **pads)


def _padding(
    stride: int, pad: int, after: int, span: int, outputs: tuple[int, int, int], start: int, size: int
) -> tuple[int, int]:
    """Returns the padding before and after `size` pixels from `start` on, under `outputs`: the first, their number, and that of all."""
    first, count, total = outputs
    if count == total:
        return pad, after
    before = max(0, start - first * stride + pad)
    return before, max(0, (count - 1) * stride + span - before - size)


def part_of(s: ConvShape, picture: np.ndarray | None = None, max_cells: int = MAX_CELLS) -> Part:
    """Returns the whole convolution if it fits the stage (`max_cells` cells of the data matrix). Otherwise
    returns a block of the output with stride and padding unchanged: the block under which `picture` [H, W]
    varies most, or the first block if no picture is given."""
    C, K = min(s.C, MAX_CHANNELS), min(s.K, MAX_FILTERS)
    P, Q = s.P, s.Q
    cells = C * s.R * s.S * P * Q
    if cells > max_cells or P * Q > MAX_STEPS:
        P, Q = min(P, PART_SIDE), min(Q, PART_SIDE)
    blocks = [
        _block(s, C, K, P, Q, p, q) for p in _starts(s.P, P) for q in _starts(s.Q, Q)
    ]  # at most 128 x 128: pages allow no larger input
    if picture is None or len(blocks) == 1:
        return blocks[0]
    return max(blocks, key=lambda b: variation(picture[b.h : b.h + b.H, b.w : b.w + b.W]))


def variation(picture: np.ndarray) -> tuple[float, float]:
    """Returns a sort key: how much a picture changes along both axes, then how much it changes at all."""
    down, across = (float(np.abs(np.diff(picture, axis=axis)).sum()) for axis in (0, 1))
    return min(down, across), down + across


def _starts(extent: int, count: int) -> range:
    return range(0, extent - count + 1, count)


def _block(s: ConvShape, C: int, K: int, P: int, Q: int, p: int, q: int) -> Part:
    h, H = _input_range(s.H, p, P, s.P, s.u, s.pad_h, s.span_h)
    w, W = _input_range(s.W, q, Q, s.Q, s.v, s.pad_w, s.span_w)
    return Part(C, K, P, Q, H, W, p, q, h, w)


def _input_range(size: int, first: int, count: int, total: int, stride: int, pad: int, span: int) -> tuple[int, int]:
    """Returns (start, length) of the pixels that `count` of the `total` windows along an axis read. All windows
    read the whole axis. Windows that lie in the padding alone read nothing. Then the nearest pixel is
    returned."""
    if count == total:
        return 0, size
    start = min(max(0, first * stride - pad), size - 1)
    stop = min(size, (first + count - 1) * stride - pad + span)
    return start, max(1, stop - start)


def gather_index(s: ConvShape, part: Part) -> np.ndarray:
    """Returns int64[C*R*S, P*Q]: the flat index into the visible input (C, H, W), -1 where the tap is padding."""
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


def copies_per_pixel(s: ConvShape) -> int:
    """Returns the largest number of columns that any one input pixel is copied into. It is at most R*S. It is
    smaller if windows do not overlap (stride) or are few (a small output)."""

    def along(size, outputs, taps, stride, pad, dilation):
        positions = np.arange(outputs)[:, None] * stride - pad + np.arange(taps) * dilation
        positions = positions[(positions >= 0) & (positions < size)]
        return int(np.bincount(positions).max()) if positions.size else 0

    return along(s.H, s.P, s.R, s.u, s.pad_h, s.dilation_h) * along(s.W, s.Q, s.S, s.v, s.pad_w, s.dilation_w)
