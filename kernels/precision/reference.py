"""float64 reference of the ladder on instructions."""

from __future__ import annotations

import numpy as np

from kernels.precision.shape import M, N, RateShape


def rate(s: RateShape, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (C, error scale), both float64 [warps, 16, 8]. No number is below 0, so the scale is C itself."""
    product = s.turns * (A.astype(np.float64) @ B.astype(np.float64))
    C = np.broadcast_to(product, (s.warps, M, N)).copy()
    return C, C
