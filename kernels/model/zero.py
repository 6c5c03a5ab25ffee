"""A launch that fills a buffer with zeros, for kernels that add to it."""

from __future__ import annotations

import numpy as np

from kernels.model.launch import ceil, launch
from kernels.model.program import Launch

BLOCK = 256


def zero(name: str, count: int) -> Launch:
    """Returns a launch that fills the float32 buffer `name` of `count` elements with zeros."""
    args = name, np.int64(count)
    return launch("cuda/00_zero.cu", (ceil(count, BLOCK),), BLOCK, args, fill, {"BLOCK": BLOCK})


def fill(y: np.ndarray, count) -> None:
    """Fill y with zeros."""
    y[...] = 0
