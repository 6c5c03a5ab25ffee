"""The arrays of conv/fft as pictures, and the correct output beside one that wrapped. Pure functions."""

from __future__ import annotations

import numpy as np

from visuals.conv.fft.arrays import Arrays
from visuals.conv.fft.steps import part_of

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


def pipeline_pictures(a: Arrays, picture: str, name: str, channels: int) -> list[Picture]:
    """Returns (values, role, caption) of every array of one transform: the one on the stage."""
    part, size = part_of(a), f"{a.rows} × {a.columns}"
    position = "" if a.tiles == (1, 1) else f", transform {part.down}, {part.across}"
    first = ", first channel" if channels > 1 else ""
    x, X, Y, d = (array[part.down, part.across] for array in (a.x_padded, a.X, a.Y, a.dense))
    p, q = (np.flatnonzero(np.arange(n) * u // int(step) == tile) for n, u, step, tile in (
        (a.shape.P, a.shape.u, a.cut["step_h"], part.down), (a.shape.Q, a.shape.v, a.cut["step_w"], part.across),
    ))  # fmt: skip
    output = a.y[p[0] : p[-1] + 1, q[0] : q[-1] + 1]
    return [
        (x[0], "input", f"Padded input: {picture}, {size}{position}{first}"),
        (logarithm(X[0], a.columns), "input", "Its spectrum"),
        (a.w_padded[0], "filter", f"Padded filter: {name}, {a.shape.R} × {a.shape.S} taps in {size}"),
        (logarithm(a.W[0], a.columns), "filter", "Its spectrum"),
        (
            logarithm(Y, a.columns),
            "output",
            "The product" + (f", all {channels:,} channels" if channels > 1 else ""),
        ),
        (d, "output", f"Transformed back, {size}"),
        (output, "output", f"What is kept: {output.shape[0]} × {output.shape[1]}"),
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
    sizes = [f"transforms of {a.rows} × {a.columns}" for a in (large, small)]
    if small.tiles != (1, 1):
        sizes = [
            f"{text}, {'overlapping' if a is large else 'side by side'}"
            for text, a in zip(sizes, (large, small), strict=True)
        ]
    return [
        (large.y, "output", f"Right: {sizes[0]}"),
        (small.y, "output", f"Too small: {sizes[1]}"),
        (np.abs(small.y - expected) * wrong(small, expected), "workspace", "How far off each pixel is"),
    ]


def caption(large: Arrays, small: Arrays, expected: np.ndarray) -> str:
    """Returns how many pixels are wrong, and why."""
    s, at_risk = small.shape, int(small.wrapped_output.sum())
    if (s.span_h, s.span_w) == (1, 1):
        return "A filter of one tap looks at no neighbour: there is nothing that could wrap."
    if not at_risk:
        return f"A transform of {small.rows} × {small.columns} has room to spare here: no window runs over its end."
    bad = int(wrong(small, expected).sum())
    last = " and ".join(
        f"{span - 1} {axis}{'s' if span > 2 else ''}"
        for span, axis in ((s.span_h, "row"), (s.span_w, "column"))
        if span > 1
    )
    overlap = "" if large.tiles == (1, 1) else " with overlap"
    return (
        f"A product of spectra slides the filter round a circle. In {small.rows} × {small.columns} the windows of the last "
        f"{last} run over the end and go on at the start: {at_risk:,} of {s.PQ:,} output pixels are made so, and {bad:,} of "
        f"them come out wrong. With room for the window, {large.rows} × {large.columns}{overlap}, none is made so."
    )
