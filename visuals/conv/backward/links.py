"""The links between input pixels and output pixels: one plan for the forward pass and both gradients.

Forward, output (p, q) reads pixel (h, w) through a tap. Backward, the same link carries the gradient of (p, q) to
(h, w), and to the tap. The scenes of the gradients play the links of visuals.conv.part.gather_index in the other
direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.conv.shape import ConvShape
from visuals.conv.part import Part, gather_index

HOLE, OUTSIDE = -1, -2  # a tap that no output reads a pixel through: between two strides, beyond the output


@dataclass(frozen=True)
class Links:
    """All links of one image of a convolution with one group. Channels, pixels and outputs are flat numbers."""

    s: ConvShape

    @cached_property
    def pixel(self) -> np.ndarray:
        """Returns int64[C*R*S, P*Q]: the pixel (flat in C, H, W) of each tap and output; -1 in the padding."""
        s = self.s
        return gather_index(s, Part(s.C, s.K, s.P, s.Q, s.H, s.W))

    def axis(self, horizontal: bool) -> np.ndarray:
        """Returns int64[pixels, taps] of one axis: the output row (or column) that read a row through a tap at position
        r, or HOLE, or OUTSIDE. It is fed_output of backward.cuh."""
        s = self.s
        size, pad, taps, dilation, stride, outputs = (
            (s.W, s.pad_w, s.S, s.dilation_w, s.v, s.Q) if horizontal else (s.H, s.pad_h, s.R, s.dilation_h, s.u, s.P)
        )
        distance = np.arange(size)[:, None] + pad - np.arange(taps) * dilation
        output, rest = np.divmod(distance, stride)
        inside = (output >= 0) & (output < outputs)
        return np.where(rest != 0, HOLE, np.where(inside, output, OUTSIDE))

    @cached_property
    def rows(self) -> np.ndarray:
        return self.axis(horizontal=False)

    @cached_property
    def columns(self) -> np.ndarray:
        return self.axis(horizontal=True)

    def tap(self, r: int, t: int) -> int:
        """Returns the tap (flat in R, S) at position (r, t) of a window: a flipped filter is in reverse order."""
        s = self.s
        return (s.R - 1 - r) * s.S + s.S - 1 - t if s.flip else r * s.S + t

    def fed(self, h: int, w: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (taps, outputs): the taps through which pixel (h, w) was read, in the kernel's order, and the output
        (flat in P, Q) of each."""
        s = self.s
        pairs = [
            (self.tap(r, t), p * s.Q + q)
            for r, p in enumerate(self.rows[h])
            if p >= 0
            for t, q in enumerate(self.columns[w])
            if q >= 0
        ]
        taps, outputs = np.array(pairs, int).reshape(-1, 2).T
        return taps, outputs

    def taps_of_phase(self, h: int, w: int) -> int:
        """Returns through how many taps the pixels of a phase are read: the stride divides their distances from the first one."""
        s = self.s
        down = (h + s.pad_h - np.arange(s.R) * s.dilation_h) % s.u == 0
        across = (w + s.pad_w - np.arange(s.S) * s.dilation_w) % s.v == 0
        return int(down.sum() * across.sum())

    @cached_property
    def additions(self) -> np.ndarray:
        """Returns int64[C*H*W]: how many windows contain each pixel. col2im adds to it that many times."""
        inside = self.pixel[self.pixel >= 0]
        return np.bincount(inside, minlength=self.s.C * self.s.H * self.s.W)


def padded_lists(lists: list[np.ndarray]) -> np.ndarray:
    """Returns int64[lists, n]: each list filled up with -1."""
    out = np.full((len(lists), max(1, *(len(cells) for cells in lists))), -1)
    for row, cells in zip(out, lists, strict=True):
        row[: len(cells)] = cells
    return out
