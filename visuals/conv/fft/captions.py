"""Captions of the steps of the FFT scene. A complex number is written as the kernel stores it: (real, imaginary)."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, tr, trn
from visuals.conv.fft.arrays import Arrays

(
    PAD_INPUT,
    PAD_FILTER,
    ROW_INPUT,
    ROW_INPUT_EMPTY,
    COLUMN_INPUT,
    ROW_FILTER,
    ROW_FILTER_EMPTY,
    COLUMN_FILTER,
    MULTIPLY,
    INVERSE,
    PICK,
    PICK_WRONG,
) = range(12)
ROW_KINDS = {"X": (ROW_INPUT, ROW_INPUT_EMPTY), "W": (ROW_FILTER, ROW_FILTER_EMPTY)}
COLUMN_KIND = {"X": COLUMN_INPUT, "W": COLUMN_FILTER}


# -- steps ---------------------------------------------------------------------------------------
def templates(a: Arrays, shape: ConvShape, tiled: bool = False) -> tuple[str, ...]:
    """Returns the captions by kind. `tiled`: those of conv/fft-tiled, which does not call cuFFT."""
    s, channels = a.shape, {"C": decimal(f"{shape.C:,}")}
    one_channel = shape.C == 1
    taps = s.R * s.S
    padded_filter = [
        trn(
            "The [filter](filter)’s {n} tap (weight) is copied into the corner of an array of the same size; the rest is zero.",
            "The [filter](filter)’s {n} taps (weights) are copied into the corner of an array of the same size; the rest is zero.",
            taps,
        )
    ]
    if s.dilation != (1, 1):
        padded_filter.append(tr("The dilation puts zeros between them."))
    padded_filter += [
        tr("The array has {1} numbers, {2}× as many as the filter."),
        tr("Two spectra can only be multiplied if they have the same frequencies."),
    ]
    product = [
        tr("Row {0} of the frequencies: [Y](output) = [X](input) · conj([W](filter)).")
        if one_channel
        else tr(
            "Row {0} of the frequencies: [Y](output) = Σ [X](input) · conj([W](filter)) over all {C} channels.",
            **channels,
        ),
        tr("That takes {8} complex multiplications, and no window slides.")
        if one_channel
        else tr("That takes {8} complex multiplications per channel, and no window slides."),
        tr("At ({0}, {1}): X = ({2}, {3}), W = ({4}, {5}).")
        if one_channel
        else tr("At ({0}, {1}), channel 0: X = ({2}, {3}), W = ({4}, {5})."),
        tr("For X = (a, b) and W = (c, d), X · conj(W) = (a·c + b·d, b·c − a·d)."),
        tr("So Y = ({6}, {7}).") if one_channel else tr("Over all channels, Y = ({6}, {7})."),
    ]
    picked = [
        tr("Row {0} of the [output](output) is taken from row {1} of [d](output) and divided by {2}."),
        *[tr("The stride keeps one pixel of every {v}.", v=s.v)] * (s.v > 1),
    ]
    inverse = tr(
        "It is the output at every position of the filter, as if the stride were 1. The result of cuFFT is {1}× too large."
    )
    copied = tr("The [input](input) is copied into an array of {0} × {1} in the [workspace](workspace).")
    if tiled:
        inverse = tr("It is the output at every position of the filter, as if the stride were 1. It is {1}× too large.")
        copied = tr("A tile of {0} × {1} numbers of the [input](input) is copied into shared memory.")
    return (
        _joined(copied, _zeros(a)),
        _joined(*padded_filter),
        _row(tr("Row {0} of the padded [input](input): its {1} numbers become {2} complex numbers."), one_channel),
        tr("Row {0} of the padded [input](input) is all zeros, so its transform is zero."),
        _column(
            tr("X at (0, {0}) is ({2}, {3}).") if one_channel else tr("X at (0, {0}) in channel 0 is ({2}, {3})."),
            a.rows,
        ),
        _row(tr("Row {0} of the padded [filter](filter): its {1} numbers become {2} complex numbers."), one_channel),
        _joined(
            tr("Row {0} of the padded [filter](filter) is all zeros, so its transform is zero."),
            tr("Direct convolution does not need this work."),
        ),
        _column(
            tr("W at (0, {0}) is ({2}, {3}).") if one_channel else tr("W at (0, {0}) in channel 0 is ({2}, {3})."),
            a.rows,
        ),
        _joined(*product),
        _joined(
            tr("Inverse transform, [d](output) = FFT⁻¹([Y](output)): all frequencies together give row {0} of d."),
            inverse,
        ),
        _joined(*picked),
        _joined(
            *picked,
            tr(
                "The windows of {4} of its {3} pixels wrap around the end of the array. These values are wrong, except by chance."
            ),
        ),
    )


def _zeros(a: Arrays) -> str:
    """Returns a sentence: which zeros surround the picture, or that the array is too small."""
    s = a.shape
    if a.wrapped_output.any():
        return tr("The array is too small: windows that cross its end wrap around to its start.")
    if a.rows > s.H or a.columns > s.W or a.tiles != (1, 1) or max(*s.pad, *s.after):
        return tr(
            "The other cells are zero ({2} of those shown). A transform is periodic: the zeros keep windows from wrapping "
            "around to the other side."
        )
    return tr("No zeros are needed: with padding 0 every window fits inside the input.")


def _row(begin: str, one_channel: bool) -> str:
    return _joined(
        begin,
        tr("The other frequencies of a real row are conjugates of these."),
        tr("Frequency 0 is the sum of the row, {3}.")
        if one_channel
        else tr("Frequency 0 is the sum of the row, {3} in channel 0."),
    )


def _column(value: str, rows: int) -> str:
    if rows == 1:
        return _joined(tr("Column {0} has one number. Its transform is the number itself."), value)
    return _joined(
        tr("Column {0}: its {1} complex numbers are transformed too. The spectrum is now complete in this column."),
        value,
    )


def _joined(*sentences: str) -> str:
    return " ".join(sentences)
