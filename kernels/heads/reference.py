"""Heads and rows in float64. A copy is exact: the error scale is only that of a tolerance of 0."""

from __future__ import annotations

import numpy as np

from kernels.heads.shape import HeadsShape
from kernels.model.verify import Reference


def split(s: HeadsShape, x: np.ndarray) -> dict[str, Reference]:
    """Returns the heads of each part, each (result, scale), float64 [N, h, T, d]."""
    parts = x.astype(np.float64).transpose(2, 0, 3, 1, 4)
    return {name: (part, np.abs(part)) for name, part in zip(s.names, parts, strict=True)}


def merge(s: HeadsShape, **heads: np.ndarray) -> Reference:
    """Returns (y, scale), float64 [N, T, parts, h, d], from the heads of each part."""
    parts = np.stack([heads[name] for name in s.names]).astype(np.float64)
    y = np.ascontiguousarray(parts.transpose(1, 3, 0, 2, 4))
    return y, np.abs(y)
