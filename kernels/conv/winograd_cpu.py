"""The Winograd kernels in NumPy, with the same arguments: the cpu engine runs these."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernels.conv import winograd_matrices
from kernels.model.at_once import at_once

R = 3  # taps of a filter, each way


def round_up_to_4(extent: int) -> int:
    """Round an extent up to a multiple of 4, the length of a row of 16-byte accesses."""
    return -(-extent // 4) * 4


def transform_2d(X: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Return X d X^T for every d [..., i, j], as [i', j', ...]."""
    return np.moveaxis(X @ d @ X.T, (-2, -1), (0, 1))


def input_tiles(x: np.ndarray, m: int, pad: tuple[int, int], output: tuple[int, int]) -> np.ndarray:
    """Returns a view [N, C, down, across, T, T] of the padded x [N, C, H, W].

    T = m + 2 pixels each way. Tiles begin m pixels apart. They cover the `output` (P, Q). `pad` is above and at the left.
    """
    side = m + R - 1

    def sides(extent: int, before: int, outputs: int) -> tuple[int, int]:
        tiles = -(-outputs // m)
        return before, tiles * m + R - 1 - extent - before

    widths = (sides(*axis) for axis in zip(x.shape[2:], pad, output, strict=True))
    padded = np.pad(x, ((0, 0), (0, 0), *widths))
    return np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::m, ::m]


def output_maps(tiles: np.ndarray, maps: Iterable[int], P: int, Q: int) -> np.ndarray:
    """Return [*maps, P, Q] of tiles [m, m, *maps, down, across], joined and cropped to P x Q."""
    m, _, *_, down, across = tiles.shape
    joined = np.moveaxis(tiles, (0, 1), (-3, -1))  # [*maps, down, m, across, m]
    return joined.reshape(*maps, down * m, across * m)[..., :P, :Q]


def filters(m: int):
    def winograd_filter(w: np.ndarray, U: np.ndarray, s: np.void) -> None:
        """Compute U [T*T, C, fours(K)] = G g G^T of w [K, C, 3, 3]."""
        _, G, _ = winograd_matrices.derive(m, R).arrays(w.dtype)
        u = transform_2d(G, w[:, :, ::-1, ::-1] if s["flip"] else w)  # [T, T, K, C]
        U[:, :, len(w) :] = 0
        U[:, :, : len(w)] = u.reshape(len(U), *w.shape[:2]).transpose(0, 2, 1)

    return winograd_filter


def inputs(m: int):
    def winograd_input(x: np.ndarray, V: np.ndarray, s: np.void) -> None:
        """Compute V [T*T, C, fours(tiles)] = B^T d B of every tile of x [N, C, H, W]."""
        _, _, BT = winograd_matrices.derive(m, R).arrays(x.dtype)
        tiles = input_tiles(x, m, (s["pad_h"], s["pad_w"]), (s["P"], s["Q"]))
        v = transform_2d(BT, tiles)  # [T, T, N, C, down, across]
        v = v.swapaxes(2, 3).reshape(*V.shape[:2], -1)
        V[:, :, v.shape[2] :] = 0
        V[:, :, : v.shape[2]] = v

    return winograd_input


def product(U: np.ndarray, V: np.ndarray, Z: np.ndarray, s: np.void, terms) -> None:
    """Compute Z[p] = U[p]^T V[p] for each position p with NumPy's BLAS: Z [parts*T*T, K, fours(tiles)].

    A part is the sum over `terms` channels.
    """
    for part, z in enumerate(Z.reshape(-1, len(U), *Z.shape[1:])):
        channels = slice(part * terms, (part + 1) * terms)
        np.matmul(U[:, channels, : Z.shape[1]].swapaxes(1, 2), V[:, channels], out=z)


def outputs(m: int):
    def winograd_output(Z: np.ndarray, y: np.ndarray, s: np.void, parts) -> None:
        """Compute y [N, K, P, Q] = A^T z A of every tile, z the sum of the parts in Z [parts*T*T, K, fours(tiles)]."""
        AT, _, _ = winograd_matrices.derive(m, R).arrays(Z.dtype)
        N, K, P, Q = y.shape
        down, across = -(-P // m), -(-Q // m)
        side = m + R - 1
        z = Z.reshape(parts, side * side, *Z.shape[1:]).sum(axis=0)[..., : N * down * across]
        z = z.reshape(side, side, K, N, down, across)
        tiles = transform_2d(AT, np.moveaxis(z, (0, 1), (-2, -1)))  # [m, m, K, N, down, across]
        y[...] = output_maps(tiles, (K, N), P, Q).swapaxes(0, 1)

    return winograd_output


def fused(m: int, channels: int):
    def winograd_fused(x: np.ndarray, U: np.ndarray, y: np.ndarray, s: np.void) -> None:
        """Compute y [N, K, P, Q] one image at a time, `channels` channels at a time.

        No more than the transformed input of those channels is in memory.
        """
        AT, _, BT = winograd_matrices.derive(m, R).arrays(x.dtype)
        _, K, P, Q = y.shape
        for image, out in zip(x, y, strict=True):
            tiles = input_tiles(image[None], m, (s["pad_h"], s["pad_w"]), (P, Q))[0]  # [C, down, across, T, T]
            down, across = tiles.shape[1:3]
            z = np.zeros((len(U), K, down * across), x.dtype)
            for c in range(0, len(image), channels):
                v = transform_2d(BT, tiles[c : c + channels]).reshape(len(U), -1, down * across)
                z = z + U[:, c : c + channels, :K].swapaxes(1, 2) @ v  # [T*T, K, tiles]
            z = z.reshape(*BT.shape, K, down, across)
            out[...] = output_maps(transform_2d(AT, np.moveaxis(z, (0, 1), (-2, -1))), (K,), P, Q)

    return winograd_fused


def error_scale(s, m: int, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Returns float64 [N, K, P, Q]: the algorithm on absolute values, the scale of its rounding errors.

    |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A| summed over channels. `s` is a ConvShape.
    """
    AT, G, BT = (np.abs(X) for X in winograd_matrices.derive(m, R).arrays("float64"))
    u = transform_2d(G, np.abs(w[:, :, ::-1, ::-1] if s.flip else w).astype("float64"))
    u = np.ascontiguousarray(u)  # [T, T, K, C], as BLAS takes it
    side, y = len(BT), np.empty(s.y_shape)

    def image(n: int) -> None:
        image_x = np.abs(x[n : n + 1]).astype("float64")
        tiles = input_tiles(image_x, m, s.pad, (s.P, s.Q))[0]  # [C, down, across, T, T]
        down, across = tiles.shape[1:3]
        z = u @ transform_2d(BT, tiles).reshape(side, side, s.C, -1)  # [T, T, K, tiles]
        z = np.moveaxis(z.reshape(side, side, s.K, down, across), (0, 1), (-2, -1))
        y[n] = output_maps(transform_2d(AT, z), (s.K,), s.P, s.Q)

    at_once(image, range(s.N))
    return y
