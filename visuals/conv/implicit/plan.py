"""The index arithmetic of implicit GEMM: taps as rows of the data matrix, windows as its columns, and the
positions of a block's tiles.

It is the same arithmetic as in kernels/conv/cuda/06_implicit_gemm.cu and implicit.cuh, at the same tile sizes.
One group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernels.conv.implicit import PIECE, threads
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.ladders import find
from visuals.scene.why_not import broken_rule

RUNGS = ("conv/implicit-gemm-plain", "conv/implicit-gemm")


def why_not(s: ConvShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    if rule := broken_rule(rung, s, tiles):
        return rule
    if rung in RUNGS:
        return ""
    return tr(
        "{kernel} is not one of our implicit GEMM kernels. It is timed below, but its steps are not shown.",
        kernel=tr(find(rung).title),
    )


@dataclass(frozen=True)
class Plan:
    """A rung at a shape and all its tile sizes."""

    s: ConvShape
    rung: str
    tiles: Mapping[str, int]

    def __getattr__(self, name: str) -> int:
        try:
            return self.__dict__["tiles"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def file(self) -> str:
        return f"conv/{'05_implicit_gemm_plain' if self.rung == RUNGS[0] else '06_implicit_gemm'}.cu"

    @property
    def columns(self) -> int:
        """Returns the number of columns of the data matrix: output pixels of all images."""
        return self.s.N * self.s.PQ

    @property
    def blocks(self) -> tuple[int, int]:
        """Returns the number of blocks along the columns and along the filters."""
        return -(-self.columns // self.BN), -(-self.s.K // self.BM)

    @property
    def inside(self) -> tuple[int, int]:
        """Returns the rows and columns of block 0's tile that lie in the product."""
        return min(self.BM, self.s.K), min(self.BN, self.columns)

    # -- tiles along the sum -----------------------------------------------------------------------
    @property
    def iterations(self) -> int:
        """Returns the number of iterations of the loop: one per tile of the whole sum."""
        return -(-self.s.CRS // self.BK)

    # -- indices -----------------------------------------------------------------------------------
    @cached_property
    def taps(self) -> np.ndarray:
        """Returns int64[C*R*S, 6]: c, r, s of each row, its row and column distance from the window's first tap,
        and that distance as an offset into x. If the filter is flipped, distances are from the far corner."""
        s = self.s
        c, r, t = np.unravel_index(np.arange(s.CRS), (s.C, s.R, s.S))
        sign = -1 if s.flip else 1
        h, w = sign * r * s.dilation_h, sign * t * s.dilation_w
        return np.stack([c, r, t, h, w, (c * s.H + h) * s.W + w], axis=1)

    @cached_property
    def windows(self) -> np.ndarray:
        """Returns int64[N*P*Q, 6]: n, p, q of each column, row and column of its window's first tap in a
        map (it may lie in the padding), and that position as an offset into x."""
        s = self.s
        n, p, q = np.unravel_index(np.arange(self.columns), (s.N, s.P, s.Q))
        h, w = p * s.u - s.pad_h, q * s.v - s.pad_w
        if s.flip:
            h, w = h + (s.R - 1) * s.dilation_h, w + (s.S - 1) * s.dilation_w
        return np.stack([n, p, q, h, w, (n * s.C * s.H + h) * s.W + w], axis=1)

    @cached_property
    def address(self) -> np.ndarray:
        """Returns int64[C*R*S, N*P*Q]: the element of x that a cell of the data matrix is, -1 in the
        padding."""
        s, down, across = self.s, self.taps, self.windows
        h, w = down[:, 3, None] + across[:, 3], down[:, 4, None] + across[:, 4]
        inside = (h >= 0) & (h < s.H) & (w >= 0) & (w < s.W)
        return np.where(inside, down[:, 5, None] + across[:, 5], -1)

    # -- shared memory and registers ---------------------------------------------------------------
    @property
    def pitch(self) -> int:
        """Returns the row length of tile_a, which is stored transposed: [BK, BM + 4]."""
        return self.BM + PIECE

    @property
    def threads(self) -> int:
        return threads(self.tiles)
