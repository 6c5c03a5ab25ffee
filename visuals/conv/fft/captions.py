"""Captions of the steps of the FFT scene. A complex number is written as the kernel stores it: (real, imaginary)."""

from __future__ import annotations

from kernels.conv.shape import ConvShape
from visuals.conv.fft.arrays import Arrays

(
    PAD_INPUT, PAD_FILTER, ROW_INPUT, ROW_INPUT_EMPTY, COLUMN_INPUT, ROW_FILTER, ROW_FILTER_EMPTY, COLUMN_FILTER,
    MULTIPLY, INVERSE, PICK, PICK_WRONG,
) = range(12)  # fmt: skip
ROW_KINDS = {"X": (ROW_INPUT, ROW_INPUT_EMPTY), "W": (ROW_FILTER, ROW_FILTER_EMPTY)}
COLUMN_KIND = {"X": COLUMN_INPUT, "W": COLUMN_FILTER}
INPUT, FILTER, OUTPUT, SPACE = (
    "[input](input)",
    "[filter](filter)",
    "[output](output)",
    "[workspace](workspace)",
)
X, W, Y, D = "[X](input)", "[W](filter)", "[Y](output)", "[d](output)"


# -- steps ---------------------------------------------------------------------------------------
def templates(a: Arrays, shape: ConvShape) -> tuple[str, ...]:
    s, has_channels = a.shape, shape.C > 1
    first = " in channel 0" if has_channels else ""
    strides = f", one of every {s.v}," if s.v > 1 else ""
    dilated = " the zeros of the dilation between them," if s.dilation != (1, 1) else ""
    over_channels = f" over all {shape.C:,} channels" if has_channels else ""
    per_channel = " a channel" if has_channels else ""
    return (
        f"The {INPUT} goes into an array of {{0}} × {{1}} in the {SPACE}{_zeros(a)}",
        f"The {FILTER}’s {{0}} taps go into the corner of an array as large,{dilated} zeros elsewhere: {{1}} numbers "
        f"for {{0}}, {{2}} times as many. Spectra can only be multiplied where both have the same frequencies.",
        _row(INPUT, has_channels, first),
        f"Row {{0}} of the padded {INPUT} holds zeros alone, so does its transform.",
        _column(X, first),
        _row(FILTER, has_channels, first),
        f"Row {{0}} of the padded {FILTER} holds zeros alone, so does its transform: work that the small filter does not need.",
        _column(W, first),
        f"Row {{0}} of the frequencies: {Y} = Σ {X} · conj({W}){over_channels}, {{5}} complex products{per_channel}, and no window slides. "
        f"At ({{0}}, {{1}}){first} |X| = {{2}} and |W| = {{3}}; |Y| = {{4}}.",
        f"Back: all frequencies of {Y} together give row {{0}} of {D}, the {OUTPUT} at every place of the filter as if "
        "the stride were 1. cuFFT leaves it {1} times too large.",
        f"Row {{0}} of the {OUTPUT}: {{3}} pixels{strides} of row {{1}} of {D}, divided by {{2}}.",
        f"Row {{0}} of the {OUTPUT} from row {{1}} of {D}, divided by {{2}}: {{4}} of {{3}} pixels had windows that ran over "
        "the end of the array and went on at its start: wrong, but for chance.",
    )


def _zeros(a: Arrays) -> str:
    """Returns the end of a caption: which zeros surround the picture, or that the array is too small."""
    s = a.shape
    if a.wrapped_output.any():
        return ", which is too small: what slides out on one side will come in on the other."
    if a.rows > s.H or a.columns > s.W or a.tiles != (1, 1) or max(s.pad):
        return ". {2} cells of what is shown are zeros: a transform is a circle, and nothing of one side may come in on the other."
    return " as it is: with padding 0 every window lies inside the map."


def _row(role: str, has_channels: bool, first: str) -> str:
    return (
        f"Row {{0}} of the padded {role}: its {{1}} numbers become {{2}} complex ones{' in each channel' if has_channels else ''}; of a "
        f"real row the others are their mirror image. Frequency 0 is the row’s sum{first}, {{3}}."
    )


def _column(spectrum: str, first: str) -> str:
    return (
        f"Column {{0}}: its {{1}} complex numbers are transformed in turn, and the spectrum is whole there: "
        f"{spectrum} at (0, {{0}}){first} = ({{2}}, {{3}})."
    )
