"""The kernels of the fusion ladder in NumPy, with the same arguments: the cpu engine runs these.

A function works like its kernel, with a piece of the maps in the CPU's cache instead of a value in a register. All
blocks of the group are applied to the piece while it is in the cache. An unfused chain reads and writes the whole maps
once for each block, in the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kernels.fusion.codegen import Group
from kernels.fusion.shape import TENSORS

PIECE = 2**16  # floats in a piece: 256 KB
Piece = tuple[int, slice]  # image, maps


def group(kinds: Sequence[str]) -> Callable[..., None]:
    """Returns the NumPy function for the kernel of a group of blocks (kernels.fusion.codegen.Group) or of one block."""
    fused_group = Group(0, tuple(kinds))
    core = {"": _elementwise, "conv": _conv, "maxpool": _pool, "avgpool": _pool, "gap": _gap}[fused_group.core]

    def compute(x: np.ndarray, *rest) -> None:
        *tensors, y, s = (a for a in rest if not (np.ndim(a) == 0 and a.dtype == np.float32))
        eps = iter(a for a in rest if np.ndim(a) == 0 and a.dtype == np.float32)
        arrays = iter(tensors)
        tensors_of = [[next(arrays) for _ in TENSORS.get(kind, ())] for kind in fused_group.kinds]
        tensors_of = [
            [*t, next(eps)] if kind == "bn" else t for kind, t in zip(fused_group.kinds, tensors_of, strict=True)
        ]
        blocks = list(zip(fused_group.kinds, tensors_of, strict=True))
        prologue, epilogue = ([blocks[n] for n in part] for part in (fused_group.prologue, fused_group.epilogue))
        core_tensors = tensors_of[fused_group.kinds.index(fused_group.core)] if fused_group.core else ()
        with np.errstate(over="ignore", invalid="ignore"):
            core(fused_group.core, prologue, core_tensors, epilogue, x, y, s)

    return compute


def fold(w, b, gamma, beta, mean, var, b_folded, w_folded, K, taps, bias, eps) -> None:
    """Fold batch norm into the weights and the bias of the convolution before it."""
    gain = gamma / np.sqrt(var + eps)
    np.multiply(w, gain[:, None, None, None], out=w_folded)
    np.multiply((b if bias else 0) - mean, gain, out=b_folded)
    b_folded += beta


# -- pointwise blocks, in place on a piece [maps, H, W] ------------------------------------------------------------
def _apply(blocks: Sequence, v: np.ndarray, piece: Piece) -> None:
    for kind, tensors_of in blocks:
        APPLY[kind](v, piece, *tensors_of)


def _bias(v: np.ndarray, piece: Piece, b: np.ndarray) -> None:
    v += b[piece[1], None, None]


def _bn(v: np.ndarray, piece: Piece, gamma, beta, mean, var, eps) -> None:
    maps = piece[1]
    v -= mean[maps, None, None]
    v *= (gamma[maps] / np.sqrt(var[maps] + eps))[:, None, None]
    v += beta[maps, None, None]


def _relu(v: np.ndarray, piece: Piece) -> None:
    np.maximum(v, 0, out=v)


def _add(v: np.ndarray, piece: Piece, z: np.ndarray) -> None:
    v += z[piece]


APPLY = {"bias": _bias, "bn": _bn, "relu": _relu, "add": _add}


def pieces(maps: np.ndarray) -> Iterator[Piece]:
    """Yields the pieces of maps [N, C, H, W]. A piece has about PIECE floats and at least one map."""
    N, C, H, W = maps.shape
    maps_per_piece = max(1, PIECE // (H * W))
    yield from ((n, slice(c, min(c + maps_per_piece, C))) for n in range(N) for c in range(0, C, maps_per_piece))


# -- functions that compute a piece -------------------------------------------------------------------------------------------
def _elementwise(core, prologue, core_tensors, epilogue, x, y, s) -> None:
    for piece in pieces(x):
        np.copyto(y[piece], x[piece])
        _apply(epilogue, y[piece], piece)


def _conv(core, prologue, core_tensors, epilogue, x, y, s) -> None:
    """Compute one image at a time: for each tap of the window a matrix product with NumPy's BLAS."""
    (w,) = core_tensors
    u, pad, (_, K, P, Q) = int(s["stride"]), int(s["pad"]), y.shape
    for n, image in enumerate(x):
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad))) if pad else image
        out = y[n].reshape(K, P * Q)
        out[...] = 0
        for r in range(w.shape[2]):
            for t in range(w.shape[3]):
                window_values = padded[:, r : r + (P - 1) * u + 1 : u, t : t + (Q - 1) * u + 1 : u]
                out += w[:, :, r, t] @ window_values.reshape(len(image), P * Q)
        for _, maps in pieces(y[n : n + 1]):
            _apply(epilogue, y[n, maps], (n, maps))


def _pool(core, prologue, core_tensors, epilogue, x, y, s) -> None:
    R, u, pad = (int(s[name]) for name in ("R", "stride", "pad"))
    for piece in pieces(x):
        v = _after_prologue(prologue, x, piece)
        if pad:
            fill = -np.inf if core == "maxpool" else 0
            v = np.pad(v, ((0, 0), (pad, pad), (pad, pad)), constant_values=fill)
        window_values = sliding_window_view(v, (R, R), axis=(1, 2))[:, ::u, ::u]
        (np.max if core == "maxpool" else np.mean)(window_values, axis=(3, 4), out=y[piece])
        _apply(epilogue, y[piece], piece)


def _gap(core, prologue, core_tensors, epilogue, x, y, s) -> None:
    for piece in pieces(x):
        np.mean(_after_prologue(prologue, x, piece), axis=(1, 2), keepdims=True, out=y[piece])
        _apply(epilogue, y[piece], piece)


def _after_prologue(prologue: Sequence, x: np.ndarray, piece: Piece) -> np.ndarray:
    """Returns a piece of x with the prologue applied."""
    if not prologue:
        return x[piece]
    v = x[piece].copy()
    _apply(prologue, v, piece)
    return v
