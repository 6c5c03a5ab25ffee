"""The arrays of conv/fft as pictures, and the correct output beside one that wrapped. Pure functions."""

from __future__ import annotations

import numpy as np

from kernels.i18n import decimal, tr, trn
from visuals.conv.fft.arrays import Arrays, degrees, part_of, snap_to_integers

MAX_PX = 256  # rows and columns of a picture: a page scales it
TOLERANCE = 1e-5  # of the largest possible output: a pixel with a larger error is wrong, not rounded

Picture = tuple[np.ndarray, str, str]  # values, role, caption


def whole_spectrum(half: np.ndarray, columns: int) -> np.ndarray:
    """Returns complex [rows, columns] from its stored half [rows, columns // 2 + 1]. For real numbers, frequency
    (-u, -v) is the conjugate of (u, v). Frequency (0, 0) is in the middle."""
    rows = len(half)
    full = np.empty((rows, columns), half.dtype)
    full[:, : half.shape[1]] = half
    u, v = np.arange(rows), np.arange(half.shape[1], columns)
    full[:, half.shape[1] :] = half[(-u % rows)[:, None], columns - v].conj()
    return np.fft.fftshift(full)


def logarithm(half: np.ndarray, columns: int) -> np.ndarray:
    """Returns float64 [rows, columns]: log(1 + |.|) of the whole spectrum."""
    return np.log1p(np.abs(whole_spectrum(half, columns)).astype(np.float64))


def phases(half: np.ndarray, columns: int) -> np.ndarray:
    """Returns float64 [rows, columns]: the phases of the whole spectrum in degrees. Of a large one, every nth row and
    column: a mean of angles would mean nothing."""
    full = whole_spectrum(half, columns)
    step = -(-max(full.shape) // MAX_PX)
    size = np.abs(full).max()
    return degrees(snap_to_integers(full, size)[::step, ::step].astype(np.complex128))


def pipeline_pictures(a: Arrays, picture: str, name: str, channels: int) -> list[Picture]:
    """Returns (values, role, caption) of every array of one transform: the one on the stage."""
    part, size = part_of(a), f"{a.rows} × {a.columns}"
    padded = tr("Padded input: {picture}, {size}", picture=picture, size=size)
    details = [tr("transform {down}, {across}", down=part.down, across=part.across)] * (a.tiles != (1, 1))
    details += [tr("first channel")] * (channels > 1)
    taps = f"{a.shape.R} × {a.shape.S}"
    x, X, Y, d = (array[part.down, part.across] for array in (a.x_padded, a.X, a.Y, a.dense))
    p, q = (
        np.flatnonzero(np.arange(n) * u // int(step) == tile)
        for n, u, step, tile in (
            (a.shape.P, a.shape.u, a.cut["step_h"], part.down),
            (a.shape.Q, a.shape.v, a.cut["step_w"], part.across),
        )
    )
    output = a.y[p[0] : p[-1] + 1, q[0] : q[-1] + 1]
    return [
        (x[0], "input", ", ".join([padded, *details])),
        (logarithm(X[0], a.columns), "input", tr("X = FFT(x), its spectrum: magnitude")),
        (phases(X[0], a.columns), "input", tr("phase of X")),
        (a.w_padded[0], "filter", tr("Padded filter: {name}, {taps} taps in {size}", name=name, taps=taps, size=size)),
        (logarithm(a.W[0], a.columns), "filter", tr("W = FFT(w), its spectrum: magnitude")),
        (phases(a.W[0], a.columns), "filter", tr("phase of W")),
        (
            logarithm(Y, a.columns),
            "output",
            tr("Y, the product, over all {n} channels", n=decimal(f"{channels:,}"))
            if channels > 1
            else tr("Y, the product"),
        ),
        (phases(Y, a.columns), "output", tr("phase of Y")),
        (d, "output", tr("d = FFT⁻¹(Y), the inverse transform, {size}", size=size)),
        (output, "output", tr("Output, {size}", size=f"{output.shape[0]} × {output.shape[1]}")),
    ]


def smaller(values: np.ndarray) -> np.ndarray:
    """Returns the mean over squares of pixels, so that neither side has more than MAX_PX."""
    factor = -(-max(values.shape) // MAX_PX)
    if factor == 1:
        return values
    rows, columns = (max(n // factor, 1) for n in values.shape)
    cut = values[: rows * factor, : columns * factor]
    return cut.reshape(rows, cut.shape[0] // rows, columns, cut.shape[1] // columns).mean(axis=(1, 3))


# -- wrap-around -------------------------------------------------------------------------------------
def wrong(small: Arrays, expected: np.ndarray) -> np.ndarray:
    """Returns bool [P, Q]: pixels that differ from the correct ones by more than rounding."""
    return np.abs(small.y - expected) > TOLERANCE * small.max_output


def wrapped_pictures(large: Arrays, small: Arrays, expected: np.ndarray) -> list[Picture]:
    """Returns the correct output, the output of too small a transform, and their differences."""
    right, wrong_size = (f"{a.rows} × {a.columns}" for a in (large, small))
    if small.tiles == (1, 1):
        captions = (
            tr("Correct: transforms of {size}", size=right),
            tr("Too small: transforms of {size}", size=wrong_size),
        )
    else:
        captions = (
            tr("Correct: transforms of {size} that overlap", size=right),
            tr("Too small: transforms of {size}, side by side", size=wrong_size),
        )
    return [
        (large.y, "output", captions[0]),
        (small.y, "output", captions[1]),
        (np.abs(small.y - expected) * wrong(small, expected), "workspace", tr("Error of each pixel")),
    ]


def sentence(small: Arrays, expected: np.ndarray) -> str:
    """Returns how many pixels are wrong after too small a transform."""
    s, at_risk = small.shape, int(small.wrapped_output.sum())
    if (s.span_h, s.span_w) == (1, 1):
        return tr("A filter of one tap reads no neighbours, so nothing can wrap around.")
    size = f"{small.rows} × {small.columns}"
    if not at_risk:
        return tr("A transform of {size} is large enough here: no window wraps around.", size=size)
    bad = int(wrong(small, expected).sum())
    return trn(
        "In transforms of {size}, {wrapped} of {total} outputs wrap around; {n} is wrong.",
        "In transforms of {size}, {wrapped} of {total} outputs wrap around; {n} are wrong.",
        bad,
        size=size,
        wrapped=decimal(f"{at_risk:,}"),
        total=decimal(f"{s.PQ:,}"),
    )


def reason(large: Arrays, small: Arrays) -> str:
    """Returns why outputs wrap around, and in which transforms none does; "" if none wraps around."""
    if not small.wrapped_output.any():
        return ""
    small_size, large_size = (f"{a.rows} × {a.columns}" for a in (small, large))
    return " ".join(
        (
            tr("A product of spectra slides the filter around a circle."),
            tr("In {size}, windows near the end wrap around to the start.", size=small_size),
            tr("In {size} none wraps around.", size=large_size)
            if large.tiles == (1, 1)
            else tr("In overlapping transforms of {size} none wraps around.", size=large_size),
        )
    )
