"""The NumPy implementation of a fused FP16 convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernels.conv.half.cpu import taps
from kernels.fusion.shape import TENSORS


def chain(kinds: Sequence[str]) -> Callable[..., None]:
    """Returns the NumPy function of the kernel of a convolution and the pointwise blocks after it."""

    def compute(x: np.ndarray, w: np.ndarray, *rest) -> None:
        at = next(n for n, a in enumerate(rest) if isinstance(a, np.void))
        *tensors, y = rest[:at]
        arrays, eps = iter(tensors), iter(rest[at + 1 :])
        v = np.empty(y.shape, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            taps(x, w, v, rest[at])
            for kind in kinds[1:]:
                params = [next(arrays).astype(np.float32) for _ in TENSORS.get(kind, ())]
                BLOCKS[kind](v, *params, *([next(eps)] if kind == "bn" else ()))
            y[...] = v

    return compute


# -- pointwise blocks, in place on float32 maps [N, P, Q, K] -------------------------------------------
def _add(v: np.ndarray, other: np.ndarray) -> None:
    v += other


def _bn(v: np.ndarray, gamma, beta, mean, var, eps) -> None:
    v -= mean
    v *= gamma / np.sqrt(var + eps)
    v += beta


def _relu(v: np.ndarray) -> None:
    np.maximum(v, 0, out=v)


BLOCKS = {"bias": _add, "add": _add, "bn": _bn, "relu": _relu}
