"""The links of pooling: which pixels each window reads, and the same links from the other end.

Forward and backward scenes share them. Forward, values go from pixels to outputs. Backward, gradients go from outputs to
pixels over the same links. So the backward picture is the forward one with its arrows reversed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.pooling.shape import MaxPoolShape, PoolShape


@dataclass(frozen=True)
class Links:
    """Cells of one tensor for each cell of another: those of cell i are cells[start[i] : start[i + 1]]."""

    start: np.ndarray  # int64
    cells: np.ndarray  # int64

    def of(self, i: int) -> np.ndarray:
        return self.cells[self.start[i] : self.start[i + 1]]

    @property
    def counts(self) -> np.ndarray:
        return np.diff(self.start)

    def reversed(self, size: int) -> Links:
        """Returns the same links from the other end, where there are `size` cells; those of a cell ascend."""
        ends = np.repeat(np.arange(len(self.start) - 1), self.counts)
        order = np.argsort(self.cells, kind="stable")
        return Links(np.searchsorted(self.cells[order], np.arange(size + 1)), ends[order])


def windows(s: PoolShape) -> Links:
    """Returns the pixels of x of each output of y, over all planes, in window order. Padding is left out."""

    def along(count: int, taps: int, stride: int, pad: int, dilation: int, extent: int) -> list[np.ndarray]:
        inside = (np.arange(taps) * dilation + i * stride - pad for i in range(count))
        return [at[(at >= 0) & (at < extent)] for at in inside]

    rows = along(s.P, s.R, s.u, s.pad_h, s.dilation_h, s.H)
    cols = along(s.Q, s.S, s.v, s.pad_w, s.dilation_w, s.W)
    plane = [(h[:, None] * s.W + w).ravel() for h in rows for w in cols]
    cells = [plane_number * s.H * s.W + at for plane_number in range(s.planes) for at in plane]
    return Links(np.cumsum([0, *map(len, cells)]), np.concatenate(cells))


def kept(s: MaxPoolShape, index: np.ndarray) -> Links:
    """Returns the one pixel that each output took, from its kept index."""
    plane = np.repeat(np.arange(s.planes), s.P * s.Q)
    return Links(np.arange(s.outputs + 1), plane * s.H * s.W + np.ravel(index).astype(np.int64))
