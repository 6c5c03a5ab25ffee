"""The kernels of the fusion ladder once more in NumPy, argument for argument: what the cpu engine runs.

A twin works as its kernel does, a piece of the maps that fits a processor's cache at a time in the place of a register:
the piece goes through all blocks of the group while it is there. An unfused chain takes the whole maps through memory
once for each block, in the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernels.fusion.codegen import Group
from kernels.fusion.shape import TENSORS

PIECE = 2**16  # floats of a piece: 256 KB
Piece = tuple[int, slice]  # image, maps


def group(kinds: Sequence[str]) -> Callable[..., None]:
    """The twin of the kernel of a group of blocks (kernels.fusion.codegen.Group), and of a block alone."""
    of = Group(0, tuple(kinds))
    core = {"": _elementwise, "conv": _conv, "maxpool": _pool, "avgpool": _pool, "gap": _gap}[of.core]

    def twin(x: np.ndarray, *rest) -> None:
        *tensors, y, s = (a for a in rest if not (np.ndim(a) == 0 and a.dtype == np.float32))
        eps = iter(a for a in rest if np.ndim(a) == 0 and a.dtype == np.float32)
        arrays = iter(tensors)
        given = [[next(arrays) for _ in TENSORS.get(kind, ())] for kind in of.kinds]
        given = [[*t, next(eps)] if kind == "bn" else t for kind, t in zip(of.kinds, given, strict=True)]
        blocks = list(zip(of.kinds, given, strict=True))
        front, tail = ([blocks[n] for n in part] for part in (of.prologue, of.epilogue))
        own = given[of.kinds.index(of.core)] if of.core else ()
        with np.errstate(over="ignore", invalid="ignore"):
            core(of.core, front, own, tail, x, y, s)

    return twin


def fold(w, b, gamma, beta, mean, var, b_folded, w_folded, K, taps, bias, eps) -> None:
    """Batch norm folded into the weights and the bias of the convolution before it."""
    gain = gamma / np.sqrt(var + eps)
    np.multiply(w, gain[:, None, None, None], out=w_folded)
    np.multiply((b if bias else 0) - mean, gain, out=b_folded)
    b_folded += beta


# -- pointwise blocks, in place on a piece [maps, H, W] ------------------------------------------------------------
def _apply(blocks: Sequence, v: np.ndarray, at: Piece) -> None:
    for kind, given in blocks:
        APPLY[kind](v, at, *given)


def _bias(v: np.ndarray, at: Piece, b: np.ndarray) -> None:
    v += b[at[1], None, None]


def _bn(v: np.ndarray, at: Piece, gamma, beta, mean, var, eps) -> None:
    maps = at[1]
    v -= mean[maps, None, None]
    v *= (gamma[maps] / np.sqrt(var[maps] + eps))[:, None, None]
    v += beta[maps, None, None]


def _relu(v: np.ndarray, at: Piece) -> None:
    np.maximum(v, 0, out=v)


def _add(v: np.ndarray, at: Piece, z: np.ndarray) -> None:
    v += z[at]


APPLY = {"bias": _bias, "bn": _bn, "relu": _relu, "add": _add}


def pieces(maps: np.ndarray) -> Iterator[Piece]:
    """Maps [N, C, H, W], cut so that a piece holds about PIECE floats and at least one map."""
    N, C, H, W = maps.shape
    many = max(1, PIECE // (H * W))
    yield from ((n, slice(c, min(c + many, C))) for n in range(N) for c in range(0, C, many))


# -- what makes a piece -------------------------------------------------------------------------------------------
def _elementwise(core, front, own, tail, x, y, s) -> None:
    for at in pieces(x):
        np.copyto(y[at], x[at])
        _apply(tail, y[at], at)


def _conv(core, front, own, tail, x, y, s) -> None:
    """An image at a time: for each tap of the window a matrix product by the BLAS that NumPy is built with."""
    (w,) = own
    u, pad, (_, K, P, Q) = int(s["stride"]), int(s["pad"]), y.shape
    for n, image in enumerate(x):
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad))) if pad else image
        out = y[n].reshape(K, P * Q)
        out[...] = 0
        for r in range(w.shape[2]):
            for t in range(w.shape[3]):
                under = padded[:, r : r + (P - 1) * u + 1 : u, t : t + (Q - 1) * u + 1 : u]
                out += w[:, :, r, t] @ under.reshape(len(image), P * Q)
        for _, maps in pieces(y[n : n + 1]):
            _apply(tail, y[n, maps], (n, maps))


def _pool(core, front, own, tail, x, y, s) -> None:
    R, u, pad = (int(s[name]) for name in ("R", "stride", "pad"))
    for at in pieces(x):
        v = _fronted(front, x, at)
        if pad:
            beyond = -np.inf if core == "maxpool" else 0
            v = np.pad(v, ((0, 0), (pad, pad), (pad, pad)), constant_values=beyond)
        under = sliding_window_view(v, (R, R), axis=(1, 2))[:, ::u, ::u]
        (np.max if core == "maxpool" else np.mean)(under, axis=(3, 4), out=y[at])
        _apply(tail, y[at], at)


def _gap(core, front, own, tail, x, y, s) -> None:
    for at in pieces(x):
        np.mean(_fronted(front, x, at), axis=(1, 2), keepdims=True, out=y[at])
        _apply(tail, y[at], at)


def _fronted(front: Sequence, x: np.ndarray, at: Piece) -> np.ndarray:
    """A piece of x, gone through the prologue."""
    if not front:
        return x[at]
    v = x[at].copy()
    _apply(front, v, at)
    return v
