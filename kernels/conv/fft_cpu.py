"""The steps of conv/fft in NumPy, with the same arguments: the cpu engine runs these.

Spectra are float32 with (real, imaginary) as their last axis, as in the kernels.
"""

from __future__ import annotations

import numpy as np

from kernels.conv import cpu


def _complex(spectra: np.ndarray) -> np.ndarray:
    """Returns a view complex64 [...] of float32 [..., 2]."""
    return spectra.view(np.complex64)[..., 0]


def pad_input(x: np.ndarray, padded: np.ndarray, s: np.void, cut: np.void) -> None:
    """Write padded [N, down, across, C, rows, columns]: each part of x [N, C, H, W], zeros outside x."""
    padded[...] = 0
    H, W = x.shape[2:]
    for i, j in np.ndindex(padded.shape[1:3]):
        top, left = i * cut["step_h"] - s["pad_h"], j * cut["step_w"] - s["pad_w"]
        h = slice(max(top, 0), max(min(top + cut["rows"], H), 0))
        w = slice(max(left, 0), max(min(left + cut["columns"], W), 0))
        part = x[:, :, h, w]
        rows, columns = part.shape[2:]
        if rows and columns:
            padded[:, i, j, :, h.start - top :, w.start - left :][:, :, :rows, :columns] = part


def pad_filter(w: np.ndarray, padded: np.ndarray, s: np.void, cut: np.void | None = None) -> None:
    """Write padded [K, C, rows, columns]: the taps of w [K, C, R, S], dilated, in the corner."""
    padded[...] = 0
    R, S, down, across = (int(s[name]) for name in ("R", "S", "dilation_h", "dilation_w"))
    taps = w[:, :, ::-1, ::-1] if s["flip"] else w
    padded[:, :, : down * (R - 1) + 1 : down, : across * (S - 1) + 1 : across] = taps


def forward(padded: np.ndarray, spectra: np.ndarray) -> None:
    """Compute spectra [..., rows, columns//2 + 1, 2] of real arrays [..., rows, columns], in float32."""
    _complex(spectra)[...] = np.fft.rfft2(padded)


def inverse(spectra: np.ndarray, dense: np.ndarray) -> None:
    """Compute dense [..., rows, columns] from spectra, unscaled like cuFFT: rows*columns times the values."""
    dense[...] = np.fft.irfft2(_complex(spectra), dense.shape[-2:], norm="forward")


def multiply(X: np.ndarray, W: np.ndarray, Y: np.ndarray, images, K, C, frequencies) -> None:
    """Compute Y [images, K, frequencies], a matrix product for each frequency.

    Y is the sum over C of X [images, C, frequencies] times the conjugate of W [K, C, frequencies].
    """
    x = _complex(X).reshape(images, C, frequencies)
    w = _complex(W).reshape(K, C, frequencies)
    product = np.matmul(x.transpose(2, 0, 1), w.conj().transpose(2, 1, 0))  # [frequencies, images, K]
    _complex(Y).reshape(images, K, frequencies)[...] = product.transpose(1, 2, 0)


def pick(dense: np.ndarray, b: np.ndarray, y: np.ndarray, s: np.void, cut: np.void, layer: np.void) -> None:
    """Copy y [N, K, P, Q] out of dense [N, down, across, K, rows, columns], divided by rows*columns."""
    tile_h, row = np.divmod(np.arange(s["P"]) * s["u"], cut["step_h"])
    tile_w, column = np.divmod(np.arange(s["Q"]) * s["v"], cut["step_w"])
    picked = dense[:, tile_h[:, None], tile_w, :, row[:, None], column]  # [P, Q, N, K]
    size = np.float32(cut["rows"]) * np.float32(cut["columns"])
    np.divide(picked.transpose(2, 3, 0, 1), size, out=y)
    cpu.bias_relu(b, y, s, layer)
