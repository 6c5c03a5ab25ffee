"""The float64 reference of a chain of blocks, with the scale of the rounding error of float32.

The scale is propagated from block to block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernels.conv import reference
from kernels.conv.shape import ConvShape
from kernels.fusion.shape import ChainShape, Stage
from kernels.model.at_once import MAX_THREADS, at_once
from kernels.model.program import Tiles

TOLERANCE = 1e-6  # of the scale: 16 roundings of a float32, more than one block makes per value
SUMS = 10  # times that for a sum of many terms: measured at C*R*S = 4,608 terms, as in kernels.conv.common
# The same for a convolution by transforms, as a fraction of the bound on any output of its map, and for cuDNN's
# Winograd, which uses larger tiles for larger filters: measured in kernels.conv.library.
SPREAD, SPREAD_TILES = 5, 2000
Pair = tuple[np.ndarray, np.ndarray]


def chain(s: ChainShape, **inputs: np.ndarray) -> Pair:
    """Returns (y, error scale), both float64 with y's shape: the blocks one after the other.

    Batch norm is that of inference, (x - mean) / sqrt(var + eps) * gamma + beta, with eps rounded to float32, as for a
    kernel.

    The scale bounds the error of a float32 computation in units of TOLERANCE. Each block propagates the error of its
    input and adds its own, by absolute values. Folding batch norm into a convolution stays within the bound.
    """
    return _chain(s, inputs, RULES)


def library_scale(s: ChainShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the error scale if a library chooses the convolution algorithm. Float64 with y's shape.

    Winograd and Fourier transforms spread rounding errors over a whole map (kernels.conv.fft.scale).
    """
    return _chain(s, inputs, RULES | {"conv": _conv_by_transform})[1]


def rounded_scale(s: ChainShape, inputs: Mapping[str, np.ndarray], unit: float) -> np.ndarray:
    """Returns the error scale if the maps after every block are rounded, by `unit` of each value."""

    def rounded(rule: Callable[..., Pair]) -> Callable[..., Pair]:
        def apply(*args, **tensors) -> Pair:
            v, e = rule(*args, **tensors)
            return v, e + unit * np.abs(v)

        return apply

    return _chain(s, inputs, {kind: rounded(rule) for kind, rule in RULES.items()})[1]


def _chain(s: ChainShape, inputs: Mapping[str, np.ndarray], rules: Mapping[str, Callable[..., Pair]]) -> Pair:
    y, scale = np.empty((2, *s.y_shape))
    tensors_of = [{tensor: inputs[name] for tensor, name in names.items()} for names in s.tensors]

    def compute(n: int) -> None:
        error_pair = inputs["x"][n : n + 1].astype(np.float64), np.zeros((1, *s.x_shape[1:]))
        for stage, tensors in zip(s.stages, tensors_of, strict=True):
            image_tensors = {name: t[n : n + 1] if name == "z" else t for name, t in tensors.items()}
            error_pair = rules[stage.block.kind](
                stage, *error_pair, **{k: t.astype(np.float64) for k, t in image_tensors.items()}
            )
        y[n], scale[n] = error_pair[0][0], error_pair[1][0]

    at_once(compute, range(s.N), MAX_THREADS)
    return y, scale


# -- each block: (value, scale) before it -> after it, maps [1, C, H, W] ----------------------------------------
def _each(parameter: np.ndarray) -> np.ndarray:
    """Return [C] reshaped to broadcast over maps."""
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
    bound = np.abs(v).max((2, 3)) @ np.abs(w).sum((2, 3)).T  # [1, K]: bound on every output of a map
    return ref, scale + spread * bound[:, :, None, None]


def _bias(stage: Stage, v: np.ndarray, e: np.ndarray, b: np.ndarray) -> Pair:
    return v + _each(b), e + np.abs(v) + np.abs(_each(b))


def _bn(stage: Stage, v: np.ndarray, e: np.ndarray, gamma, beta, mean, var) -> Pair:
    gain = _each(gamma / np.sqrt(var + np.float64(np.float32(stage.block.eps))))
    middle, shift = _each(mean), _each(beta)
    image_tensors = (np.abs(v) + np.abs(middle)) * np.abs(gain) + np.abs(shift)
    return (v - middle) * gain + shift, e * np.abs(gain) + image_tensors


def _relu(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    return np.maximum(v, 0), e


def _add(stage: Stage, v: np.ndarray, e: np.ndarray, z: np.ndarray) -> Pair:
    return v + z, e + np.abs(v) + np.abs(z)


def windows(stage: Stage, x: np.ndarray, fill: float) -> np.ndarray:
    """Returns a view [N, C, P, Q, R, R] of the windows of a pool, padded with `fill`."""
    b = stage.block
    padded = np.pad(x, ((0, 0), (0, 0), (b.pad,) * 2, (b.pad,) * 2), constant_values=fill)
    return sliding_window_view(padded, (b.R, b.R), axis=(2, 3))[:, :, :: b.stride, :: b.stride]


def _maxpool(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    """Returns the maximum. Its error is at most the largest error in the window."""
    return windows(stage, v, -np.inf).max((4, 5)), windows(stage, e, 0).max((4, 5))


def _avgpool(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    return windows(stage, v, 0).mean((4, 5)), windows(stage, e + SUMS * np.abs(v), 0).mean((4, 5))


def _gap(stage: Stage, v: np.ndarray, e: np.ndarray) -> Pair:
    return v.mean((2, 3), keepdims=True), (e + SUMS * np.abs(v)).mean((2, 3), keepdims=True)


RULES: dict[str, Callable[..., Pair]] = {
    "conv": _conv,
    "bias": _bias,
    "bn": _bn,
    "relu": _relu,
    "add": _add,
    "maxpool": _maxpool,
    "avgpool": _avgpool,
    "gap": _gap,
}
