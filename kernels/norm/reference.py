"""The float64 references of the norms, with the scale of the rounding error of float32.

Each function returns {output: (result, scale)}. Forward, the scale of the mean is the mean of absolute values. The
standard deviation is a norm of x, apart from its mean: if each x is changed by at most t times its size, the standard
deviation changes by at most t times the root mean square of x. With t = ROUNDING this limits 1 / std, also where x is
constant. An algorithm that is less exact has another limit for the variance (`sums_scale`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.model.verify import Reference
from kernels.norm.shape import EPS, MapsShape, RowsShape

TOLERANCE = 1e-5  # allowed error of a rung, as a fraction of the scale
ROUNDING = 2.0**-19  # allowed error of a float32 sum of numbers >= 0, relative: 32 roundings
CHUNK = 2**20  # numbers at a time: limits the float64 copies in memory
Outputs = dict[str, Reference]


@dataclass(frozen=True)
class Statistics:
    """Of rows [..., n]: float64 [..., 1] each."""

    mean: np.ndarray
    variance: np.ndarray
    size: np.ndarray  # mean of absolute values
    rms: np.ndarray  # root mean square

    @property
    def invstd(self) -> np.ndarray:
        return inverse(self.variance)


Limits = Callable[[Statistics], tuple[np.ndarray, np.ndarray]]  # the lowest and highest variance to first order


def statistics(x: np.ndarray) -> Statistics:
    """Returns the statistics along the last axis of x, float64."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = np.square(x - mean).mean(axis=-1, keepdims=True)
    size = np.abs(x).mean(axis=-1, keepdims=True)
    return Statistics(mean, variance, size, np.sqrt(variance + mean * mean))


def inverse(variance: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(variance + EPS)


def backward_limits(s: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Returns the variances that a change of x by ROUNDING can give: those of a backward stable algorithm."""
    std, change = np.sqrt(s.variance), ROUNDING * s.rms
    return np.square(np.maximum(std - change, 0)), np.square(std + change)


def sums_limits(s: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Returns the variances that mean of x^2 - (mean of x)^2 can give, if both are wrong by ROUNDING."""
    change = ROUNDING * (s.rms**2 + 2 * s.size * np.abs(s.mean))
    return np.maximum(s.variance - change, 0), s.variance + change


def invstd_scale(s: Statistics, limits: Limits) -> np.ndarray:
    low, high = limits(s)
    return inverse(low) + np.maximum(inverse(low) - s.invstd, s.invstd - inverse(high)) / TOLERANCE


def normalized(
    x: np.ndarray, gamma: np.ndarray | float, beta: np.ndarray | float, limits: Limits
) -> Iterator[Reference]:
    """Yields (result, scale) of y, mean and 1 / std along the last axis of x, float64."""
    s = statistics(x)
    scale, distance = invstd_scale(s, limits), x - s.mean
    y_scale = np.abs(gamma) * ((s.invstd + TOLERANCE * scale) * s.size + np.abs(distance) * scale)
    yield distance * s.invstd * gamma + beta, y_scale + np.abs(beta)
    yield s.mean[..., 0], s.size[..., 0]
    yield s.invstd[..., 0], scale[..., 0]


# -- batch norm ----------------------------------------------------------------------------------------
def batch_norm(s: MapsShape, x, gamma, beta, limits: Limits = backward_limits) -> Outputs:
    """Returns y in the layout of x, mean [C] and invstd = 1 / std [C]; x is [N, C, H, W] or [N, H, W, C]."""
    y, y_scale = np.empty((2, *s.dims))
    mean, mean_scale, invstd, scale = np.empty((4, s.C))
    channels, results, scales = (np.moveaxis(a, s.channel_axis, 0) for a in (x, y, y_scale))
    for c in range(s.C):
        flat = channels[c].astype(np.float64).ravel()
        parts = normalized(flat, float(gamma[c]), float(beta[c]), limits)
        (out, out_scale), (mean[c], mean_scale[c]), (invstd[c], scale[c]) = parts
        results[c], scales[c] = out.reshape(results[c].shape), out_scale.reshape(results[c].shape)
    return {"y": (y, y_scale), "mean": (mean, mean_scale), "invstd": (invstd, scale)}


def sums_scale(s: MapsShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the error scales of batch norm by sums of x and x^2: they grow with the square of mean / std."""
    outputs = batch_norm(s, **inputs, limits=sums_limits)
    return {name: scale for name, (_, scale) in outputs.items()}


def _by_channel(s: MapsShape, vector) -> np.ndarray:
    """Returns a vector [C] in float64, shaped to be combined with x."""
    shape = [1, 1, 1, 1]
    shape[s.channel_axis] = s.C
    return np.asarray(vector).astype(np.float64).reshape(shape)


def batch_norm_inference(s: MapsShape, x, gamma, beta, mean, var) -> Reference:
    """Returns y in the layout of x. The scale is the formula on absolute values."""
    invstd, gamma, beta, mean = (_by_channel(s, v) for v in (inverse(var.astype(np.float64)), gamma, beta, mean))
    y, scale = np.empty((2, *s.dims))
    for n in range(s.N):
        image = slice(n, n + 1)
        wide = x[image].astype(np.float64)
        y[image] = gamma * (wide - mean) * invstd + beta
        scale[image] = np.abs(gamma) * (np.abs(wide) + np.abs(mean)) * invstd + np.abs(beta)
    return y, scale


def batch_norm_backward(s: MapsShape, dy, x, gamma, mean, invstd) -> Outputs:
    """Returns dx in the layout of x, dgamma [C] and dbeta [C]. mean and invstd are those of the forward pass."""
    dx, dx_scale = np.empty((2, *s.dims))
    dgamma, gamma_scale, dbeta, beta_scale = np.empty((4, s.C))
    by_channel = [np.moveaxis(a, s.channel_axis, 0) for a in (dy, x, dx, dx_scale)]
    for c, (own_dy, own_x, own_dx, own_scale) in enumerate(zip(*by_channel, strict=True)):
        g, std = own_dy.astype(np.float64), float(invstd[c])
        xhat = (own_x.astype(np.float64) - float(mean[c])) * std
        dbeta[c], beta_scale[c] = g.sum(), np.abs(g).sum()
        dgamma[c], gamma_scale[c] = (g * xhat).sum(), np.abs(g * xhat).sum()
        factor = float(gamma[c]) * std
        own_dx[...] = factor * (g - dbeta[c] / s.count - xhat * dgamma[c] / s.count)
        size = np.abs(g) + beta_scale[c] / s.count + np.abs(xhat) * gamma_scale[c] / s.count
        own_scale[...] = abs(factor) * size
    return {"dx": (dx, dx_scale), "dgamma": (dgamma, gamma_scale), "dbeta": (dbeta, beta_scale)}


def saved_by_channel(s: MapsShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns mean and invstd of x as a forward pass saves them, float32 [C]."""
    channels = np.moveaxis(inputs["x"], s.channel_axis, 0)
    found = [statistics(of.astype(np.float64).ravel()) for of in channels]
    return {
        "mean": np.array([f.mean[0] for f in found], np.float32),
        "invstd": np.array([f.invstd[0] for f in found], np.float32),
    }


# -- rows ----------------------------------------------------------------------------------------------
def _chunks(s: RowsShape) -> Iterator[slice]:
    rows = max(1, CHUNK // s.N)
    return (slice(first, min(first + rows, s.M)) for first in range(0, s.M, rows))


def layer_norm(s: RowsShape, x, gamma, beta) -> Outputs:
    """Returns y [M, N], mean [M] and invstd = 1 / std [M] along the rows of x [M, N]."""
    y, y_scale = np.empty((2, s.M, s.N))
    mean, mean_scale, invstd, scale = np.empty((4, s.M))
    wide_gamma, wide_beta = gamma.astype(np.float64), beta.astype(np.float64)
    for rows in _chunks(s):
        parts = normalized(x[rows].astype(np.float64), wide_gamma, wide_beta, backward_limits)
        (y[rows], y_scale[rows]), (mean[rows], mean_scale[rows]), (invstd[rows], scale[rows]) = parts
    return {"y": (y, y_scale), "mean": (mean, mean_scale), "invstd": (invstd, scale)}


def layer_norm_backward(s: RowsShape, dy, x, gamma, mean, invstd) -> Outputs:
    """Returns dx [M, N], dgamma [N] and dbeta [N]. mean and invstd [M] are those of the forward pass."""
    return _rows_backward(s, dy, x, gamma, invstd, mean)


def rms_norm(s: RowsShape, x, gamma) -> Outputs:
    """Returns y [M, N] and invrms = 1 / root mean square [M] along the rows of x [M, N]. All terms are positive: the
    scale is the result itself."""
    y, (invrms) = np.empty((s.M, s.N)), np.empty(s.M)
    for rows in _chunks(s):
        wide = x[rows].astype(np.float64)
        invrms[rows] = inverse(np.square(wide).mean(axis=1))
        y[rows] = wide * invrms[rows, None] * gamma.astype(np.float64)
    return {"y": (y, np.abs(y)), "invrms": (invrms, invrms)}


def rms_norm_backward(s: RowsShape, dy, x, gamma, invrms) -> Outputs:
    """Returns dx [M, N] and dgamma [N]. invrms [M] is that of the forward pass."""
    outputs = _rows_backward(s, dy, x, gamma, invrms, None)
    return {name: outputs[name] for name in ("dx", "dgamma")}


def _rows_backward(s: RowsShape, dy, x, gamma, inverse_size, mean) -> Outputs:
    """Returns the gradients of layer norm; without a mean those of RMS norm, in which no mean is taken off."""
    dx, dx_scale = np.empty((2, s.M, s.N))
    dgamma, gamma_scale, dbeta, beta_scale = np.zeros((4, s.N))
    wide_gamma = gamma.astype(np.float64)
    for rows in _chunks(s):
        own_dy, factor = dy[rows].astype(np.float64), inverse_size[rows, None].astype(np.float64)
        centred = x[rows].astype(np.float64) - (0 if mean is None else mean[rows, None].astype(np.float64))
        xhat, g = centred * factor, own_dy * wide_gamma
        dgamma += (own_dy * xhat).sum(axis=0)
        gamma_scale += np.abs(own_dy * xhat).sum(axis=0)
        dbeta += own_dy.sum(axis=0)
        beta_scale += np.abs(own_dy).sum(axis=0)
        taken = 0 if mean is None else g.mean(axis=1, keepdims=True)
        dx[rows] = factor * (g - taken - xhat * (g * xhat).mean(axis=1, keepdims=True))
        taken = 0 if mean is None else np.abs(g).mean(axis=1, keepdims=True)
        size = np.abs(g) + taken + np.abs(xhat) * np.abs(g * xhat).mean(axis=1, keepdims=True)
        dx_scale[rows] = factor * size
    return {"dx": (dx, dx_scale), "dgamma": (dgamma, gamma_scale), "dbeta": (dbeta, beta_scale)}


def saved_by_row(s: RowsShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns mean and invstd of the rows of x as a forward pass saves them, float32 [M]."""
    mean, invstd = np.empty((2, s.M), np.float32)
    for rows in _chunks(s):
        found = statistics(inputs["x"][rows].astype(np.float64))
        mean[rows], invstd[rows] = found.mean[:, 0], found.invstd[:, 0]
    return {"mean": mean, "invstd": invstd}


def saved_rms(s: RowsShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns invrms of the rows of x as a forward pass saves it, float32 [M]."""
    invrms = np.empty(s.M, np.float32)
    for rows in _chunks(s):
        invrms[rows] = inverse(np.square(inputs["x"][rows].astype(np.float64)).mean(axis=1))
    return {"invrms": invrms}
