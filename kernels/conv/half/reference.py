"""The float64 reference of the FP16 convolution."""

from __future__ import annotations

import numpy as np

from kernels.conv.half.shape import HalfShape
from kernels.conv.reference import conv2d

ROUNDING = 2.0**-11  # of a result to FP16, relative
SMALLEST = 2.0**-25  # of a result below FP16's normal numbers, absolute
# Of the sums, which the tensor cores truncate: as of the other rungs on tensor cores.
TOLERANCE = 1e-4


def conv(s: HalfShape, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (reference, error scale), both float64 [N,P,Q,K], of x [N,H,W,C] and w [K,R,S,C].

    TOLERANCE times the scale is the error of the sum, relative to the sum of absolute products, and one rounding of the
    result to FP16.
    """
    planes, filters = (np.moveaxis(a.astype(np.float64), 3, 1) for a in (x, w))
    ref, absolute = (
        np.moveaxis(conv2d(s.planar, *arrays), 1, 3)
        for arrays in ((planes, filters), (np.abs(planes), np.abs(filters)))
    )
    return ref, absolute + (ROUNDING * np.abs(ref) + SMALLEST) / TOLERANCE
