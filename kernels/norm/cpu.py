"""The kernels of batch norm in NumPy, with the same arguments: the cpu engine runs these.

Arrays of maps are [N, C, H, W], or [N, H, W, C] in NHWC. A CPU has no blocks and no shared memory. The number of passes
over x is that of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from kernels.norm.shape import NHWC


class Moments(NamedTuple):
    """Of some numbers: how many, their mean, and the sum of their squared distances from it. Numbers or arrays."""

    n: float | np.floating | np.ndarray
    mean: np.ndarray
    M2: np.ndarray


def merge(a: Moments, b: Moments) -> Moments:
    """Returns the moments of both parts together, by the rule of Chan, Golub and LeVeque (1983), in float32."""
    n, distance = np.float32(a.n + b.n), b.mean - a.mean
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(n > 0, np.float32(b.n) / n, np.float32(0))
    return Moments(n, a.mean + distance * share, a.M2 + b.M2 + distance * distance * np.float32(a.n) * share)


def inverse_std(variance: np.ndarray, eps: np.float32) -> np.ndarray:
    return np.float32(1) / np.sqrt(variance + eps)


def in_layout(function: Callable[..., None], layout: str) -> Callable[..., None]:
    """Returns the CPU implementation of a kernel in a layout: `function` gets the axis of the channels first."""
    axis = 3 if layout == NHWC else 1

    def step(*args) -> None:
        function(axis, *args)

    return step


def channels(vector: np.ndarray, axis: int) -> np.ndarray:
    """Returns a vector [C], shaped to be combined with maps."""
    return vector[None, :, None, None] if axis == 1 else vector[None, None, None, :]


def sums(maps: np.ndarray, axis: int) -> np.ndarray:
    """Returns the sum of each channel, float32 [C]: those of each image first, then those of all images."""
    return maps.sum(axis=(2, 3) if axis == 1 else (1, 2), dtype=np.float32).sum(axis=0, dtype=np.float32)


def images(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields one image of each array at a time: it stays in a cache."""
    for n in range(len(arrays[0])):
        yield tuple(a[n : n + 1] for a in arrays)


# -- training ------------------------------------------------------------------------------------------
def two_pass(axis, x, gamma, beta, y, mean, invstd, count, C, HW, eps) -> None:
    """Compute the means of all channels, then all variances, then y."""
    mean[...] = sums(x, axis) / np.float32(count)
    np.subtract(x, channels(mean, axis), out=y)
    np.square(y, out=y)
    invstd[...] = inverse_std(sums(y, axis) / np.float32(count), eps)
    _normalize(x, gamma, beta, y, mean, invstd, axis)


def welford(axis, x, gamma, beta, y, mean, invstd, count, C, HW, eps) -> None:
    """Merge mean and M2 of one image after the other, then compute y."""
    mean[...], invstd[...] = _statistics(x, axis, count, eps)
    _normalize(x, gamma, beta, y, mean, invstd, axis)


def sums_of_squares(axis, x, gamma, beta, y, mean, invstd, count, C, HW, eps) -> None:
    """Add up x and x * x in one pass, image after image, then compute y."""
    total, squares = np.zeros((2, C), np.float32)
    for (image,) in images(x):
        total += sums(image, axis)
        squares += sums(np.square(image), axis)
    mean[...] = total / np.float32(count)
    variance = np.maximum(squares / np.float32(count) - mean * mean, np.float32(0))
    invstd[...] = inverse_std(variance, eps)
    _normalize(x, gamma, beta, y, mean, invstd, axis)


def _statistics(x, axis, count, eps) -> tuple[np.ndarray, np.ndarray]:
    C = x.shape[axis]
    moments = Moments(0, np.zeros(C, np.float32), np.zeros(C, np.float32))
    for (image,) in images(x):
        n = np.float32(image.size // C)
        mean = sums(image, axis) / n
        moments = merge(moments, Moments(n, mean, sums(np.square(image - channels(mean, axis)), axis)))
    return moments.mean, inverse_std(moments.M2 / np.float32(count), eps)


def _normalize(x, gamma, beta, y, mean, invstd, axis) -> None:
    for image, out in images(x, y):
        np.subtract(image, channels(mean, axis), out=out)
        out *= channels(gamma * invstd, axis)
        out += channels(beta, axis)


# -- training by several blocks per channel ----------------------------------------------------------------
def parts_of(x: np.ndarray, axis: int, per_part: int, parts: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (part, its numbers [C, n]) of maps whose channels are cut into parts of so many numbers."""
    flat = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    for part in range(parts):
        yield part, flat[:, part * per_part : (part + 1) * per_part]


def partial_moments(axis, width, x, partial, per_part, parts) -> None:
    """Write mean and M2 of each part to partial [C, parts, 2]. A part may be empty."""
    for part, numbers in parts_of(x, axis, per_part * width, parts):
        n = np.float32(max(numbers.shape[1], 1))
        mean = numbers.sum(axis=1, dtype=np.float32) / n
        partial[:, part, 0] = mean
        partial[:, part, 1] = np.square(numbers - mean[:, None]).sum(axis=1, dtype=np.float32)


def merged(partial: np.ndarray, per_part: int, count: int) -> Moments:
    """Returns the moments of all parts of each channel."""
    C, parts, _ = partial.shape
    moments = Moments(0, np.zeros(C, np.float32), np.zeros(C, np.float32))
    for part in range(parts):
        n = min(per_part, count - part * per_part)
        moments = merge(moments, Moments(n, partial[:, part, 0], partial[:, part, 1]))
    return moments


def partial_nchw(width: int) -> Callable[..., None]:
    def step(x, partial, vectors, per_part, parts, C, HW, per_map) -> None:
        partial_moments(1, width, x, partial, int(per_part), int(parts))

    return step


def apply_nchw(width: int) -> Callable[..., None]:
    def step(x, gamma, beta, partial, y, mean, invstd, vectors, per_part, parts, C, HW, per_map, eps) -> None:
        count = int(vectors) * width
        mean[...], invstd[...] = _finished(merged(partial, int(per_part) * width, count), count, eps)
        _normalize(x, gamma, beta, y, mean, invstd, 1)

    return step


def _finished(moments: Moments, count: int, eps) -> tuple[np.ndarray, np.ndarray]:
    return moments.mean, inverse_std(moments.M2 / np.float32(count), eps)


def partial_nhwc(x, partial, pixels, per_part, C) -> None:
    partial_moments(3, 1, x, partial, int(per_part), partial.shape[1])


def merge_parts(partial, mean, invstd, count, per_part, parts, eps) -> None:
    """Write mean and 1 / std of the merged parts."""
    mean[...], invstd[...] = _finished(merged(partial, int(per_part), int(count)), int(count), eps)


def apply_nhwc(x, gamma, beta, mean, invstd, y, pixels, per_part, C) -> None:
    _normalize(x, gamma, beta, y, mean, invstd, 3)


# -- inference -----------------------------------------------------------------------------------------
def formula(axis, x, gamma, beta, mean, var, y, total, C, HW, eps) -> None:
    """Compute the definition, one operation over all of x after the other."""
    np.subtract(x, channels(mean, axis), out=y)
    y *= channels(gamma, axis)
    y *= channels(inverse_std(var, eps), axis)
    y += channels(beta, axis)


def fold(gamma, beta, mean, var, folded, C, eps) -> None:
    """Compute scale and shift of each channel."""
    folded[0] = gamma / np.sqrt(var + eps)
    folded[1] = beta - mean * folded[0]


def scale_shift(axis, x, folded, y, vectors, C, per_map, channels_) -> None:
    """Multiply and add, image after image."""
    for image, out in images(x, y):
        np.multiply(image, channels(folded[0], axis), out=out)
        out += channels(folded[1], axis)


# -- backward ------------------------------------------------------------------------------------------
def backward(axis, dy, x, gamma, mean, invstd, dx, dgamma, dbeta, count, C, HW) -> None:
    """Compute the sums of all channels, then dx."""
    dbeta[...] = sums(dy, axis)
    dgamma[...] = _sum_gamma(dy, x, mean, invstd, axis)
    backward_apply(axis, dy, x, gamma, mean, invstd, dgamma, dbeta, dx, count)


def _sum_gamma(dy, x, mean, invstd, axis) -> np.ndarray:
    total = np.zeros(len(mean), np.float32)
    for g, image in images(dy, x):
        total += sums(g * ((image - channels(mean, axis)) * channels(invstd, axis)), axis)
    return total


def backward_apply(axis, dy, x, gamma, mean, invstd, dgamma, dbeta, dx, count) -> None:
    """Compute dx of each channel from its two sums, image after image."""
    mean_beta, mean_gamma = (channels(of / np.float32(count), axis) for of in (dbeta, dgamma))
    for g, image, out in images(dy, x, dx):
        np.subtract(image, channels(mean, axis), out=out)
        out *= channels(invstd, axis)
        out *= mean_gamma
        np.subtract(g - mean_beta, out, out=out)
        out *= channels(gamma * invstd, axis)


def backward_partial_sums(axis, width, dy, x, mean, invstd, per_part, parts) -> Iterator[tuple]:
    """Yields (part, sums of dy [C], sums of dy * xhat [C])."""
    both = zip(parts_of(dy, axis, per_part * width, parts), parts_of(x, axis, per_part * width, parts), strict=True)
    for (part, g), (_, numbers) in both:
        xhat = (numbers - mean[:, None]) * invstd[:, None]
        yield part, g.sum(axis=1, dtype=np.float32), (g * xhat).sum(axis=1, dtype=np.float32)


def backward_partial_nchw(width: int) -> Callable[..., None]:
    def step(dy, x, mean, invstd, partial, vectors, per_part, parts, C, HW, per_map) -> None:
        found = backward_partial_sums(1, width, dy, x, mean, invstd, int(per_part), int(parts))
        for part, beta, gamma in found:
            partial[:, part, 0], partial[:, part, 1] = beta, gamma

    return step


def backward_apply_nchw(
    dy, x, gamma, mean, invstd, partial, dx, dgamma, dbeta, count, vectors, per_part, parts, C, HW, per_map
) -> None:
    """Add up the parts of each channel, then compute dx."""
    dbeta[...], dgamma[...] = partial.sum(axis=1, dtype=np.float32).T
    backward_apply(1, dy, x, gamma, mean, invstd, dgamma, dbeta, dx, count)


def backward_partial_nhwc(dy, x, mean, invstd, partial_gamma, partial_beta, pixels, per_part, C) -> None:
    found = backward_partial_sums(3, 1, dy, x, mean, invstd, int(per_part), len(partial_beta))
    for part, beta, gamma in found:
        partial_beta[part], partial_gamma[part] = beta, gamma


def backward_apply_nhwc(dy, x, gamma, mean, invstd, dgamma, dbeta, dx, pixels, per_part, C) -> None:
    backward_apply(3, dy, x, gamma, mean, invstd, dgamma, dbeta, dx, pixels)


def sum_partials(partial, sums, parts, N) -> None:
    """Add up the rows of partial [parts, N]."""
    partial.sum(axis=0, out=sums)


def sum_partials_pair(partial_gamma, partial_beta, dgamma, dbeta, parts, N) -> None:
    """Add up the rows of both [parts, N]."""
    sum_partials(partial_gamma, dgamma, parts, N)
    sum_partials(partial_beta, dbeta, parts, N)
