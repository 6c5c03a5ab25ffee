"""float64 references, with which every rung is compared."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.model.at_once import at_once
from kernels.model.references import on_gpu


def conv2d(s: ConvShape, x: np.ndarray, w: np.ndarray, xp: ModuleType = np) -> np.ndarray:
    """Returns y [N,K,P,Q] of x [N,C,H,W] and w [K,C/groups,R,S], without bias and ReLU, as arrays of `xp`, NumPy or CuPy.

    y has the dtype of x: pass float64 for a reference.

    y[n,k,p,q] = sum_{c,r,t} w[k,c,r,t] * x[n, g*C/groups + c, p*u - pad_h + r'*dilation_h, q*v - pad_w + t'*dilation_w]
    with g the group of filter k, r' = r (cross-correlation) or R-1-r (convolution), t' likewise. x is zero outside.
    (cuDNN paper, arXiv 1410.0759, section 2.)
    """
    y = xp.zeros((s.N, s.groups, s.filters, s.PQ), x.dtype)
    if s.flip:
        w = w[:, :, ::-1, ::-1]
    taps = xp.moveaxis(w.reshape(s.groups, s.filters, s.maps, s.R, s.S), (3, 4), (0, 1))
    taps = xp.ascontiguousarray(taps)  # as BLAS takes them

    def image(n: int) -> None:
        padded = xp.pad(x[n], ((0, 0), *s.pad_widths))
        for r in range(s.R):
            for t in range(s.S):
                h, v = r * s.dilation_h, t * s.dilation_w
                window_pixels = padded[:, h : h + (s.P - 1) * s.u + 1 : s.u, v : v + (s.Q - 1) * s.v + 1 : s.v]
                y[n] += taps[r, t] @ window_pixels.reshape(s.groups, s.maps, s.PQ)

    if xp is np:
        at_once(image, range(s.N))
    else:
        for n in range(s.N):
            image(n)
    return y.reshape(s.y_shape)


def conv(s: ConvShape, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns (reference, error scale), both float64 [N,K,P,Q]: the convolution, with bias and ReLU if the shape has them.

    The scale is the same sum of absolute values, before ReLU.
    """
    x, w = x.astype(np.float64), w.astype(np.float64)
    ref, scale = on_gpu(lambda cupy: _on_gpu(cupy, s, x, w)) or _sums(s, x, w, np)
    if s.bias and b is not None:
        of_maps = b.astype(np.float64)[:, None, None]
        ref, scale = ref + of_maps, scale + np.abs(of_maps)
    return np.maximum(ref, 0) if s.relu else ref, scale


def _sums(s: ConvShape, x: np.ndarray, w: np.ndarray, xp: ModuleType) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sums of the products and of their absolute values."""
    return conv2d(s, x, w, xp), conv2d(s, abs(x), abs(w), xp)


def _on_gpu(cupy: ModuleType, s: ConvShape, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same, computed by CuPy."""
    ref, scale = map(cupy.asnumpy, _sums(s, cupy.asarray(x), cupy.asarray(w), cupy))
    return ref, scale
