"""The steps of conv/fft-tiled in NumPy, with the same arguments: the cpu engine runs these.

Spectra are float32 [frequencies, 2, rows, columns]: the second axis is (real, imaginary). A real tile of T x T numbers
has T*T/2 + 2 frequencies: all T of columns 1 to T/2 - 1, then the first T/2 + 1 of columns 0 and T/2.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kernels.conv import cpu, fft_cpu


@lru_cache(maxsize=8)
def stored(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rows, columns) of the frequencies that are stored, in their order."""
    half = size // 2
    inner = [(row, column) for column in range(1, half) for row in range(size)]
    edges = [(row, column) for column in (0, half) for row in range(half + 1)]
    rows, columns = np.array([*inner, *edges]).T
    return rows, columns


def _store(spectra: np.ndarray, target: np.ndarray) -> None:
    """Write spectra [rows, columns, T, T/2 + 1] to target [frequencies, 2, rows, columns], and zeros beyond."""
    down, across = stored(spectra.shape[2])
    values = spectra[:, :, down, across].transpose(2, 0, 1)
    target[...] = 0
    target[:, 0, :, : values.shape[2]], target[:, 1, :, : values.shape[2]] = np.real(values), np.imag(values)


def filters(size: int):
    def fft_tiled_filter(w: np.ndarray, U: np.ndarray, s: np.void) -> None:
        """Compute U [frequencies, 2, C, fours(K)]: the conjugate spectra of w [K, C, R, S], divided by T*T."""
        padded = np.empty((*w.shape[:2], size, size), w.dtype)
        fft_cpu.pad_filter(w, padded, s)
        _store(np.fft.rfft2(padded).conj().swapaxes(0, 1) / np.float32(size * size), U)

    return fft_tiled_filter


def inputs(x: np.ndarray, V: np.ndarray, s: np.void, cut: np.void) -> None:
    """Compute V [frequencies, 2, C, fours(tiles)]: the spectra of the tiles of x [N, C, H, W]."""
    N, C = x.shape[:2]
    size, down, across = (int(cut[name]) for name in ("rows", "down", "across"))
    padded = np.empty((N, down, across, C, size, size), x.dtype)
    fft_cpu.pad_input(x, padded, s, cut)
    _store(np.fft.rfft2(padded.reshape(-1, C, size, size)).swapaxes(0, 1), V)


def product(U: np.ndarray, V: np.ndarray, Z: np.ndarray, K, C, row, frequencies, terms) -> None:
    """Compute Z [parts, frequencies, 2, K, row] = U^T V for each frequency, in parts of `terms` channels."""
    u, v = (a[:, 0] + 1j * a[:, 1] for a in (U, V))
    for part, z in enumerate(Z):
        channels = slice(part * terms, (part + 1) * terms)
        sums = np.matmul(u[:, channels, :K].swapaxes(1, 2), v[:, channels])
        z[:, 0], z[:, 1] = sums.real, sums.imag


def outputs(Z: np.ndarray, b: np.ndarray, y: np.ndarray, s: np.void, cut: np.void, layer: np.void, parts) -> None:
    """Compute y [N, K, P, Q] from the sum of Z [parts, frequencies, 2, K, fours(tiles)]."""
    N, K, P, Q = y.shape
    size, down, across = (int(cut[name]) for name in ("rows", "down", "across"))
    z = Z.sum(axis=0)[..., : N * down * across]
    rows, columns = stored(size)
    spectra = np.zeros((size, size // 2 + 1, *z.shape[2:]), np.complex64)
    spectra[rows, columns] = z[:, 0] + 1j * z[:, 1]
    for column in (0, size // 2):  # the second half of a real column is the conjugate of the first
        spectra[size // 2 + 1 :, column] = spectra[size // 2 - 1 : 0 : -1, column].conj()
    dense = np.fft.irfft2(spectra, (size, size), axes=(0, 1), norm="forward")
    dense = dense.reshape(size, size, K, N, down, across)
    tile_h, row = np.divmod(np.arange(P) * s["u"], cut["step_h"])
    tile_w, column = np.divmod(np.arange(Q) * s["v"], cut["step_w"])
    picked = dense[row[:, None], column, :, :, tile_h[:, None], tile_w]  # [P, Q, K, N]
    y[...] = picked.transpose(3, 2, 0, 1)
    cpu.bias_relu(b, y, s, layer)
