"""The kernels of the backward pass in NumPy, with the same arguments: the cpu engine runs these."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from kernels.conv.cpu import windows


def _taps(s: np.void) -> Iterator[tuple[int, int, slice, slice, slice, slice]]:
    """Yields (r, t, rows, columns, p, q) of each tap: input pixels that it multiplies, and the outputs that it feeds.

    Outputs whose tap is in the padding are left out.
    """
    for r, t in product(range(int(s["R"])), range(int(s["S"]))):
        h, v = (int(s["R"]) - 1 - r, int(s["S"]) - 1 - t) if s["flip"] else (r, t)
        rows, p = _inside(h * int(s["dilation_h"]) - int(s["pad_h"]), *(int(s[name]) for name in ("u", "P", "H")))
        columns, q = _inside(v * int(s["dilation_w"]) - int(s["pad_w"]), *(int(s[name]) for name in ("v", "Q", "W")))
        yield r, t, rows, columns, p, q


def _inside(offset: int, stride: int, outputs: int, extent: int) -> tuple[slice, slice]:
    """Returns (inputs, outputs) of one axis: output o reads input offset + o * stride, where that is inside."""
    first = max(0, -(offset // stride))
    end = max(first, min(outputs, (extent - 1 - offset) // stride + 1))
    start = offset + first * stride
    return slice(start, start + max(0, (end - first - 1) * stride + 1) * (end > first), stride), slice(first, end)


# -- gradient of the input -----------------------------------------------------------------------------
def dinput_direct(dy: np.ndarray, w: np.ndarray, dx: np.ndarray, s: np.void, layer: np.void) -> None:
    """Compute dx [N,C,H,W] tap by tap: each tap adds its products to the pixels that it was multiplied by."""
    groups = int(layer["groups"])
    N, K, P, Q = dy.shape
    grouped = dy.reshape(N, groups, K // groups, P, Q)
    taps = w.reshape(groups, K // groups, *w.shape[1:])
    out = dx.reshape(N, groups, w.shape[1], *dx.shape[2:])
    out[...] = 0
    for r, t, rows, columns, p, q in _taps(s):
        out[..., rows, columns] += np.einsum("ngkpq,gkc->ngcpq", grouped[..., p, q], taps[..., r, t])


def gemm_transposed(tile: int):
    """Returns a function for C[n] = A transposed x B[n], with A [inner, rows], like 21_gemm_transposed.cu.

    It computes square tiles of C, in steps along the inner dimension.
    """

    def gemm(A: np.ndarray, B: np.ndarray, C: np.ndarray, rows, cols, inner) -> None:
        A = A.reshape(inner, rows)
        for Bn, Cn in zip(B.reshape(len(B), inner, cols), C, strict=True):
            for i in range(0, rows, tile):
                for j in range(0, cols, tile):
                    square = Cn[i : i + tile, j : j + tile]
                    square[...] = 0
                    for k in range(0, inner, tile):
                        square += A[k : k + tile, i : i + tile].T @ Bn[k : k + tile, j : j + tile]

    return gemm


def col2im_scatter(col: np.ndarray, dx: np.ndarray, s: np.void) -> None:
    """Add each element of col [N, C*R*S, P*Q] to the pixel of dx [N,C,H,W] that it was copied from, row by row."""
    N, C, H, W = dx.shape
    rows = col.reshape(N, C, int(s["R"]), int(s["S"]), int(s["P"]), int(s["Q"]))
    numbers = np.arange(H * W).reshape(H, W)
    flat = dx.reshape(N, C, H * W)
    for r, t, h, v, p, q in _taps(s):
        # NumPy's types know fewer indices than NumPy.
        at = slice(None), slice(None), numbers[h, v].ravel()
        np.add.at(flat, at, rows[:, :, r, t, p, q].reshape(N, C, -1))  # pyright: ignore[reportArgumentType]


def col2im_gather(col: np.ndarray, dx: np.ndarray, s: np.void) -> None:
    """Set each row of pixels of dx [N,C,H,W] to the sum of the elements of col that were copied from it."""
    N, C = dx.shape[:2]
    rows = col.reshape(N, C, int(s["R"]), int(s["S"]), int(s["P"]), int(s["Q"]))
    sums = np.zeros_like(dx)
    for r, t, h, v, p, q in _taps(s):
        sums[:, :, h, v] += rows[:, :, r, t, p, q]
    dx[...] = sums


def dinput_implicit_gemm(bm: int, bn: int, bk: int):
    """Returns a function like 24_dinput_implicit_gemm.cu: each phase is a matrix [C/groups, N*pixels] per group.

    It computes one tile bm x bn at a time, in steps of bk along K/groups*taps.
    """

    def compute(dy: np.ndarray, w: np.ndarray, dx: np.ndarray, s: np.void, layer: np.void, phases: np.void) -> None:
        for h in range(min(int(s["u"]), dx.shape[2])):
            for v in range(int(phases["across"])):
                vertical = _axis(h, "H", "u", "pad_h", "dilation_h", "R", "tap_step_h", s, phases)
                horizontal = _axis(v, "W", "v", "pad_w", "dilation_w", "S", "tap_step_w", s, phases)
                for group in range(int(layer["groups"])):
                    _phase(dy, w, dx, s, (vertical, horizontal), group, int(layer["groups"]), (bm, bn, bk))

    return compute


def _axis(first: int, extent, stride, pad, dilation, taps, step, s: np.void, phases: np.void) -> tuple:
    """Returns (pixels, filter taps, outputs [taps, pixels]) of one axis of a phase, as find_axis in the kernel."""
    stride, dilation = int(s[stride]), int(s[dilation])
    pixels = np.arange(first, int(s[extent]), stride)
    taps = np.arange(int(s[taps]))
    taps = taps[(first + int(s[pad]) - taps * dilation) % stride == 0]
    assert (np.diff(taps) == phases[step]).all()
    return pixels, taps, (pixels + int(s[pad]) - taps[:, None] * dilation) // stride


def _phase(dy, w, dx, s: np.void, axes: tuple, group: int, groups: int, tiles: tuple[int, int, int]) -> None:
    """Compute the pixels of one phase and one group of dx."""
    (rows, taps_h, p), (columns, taps_w, q) = axes
    bm, bn, bk = tiles
    N, per_group, maps = len(dy), len(w) // groups, w.shape[1]
    if s["flip"]:
        taps_h, taps_w = w.shape[2] - 1 - taps_h, w.shape[3] - 1 - taps_w
    filters = w[group * per_group :][:per_group]
    A = filters[:, :, taps_h[:, None], taps_w].transpose(1, 0, 2, 3).reshape(maps, -1)
    shape, pixels = (per_group, len(taps_h), len(taps_w)), len(rows) * len(columns)
    for j in range(0, N * pixels, bn):
        n, pixel = np.divmod(np.arange(j, min(j + bn, N * pixels)), pixels)
        h, v = np.divmod(pixel, len(columns))
        for i in range(0, maps, bm):
            sums = np.zeros((len(A[i : i + bm]), len(n)), np.float32)
            for k in range(0, A.shape[1], bk):
                f, a, b = np.unravel_index(np.arange(k, min(k + bk, A.shape[1])), shape)
                at = p[a][:, h], q[b][:, v]  # [bk, bn]
                sums += A[i : i + bm, k : k + bk] @ _read(dy, n, group * per_group + f[:, None], *at)
            dx[n, group * maps + i : group * maps + i + len(sums), rows[h], columns[v]] = sums.T


def _read(dy: np.ndarray, n, k, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Returns dy[n, k, p, q], and 0 outside the output."""
    inside = (p >= 0) & (p < dy.shape[2]) & (q >= 0) & (q < dy.shape[3])
    return np.where(inside, dy[n, k, np.where(inside, p, 0), np.where(inside, q, 0)], np.float32(0))


# -- gradient of the filters ---------------------------------------------------------------------------
def dweight_direct(x: np.ndarray, dy: np.ndarray, dw: np.ndarray, s: np.void, layer: np.void) -> None:
    """Compute dw [K,C/groups,R,S] tap by tap: the sum over all images of the sums of their rows."""
    groups, (N, K, P, Q) = int(layer["groups"]), dy.shape
    gradient = dy.reshape(N, groups, K // groups, P, Q).swapaxes(2, 3)  # [N, groups, P, K/groups, Q]
    pixels = np.moveaxis(x.reshape(N, groups, dw.shape[1], *x.shape[2:]), 2, -1)  # [N, groups, H, W, C/groups]
    out = dw.reshape(groups, K // groups, *dw.shape[1:])
    out[...] = 0
    for r, t, rows, columns, p, q in _taps(s):
        for n in range(N):
            of_rows = gradient[n][:, p, :, q] @ pixels[n][:, rows, columns]  # [groups, P, K/groups, C/groups]
            out[..., r, t] += of_rows.sum(axis=1)


def gemm_sum(tile: int):
    """Returns a function for C = the sum over n of A[n] x B[n] transposed, like 26_gemm_sum.cu.

    It computes square tiles of C, in steps along the inner dimension, with a sum for each n.
    """

    def gemm(A: np.ndarray, B: np.ndarray, C: np.ndarray, rows, cols, inner, batch) -> None:
        A, B, C = A.reshape(batch, rows, inner), B.reshape(batch, cols, inner), C.reshape(rows, cols)
        for i in range(0, rows, tile):
            for j in range(0, cols, tile):
                square = C[i : i + tile, j : j + tile]
                square[...] = 0
                for An, Bn in zip(A[:, i : i + tile], B[:, j : j + tile], strict=True):
                    steps = range(0, inner, tile)
                    square += sum(An[:, k : k + tile] @ Bn[:, k : k + tile].T for k in steps)

    return gemm


def dweight_parts(bn: int, bk: int, adds: bool):
    """Returns a function like 28_dweight_implicit_gemm.cu: the sum over N*P*Q in parts of `terms`.

    Each part is computed bn columns at a time, in steps of bk. `adds`: it is added to dw, as 27_dweight_atomics.cu
    does; otherwise it is stored in its own array of [parts, K, C/groups, R, S].
    """

    def compute(x, dy, out: np.ndarray, s: np.void, layer: np.void, divisors: np.void, terms) -> None:
        view, groups = windows(x, s), int(layer["groups"])
        stored = out.reshape(-1, *out.shape[-4:])  # a single part is dw itself
        inner = len(dy) * dy.shape[2] * dy.shape[3]
        for part, first in enumerate(range(0, inner, int(terms))):
            numbers = np.arange(first, min(first + int(terms), inner))
            for group in range(groups):
                sums = _part(view, dy, group, groups, numbers, out.shape[-3:], bn, bk)
                if adds:
                    stored[0, group * len(sums) :][: len(sums)] += sums
                else:
                    stored[part, group * len(sums) :][: len(sums)] = sums

    return compute


def _part(view, dy, group: int, groups: int, numbers: np.ndarray, filter_shape, bn: int, bk: int) -> np.ndarray:
    """Returns float32 [K/groups, C/groups, R, S]: the sum over the output pixels `numbers` (flat in N, P, Q)."""
    per_group, columns = dy.shape[1] // groups, int(np.prod(filter_shape))
    sums = np.zeros((per_group, columns), np.float32)
    filters = slice(group * per_group, (group + 1) * per_group)
    for k in range(0, len(numbers), bk):
        n, p, q = np.unravel_index(numbers[k : k + bk], (len(dy), *dy.shape[2:]))
        gradient = dy[n, filters, p, q]  # [bk, K/groups]
        for j in range(0, columns, bn):
            c, r, t = np.unravel_index(np.arange(j, min(j + bn, columns)), filter_shape)
            data = view[n[:, None], group * filter_shape[0] + c, p[:, None], q[:, None], r, t]
            sums[:, j : j + bn] += gradient.T @ data
    return sums.reshape(per_group, *filter_shape)


def sum_parts(parts: np.ndarray, result: np.ndarray, count, part_count) -> None:
    """Add parts [part_count, ...] in their order and write the sum to `result`."""
    result[...] = parts[0]
    for part in parts[1:]:
        result += part
