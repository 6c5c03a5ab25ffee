"""The kernels in NumPy, with the same arguments: the cpu engine runs these."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def windows(x: np.ndarray, s: np.void) -> np.ndarray:
    """Returns a view [N, C, P, Q, R, S] of x [N, C, H, W]: the window under each output pixel.

    Nothing is copied, except the padded input if there is padding. The struct has the padding before the input. The
    padding after it is what the last window needs.
    """
    span = (s["dilation_h"] * (s["R"] - 1) + 1, s["dilation_w"] * (s["S"] - 1) + 1)
    rows, columns = (s["P"] - 1) * s["u"] + span[0], (s["Q"] - 1) * s["v"] + span[1]  # that all windows read
    below, right = rows - s["pad_h"] - x.shape[2], columns - s["pad_w"] - x.shape[3]
    if max(s["pad_h"], s["pad_w"], below, right) > 0:
        x = np.pad(x, ((0, 0), (0, 0), (s["pad_h"], max(0, below)), (s["pad_w"], max(0, right))))
    windows = sliding_window_view(x[:, :, :rows, :columns], span, axis=(2, 3))[:, :, :: s["u"], :: s["v"]]
    windows = windows[..., :: s["dilation_h"], :: s["dilation_w"]]
    return windows[..., ::-1, ::-1] if s["flip"] else windows


def direct(x: np.ndarray, w: np.ndarray, y: np.ndarray, s: np.void) -> None:
    """Compute y [N,K,P,Q], the sum over each window, without writing the windows out."""
    for image_windows, out in zip(windows(x, s), y, strict=True):
        np.einsum("cpqrs,kcrs->kpq", image_windows, w, out=out)


def im2col(x: np.ndarray, col: np.ndarray, s: np.void) -> None:
    """Write col [N, C*R*S, P*Q]: every window of x as a column."""
    N, C, P, Q, R, S = (int(s[name]) for name in "NCPQRS")
    col.reshape(N, C, R, S, P, Q)[...] = windows(x, s).transpose(0, 1, 4, 5, 2, 3)


def tiled_gemm(tile: int):
    """Returns a function for C[n] = A x B[n] like kernels/conv/cuda/03_gemm.cu.

    It computes square tiles of C, in steps along the inner dimension.
    """

    def gemm(A: np.ndarray, B: np.ndarray, C: np.ndarray, rows, cols, inner) -> None:
        for Bn, Cn in zip(B, C, strict=True):
            for i in range(0, rows, tile):
                for j in range(0, cols, tile):
                    square = Cn[i : i + tile, j : j + tile]
                    square[...] = 0
                    for k in range(0, inner, tile):
                        square += A[i : i + tile, k : k + tile] @ Bn[k : k + tile, j : j + tile]

    return gemm


def library_gemm(A: np.ndarray, B: np.ndarray, C: np.ndarray, rows, cols, inner) -> None:
    """Compute C[n] = A x B[n] with NumPy's BLAS."""
    np.matmul(A, B, out=C)


def bias_relu(b: np.ndarray, y: np.ndarray, s: np.void, layer: np.void) -> None:
    """Change y [N,K,P,Q] in place: add b[k] if there is a bias, set negative values to 0 if there is ReLU."""
    if layer["bias"]:
        y += b[:, None, None]
    if layer["relu"]:
        np.maximum(y, 0, out=y)


def direct_tiled(filters: int, tile: int, chunk: int):
    """Returns a function like conv/direct-tiled: square tiles of the output, `filters` filters at a time.

    The sums are computed from `chunk` maps at a time.
    """

    def compute(x: np.ndarray, w: np.ndarray, b: np.ndarray, y: np.ndarray, s: np.void, layer: np.void) -> None:
        view = windows(x, s)  # [N, C, P, Q, R, S]
        maps, per_group = w.shape[1], len(w) // int(layer["groups"])
        for first in range(0, len(w), per_group):
            group = view[:, first // per_group * maps :][:, :maps]
            for k in range(first, first + per_group, filters):
                w_part = w[k : min(k + filters, first + per_group)]
                for p in range(0, y.shape[2], tile):
                    for q in range(0, y.shape[3], tile):
                        out = y[:, k : k + len(w_part), p : p + tile, q : q + tile]
                        out[...] = 0
                        for c in range(0, maps, chunk):
                            patch = group[:, c : c + chunk, p : p + tile, q : q + tile]
                            out += np.einsum("ncpqrs,kcrs->nkpq", patch, w_part[:, c : c + chunk])
        bias_relu(b, y, s, layer)

    return compute


def implicit_gemm(bm: int, bn: int, bk: int):
    """Returns a function like conv/implicit-gemm: y is a matrix [K/groups, N*P*Q] for each group.

    It computes one tile bm x bn at a time, in steps of bk along C/groups*R*S. Each tile of the data matrix is made
    when it is needed.
    """

    def compute(x: np.ndarray, w: np.ndarray, b: np.ndarray, y: np.ndarray, s: np.void, layer: np.void, *_) -> None:
        view = windows(x, s)
        groups = int(layer["groups"])
        maps, per_group = w.shape[1], len(w) // groups
        rows = w.reshape(groups, per_group, -1)
        inner, pixels = rows.shape[2], y.shape[2] * y.shape[3]
        flat = y.reshape(len(y), groups, per_group, pixels)
        for j in range(0, len(y) * pixels, bn):
            n, pq = np.divmod(np.arange(j, min(j + bn, len(y) * pixels)), pixels)
            p, q = np.divmod(pq, y.shape[3])
            for g in range(groups):
                for i in range(0, per_group, bm):
                    sums = np.zeros((len(rows[g, i : i + bm]), len(n)), np.float32)
                    for k in range(0, inner, bk):
                        c, r, t = np.unravel_index(np.arange(k, min(k + bk, inner)), w.shape[1:])
                        data = view[n, g * maps + c[:, None], p, q, r[:, None], t[:, None]]  # [bk, bn]
                        sums += rows[g, i : i + bm, k : k + bk] @ data
                    flat[n, g, i : i + bm, pq] = sums.T
        bias_relu(b, y, s, layer)

    return compute
