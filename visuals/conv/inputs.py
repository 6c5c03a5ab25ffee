"""The inputs of a convolution: pictures and filters at a shape. No Streamlit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from kernels.conv.shape import ConvShape
from visuals.conv import pictures


@dataclass(frozen=True, eq=False)
class Inputs:
    """Picture and filters of a convolution. Arrays are computed only when `x` or `w` is called. A page requests
    only the images, channels and filters that it needs."""

    shape: ConvShape
    picture: str
    filter: str
    seed: int = 0
    custom: np.ndarray | None = None  # float64[R, S]
    upload: np.ndarray | None = None  # float32[min(C, 3), H, W]

    def _key(self) -> Hashable:
        arrays = (array if array is None else array.tobytes() for array in (self.custom, self.upload))
        return self.shape, self.picture, self.filter, self.seed, *arrays

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inputs) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def planes(self, n: int = 0) -> np.ndarray:
        """Returns float32[min(C, 3), H, W] of image n. Channel c is plane c mod 3."""
        s = self.shape
        if self.upload is None:
            return pictures.planes(self.picture, s.H, s.W, s.C, n, self.seed)
        return np.roll(self.upload, n * max(1, s.W // 8), axis=2)

    def x(self, N: int | None = None, C: int | None = None) -> np.ndarray:
        """Returns float32[N, C, H, W]: the first N images and C channels. The default is all of them."""
        return pictures.images(self.planes, N or self.shape.N, C or self.shape.C)

    def w(self, K: int | None = None, C: int | None = None) -> np.ndarray:
        """Returns float32[K, C, R, S]: the first K filters and C channels. The default is all of them."""
        s = self.shape
        return pictures.filters(K or s.K, C or s.C, s.R, s.S, self.filter, self.seed, self.custom)

    def names(self) -> list[str]:
        """Returns the name of each filter 0 .. K-1."""
        return pictures.filter_names(self.shape.K, self.filter)


def outputs(inputs: Inputs, K: int, P: int, Q: int, p: int = 0, q: int = 0) -> np.ndarray:
    """Returns float32[K, P, Q]: the outputs of the first K filters for image 0, P rows from p and Q columns from
    q on, summed over all channels. Channels with the same plane are summed in the filter first. This gives the
    same sum faster."""
    s, planes = inputs.shape, inputs.planes().astype(np.float64)
    counts = np.bincount(np.arange(s.C) % len(planes), minlength=len(planes))
    w = inputs.w(K, 1)[:, :1].astype(np.float64) * counts[:, None, None]  # K, planes, R, S
    if s.flip:
        w = w[:, :, ::-1, ::-1]
    x = np.pad(planes, ((0, 0), *s.pad_widths))[:, p * s.u :, q * s.v :]
    y = np.zeros((K, P, Q))
    for r in range(s.R):
        for t in range(s.S):
            h, c = r * s.dilation_h, t * s.dilation_w
            window = x[:, h : h + (P - 1) * s.u + 1 : s.u, c : c + (Q - 1) * s.v + 1 : s.v]
            y += np.tensordot(w[:, :, r, t], window, axes=1)
    return y.astype(np.float32)
