"""float64 references: what every rung is held against."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kernels.shapes import ConvShape, GemmShape


def conv2d(s: ConvShape, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """y [N,K,P,Q] of x [N,C,H,W] and w [K,C/groups,R,S], in the dtype of x (give float64 for a reference);
    without bias and ReLU.

    y[n,k,p,q] = sum_{c,r,t} w[k,c,r,t] * x[n, g*C/groups + c, p*u - pad_h + r'*dilation_h, q*v - pad_w + t'*dilation_w]
    with g the group of filter k, r' = r (cross-correlation) or R-1-r (convolution), t' alike; x is zero outside.
    (cuDNN paper, arXiv 1410.0759, section 2.)
    """
    y = np.zeros((s.N, s.groups, s.filters, s.PQ), x.dtype)
    if s.flip:
        w = w[:, :, ::-1, ::-1]
    taps = np.moveaxis(w.reshape(s.groups, s.filters, s.maps, s.R, s.S), (3, 4), (0, 1))
    taps = np.ascontiguousarray(taps)  # as BLAS takes them

    def image(n: int) -> None:
        padded = np.pad(x[n], ((0, 0), (s.pad_h,) * 2, (s.pad_w,) * 2))
        for r in range(s.R):
            for t in range(s.S):
                h, v = r * s.dilation_h, t * s.dilation_w
                under = padded[:, h : h + (s.P - 1) * s.u + 1 : s.u, v : v + (s.Q - 1) * s.v + 1 : s.v]
                y[n] += taps[r, t] @ under.reshape(s.groups, s.maps, s.PQ)

    each_image(image, s.N)
    return y.reshape(s.y_shape)


def each_image(of: Callable[[int], None], N: int) -> None:
    """of(n) for every image n, several at once: NumPy and BLAS let other threads run."""
    with ThreadPoolExecutor(min(N, os.cpu_count() or 1)) as pool:
        list(pool.map(of, range(N)))


def conv(
    s: ConvShape, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(reference, error scale), both float64 [N,K,P,Q]: the convolution, plus b [K] and through ReLU where the
    shape asks for them; the scale is that of absolute values, before ReLU."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    ref, scale = conv2d(s, x, w), conv2d(s, np.abs(x), np.abs(w))
    if s.bias:
        b = b.astype(np.float64)[:, None, None]
        ref, scale = ref + b, scale + np.abs(b)
    return np.maximum(ref, 0) if s.relu else ref, scale


def gemm(
    s: GemmShape, A: np.ndarray, B: np.ndarray, C0: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(reference, error scale), both float64 [M, N]: alpha A B + beta C0, and the same of absolute values.

    alpha and beta are those of float32, as a kernel gets them. For int8 both are exact: every product and
    sum is a whole number far below 2^53.
    """
    whole = s.dtype == "int8"
    alpha, beta = (value if whole else float(np.float32(value)) for value in (s.alpha, s.beta))
    A, B = A.astype(np.float64), B.astype(np.float64)
    ref, scale = alpha * (A @ B), abs(alpha) * (np.abs(A, out=A) @ np.abs(B, out=B))
    if s.beta:
        C0 = C0.astype(np.float64)
        ref, scale = ref + beta * C0, scale + abs(beta) * np.abs(C0)
    return ref, scale


def relative_error(out: np.ndarray, ref: np.ndarray) -> float:
    """L2 norm of (out - ref) over that of ref; inf where out holds anything not finite."""
    difference = norm = 0.0
    for o, r in blocks(out, ref):
        if not np.isfinite(o).all():
            return float("inf")
        far = o - r
        difference += float(far @ far)
        norm += float(r @ r)
    if norm == 0:
        return 0.0 if difference == 0 else float("inf")
    return float(np.sqrt(difference / norm))


def agrees(out: np.ndarray, ref: np.ndarray, scale: np.ndarray, tolerance: float) -> bool:
    """True where every element is finite and within tolerance * scale: a NaN never passes."""
    return out.shape == ref.shape and all(
        np.isfinite(o).all() and (np.abs(o - r) <= tolerance * s).all() for o, r, s in blocks(out, ref, scale)
    )


def blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The same elements of each array, broadcast against one another, a few at a time: of 10^8 elements at once every
    step would go through main memory."""
    return np.nditer(arrays, ["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=2**15)
