"""float64 references of convolution's two gradients, written from their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.model.at_once import at_once


def dinput(s: ConvShape, dy: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (gradient of the input, error scale), float64 [N,C,H,W], of dy [N,K,P,Q] and w [K,C/groups,R,S].

    dx[n, c, h, v] = sum over k, r, t of dy[n,k,p,q] * w[k,c,r,t] over all (p, q) whose tap (r, t) is pixel (h, v):
    p*u - pad_h + r'*dilation_h = h, q likewise, with r' = r (cross-correlation) or R-1-r (convolution). The scale is
    the same sum of absolute values.
    """
    dy, w = dy.astype(np.float64), w.astype(np.float64)
    return _dinput(s, dy, w), _dinput(s, np.abs(dy), np.abs(w))


def dweight(s: ConvShape, x: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (gradient of the filters, error scale), float64 [K,C/groups,R,S], of x [N,C,H,W] and dy [N,K,P,Q].

    dw[k, c, r, t] = sum over n, p, q of dy[n,k,p,q] * x[n, c, p*u - pad_h + r'*dilation_h, q*v - pad_w + t'*dilation_w],
    with c in the group of filter k, r' and t' as in `dinput`. x is zero outside.
    """
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    return _dweight(s, x, dy), _dweight(s, np.abs(x), np.abs(dy))


def _windows(s: ConvShape) -> Iterator[tuple[int, int, slice, slice]]:
    """Yields (r, t, rows, columns) of each tap: the pixels of the padded input that it multiplies, one per output."""
    for r, t in product(range(s.R), range(s.S)):
        h, v = (s.R - 1 - r, s.S - 1 - t) if s.flip else (r, t)
        h, v = h * s.dilation_h, v * s.dilation_w
        yield r, t, slice(h, h + (s.P - 1) * s.u + 1, s.u), slice(v, v + (s.Q - 1) * s.v + 1, s.v)


def _dinput(s: ConvShape, dy: np.ndarray, w: np.ndarray) -> np.ndarray:
    taps = np.moveaxis(w.reshape(s.groups, s.filters, s.maps, s.R, s.S), (3, 4), (0, 1)).swapaxes(-1, -2)
    taps = np.ascontiguousarray(taps)  # [R, S, groups, maps, filters], as BLAS takes them
    dx = np.zeros((s.N, s.groups, s.maps, s.padded_h, s.padded_w), dy.dtype)

    def image(n: int) -> None:
        gradient = dy[n].reshape(s.groups, s.filters, s.PQ)
        for r, t, rows, columns in _windows(s):
            terms = taps[r, t] @ gradient
            dx[n, :, :, rows, columns] += terms.reshape(s.groups, s.maps, s.P, s.Q)

    at_once(image, range(s.N))
    inside = dx[..., s.pad_h : s.pad_h + s.H, s.pad_w : s.pad_w + s.W]
    return inside.reshape(s.x_shape)


def _dweight(s: ConvShape, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), *s.pad_widths))
    gradient = dy.reshape(s.N, s.groups, s.filters, s.PQ)
    dw = np.zeros((s.groups, s.filters, s.maps, s.R, s.S), x.dtype)

    def tap(r: int, t: int, rows: slice, columns: slice) -> None:
        for n in range(s.N):
            pixels = padded[n, :, rows, columns].reshape(s.groups, s.maps, s.PQ)
            dw[..., r, t] += gradient[n] @ pixels.swapaxes(1, 2)

    at_once(lambda window: tap(*window), _windows(s))
    return dw.reshape(s.w_shape)
