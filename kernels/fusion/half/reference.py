"""The float64 reference of a chain in FP16 with the channels last, with the scale of its rounding errors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.half.reference import ROUNDING, SMALLEST, TOLERANCE
from kernels.fusion import reference
from kernels.fusion.half.shape import HalfChainShape
from kernels.model.program import Tiles

Pair = tuple[np.ndarray, np.ndarray]


def planar(array: np.ndarray) -> np.ndarray:
    """Returns maps [N, H, W, C] as [N, C, H, W]; other arrays unchanged."""
    return np.moveaxis(array, 3, 1) if array.ndim == 4 else array


def chain(s: HalfChainShape, **inputs: np.ndarray) -> Pair:
    """Returns (y, error scale), both float64 [N, P, Q, K].

    TOLERANCE times the scale is the error of sums on tensor cores and of the blocks after them in FP32, and one rounding of
    the result to FP16.
    """
    arrays = {name: planar(array) for name, array in inputs.items()}
    ref, scale = (np.moveaxis(a, 1, 3) for a in reference.chain(s.planar, **arrays))
    return ref, scale / reference.SUMS + (ROUNDING * np.abs(ref) + SMALLEST) / TOLERANCE


def rounded_scale(s: HalfChainShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the scale if the maps after every block are rounded to FP16: float64 [N, P, Q, K]."""
    arrays = {name: planar(array) for name, array in inputs.items()}
    unit = reference.SUMS * ROUNDING / TOLERANCE
    scale = np.moveaxis(reference.rounded_scale(s.planar, arrays, unit), 1, 3)
    return scale / reference.SUMS + SMALLEST / TOLERANCE * len(s.blocks)
