"""The float64 reference of a chain of blocks, with the scale of the error that float32 may make, carried from block to
block."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernels.conv import reference
from kernels.conv.shape import ConvShape
from kernels.fusion.shape import ChainShape, Stage
from kernels.model.program import Tiles

TOLERANCE = 1e-6  # of the scale: 16 roundings of a float32, more than one block makes of a value
SUMS = 10  # times that for a sum of many: what C*R*S = 4,608 terms are seen to give, as kernels.conv.common
# The same for a convolution by transforms, of the most that any output of its map can be, and where cuDNN takes
# Winograd's larger tiles for larger filters: what kernels.conv.library saw of them.
SPREAD, SPREAD_TILES = 5, 2000
Pair = tuple[np.ndarray, np.ndarray]


def chain(s: ChainShape, **inputs: np.ndarray) -> Pair:
    """(y, error scale), both float64 as y is: the blocks one after the other; batch norm as at inference,
    (x - mean) / sqrt(var + eps) * gamma + beta, with the eps of float32, as a kernel gets it.

    The scale bounds, in units of TOLERANCE, how far a computation in float32 may be off: each block passes on the error
    of what it reads and adds its own, by absolute values. Folding batch norm into a convolution stays within it.
    """
    return _chain(s, inputs, _conv)


def library_scale(s: ChainShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The scale where a library chooses how it convolves: Winograd's and Fourier's transforms spread what they round
    over all of a map (kernels.conv.fft.scale). Float64, as y is."""
    return _chain(s, inputs, _conv_by_transform)[1]


def _chain(s: ChainShape, inputs: Mapping[str, np.ndarray], conv: Callable[..., Pair]) -> Pair:
    rules = RULES | {"conv": conv}
    y, scale = np.empty((2, *s.y_shape))
    given = [{tensor: inputs[name] for tensor, name in names.items()} for names in s.tensors]

    def compute(n: int) -> None:
        here = inputs["x"][n : n + 1].astype(np.float64), np.zeros((1, *s.x_shape[1:]))
        for stage, tensors in zip(s.stages, given, strict=True):
            own = {name: t[n : n + 1] if name == "z" else t for name, t in tensors.items()}
            here = rules[stage.block.kind](stage, *here, **{k: t.astype(np.float64) for k, t in own.items()})
        y[n], scale[n] = here[0][0], here[1][0]

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(compute, range(s.N)))
    return y, scale


# -- each block: (value, scale) before it -> after it, maps [1, C, H, W] ----------------------------------------
def _each(parameter: np.ndarray) -> np.ndarray:
    """[C] beside maps."""
    return parameter[:, None, None]


def _conv(stage: Stage, v: np.ndarray, e: np.ndarray, w: np.ndarray) -> Pair:
    b, (_, C, H, W) = stage.block, stage.before
    s = ConvShape(1, C, H, W, b.K, b.R, b.R, stride=b.stride, pad=b.pad)
    return reference.conv2d(s, v, w), reference.conv2d(s, e + SUMS * np.abs(v), np.abs(w))


def _conv_by_transform(stage: Stage, v: np.ndarray, e: np.ndarray, w: np.ndarray) -> Pair:
    ref, scale = _conv(stage, v, e, w)
    if stage.block.R == 1:
        return ref, scale
    spread = SPREAD if stage.block.R <= 3 else SPREAD_TILES
    most = np.abs(v).max((2, 3)) @ np.abs(w).sum((2, 3)).T  # [1, K]: what no output of a map exceeds
    return ref, scale + spread * most[:, :, None, None]


def _bias(stage: Stage, v: np.ndarray, e: np.ndarray, b: np.ndarray) -> Pair:
    return v + _each(b), e + np.abs(v) + np.abs(_each(b))


def _bn(stage: Stage, v: np.ndarray, e: np.ndarray, gamma, beta, mean, var) -> Pair:
    gain = _each(gamma / np.sqrt(var + np.float64(np.float32(stage.block.eps))))
    middle, shift = _each(mean), _each(beta)
    own = (np.abs(v) + np.abs(middle)) * np.abs(gain) + np.abs(shift)
    return (v - middle) * gain + shift, e * np.abs(gain) + own


def _relu(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    return np.maximum(v, 0), e


def _add(stage: Stage, v: np.ndarray, e: np.ndarray, z: np.ndarray) -> Pair:
    return v + z, e + np.abs(v) + np.abs(z)


def windows(stage: Stage, x: np.ndarray, beyond: float) -> np.ndarray:
    """View [N, C, P, Q, R, R] on the windows of a pool; what lies beyond the map holds `beyond`."""
    b = stage.block
    padded = np.pad(x, ((0, 0), (0, 0), (b.pad,) * 2, (b.pad,) * 2), constant_values=beyond)
    return sliding_window_view(padded, (b.R, b.R), axis=(2, 3))[:, :, :: b.stride, :: b.stride]


def _maxpool(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    """The largest is off by no more than the one that is off most."""
    return windows(stage, v, -np.inf).max((4, 5)), windows(stage, e, 0).max((4, 5))


def _avgpool(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    return windows(stage, v, 0).mean((4, 5)), windows(stage, e + SUMS * np.abs(v), 0).mean((4, 5))


def _gap(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    return v.mean((2, 3), keepdims=True), (e + SUMS * np.abs(v)).mean((2, 3), keepdims=True)


RULES: dict[str, Callable[..., Pair]] = {
    "conv": _conv, "bias": _bias, "bn": _bn, "relu": _relu, "add": _add,
    "maxpool": _maxpool, "avgpool": _avgpool, "gap": _gap,
}  # fmt: skip
