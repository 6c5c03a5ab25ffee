"""What is said of each step of the FFT scene, and of each cell of its spectra. A complex number stands as the
kernel holds it: (real, imaginary)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.shapes import ConvShape
from visuals.scene import Captions, Told
from visuals.scenes.fft_arrays import Arrays

if TYPE_CHECKING:
    from visuals.scenes.fft import Steps

(
    PAD_INPUT, PAD_FILTER, ROW_INPUT, ROW_INPUT_EMPTY, COLUMN_INPUT, ROW_FILTER, ROW_FILTER_EMPTY, COLUMN_FILTER,
    MULTIPLY, INVERSE, PICK, PICK_WRONG,
) = range(12)  # fmt: skip
ROW_OF = {"X": (ROW_INPUT, ROW_INPUT_EMPTY), "W": (ROW_FILTER, ROW_FILTER_EMPTY)}
COLUMN_OF = {"X": COLUMN_INPUT, "W": COLUMN_FILTER}
INPUT, FILTER, OUTPUT, SPACE = (
    "[input](input)",
    "[filter](filter)",
    "[output](output)",
    "[workspace](workspace)",
)
X, W, Y, D = "[X](input)", "[W](filter)", "[Y](output)", "[d](output)"
ROUNDING = 1e-6  # of the largest number: below that a difference says nothing


def plain(values: np.ndarray, largest: float) -> np.ndarray:
    """The same numbers, whole ones where nothing but the rounding of float32 among numbers up to `largest` keeps
    them from that; of complex ones each part by itself."""
    if np.iscomplexobj(values):
        return plain(values.real, largest) + 1j * plain(values.imag, largest)
    whole = np.rint(values) + 0.0
    return np.where(np.abs(values - whole) <= ROUNDING * largest, whole, values)


# -- steps ---------------------------------------------------------------------------------------
def templates(a: Arrays, of: ConvShape) -> tuple[str, ...]:
    s, many = a.shape, of.C > 1
    first = " in channel 0" if many else ""
    strides = f", one of every {s.v}," if s.v > 1 else ""
    dilated = " the zeros of the dilation between them," if s.dilation != (1, 1) else ""
    seen = f" over all {of.C:,} channels" if many else ""
    each = " a channel" if many else ""
    return (
        f"The {INPUT} goes into an array of {{0}} × {{1}} in the {SPACE}{_zeros(a)}",
        f"The {FILTER}’s {{0}} taps go into the corner of an array as large,{dilated} zeros elsewhere: {{1}} numbers "
        f"for {{0}}, {{2}} times as many. Spectra can only be multiplied where both have the same frequencies.",
        _row(INPUT, many, first),
        f"Row {{0}} of the padded {INPUT} holds zeros alone, so does its transform.",
        _column(X, first),
        _row(FILTER, many, first),
        f"Row {{0}} of the padded {FILTER} holds zeros alone, so does its transform: work that the small filter does not need.",
        _column(W, first),
        f"Row {{0}} of the frequencies: {Y} = Σ {X} · conj({W}){seen}, {{5}} complex products{each}, and no window slides. "
        f"At ({{0}}, {{1}}){first} |X| = {{2}} and |W| = {{3}}; |Y| = {{4}}.",
        f"Back: all frequencies of {Y} together give row {{0}} of {D}, the {OUTPUT} at every place of the filter as if "
        "the stride were 1. cuFFT leaves it {1} times too large.",
        f"Row {{0}} of the {OUTPUT}: {{3}} pixels{strides} of row {{1}} of {D}, divided by {{2}}.",
        f"Row {{0}} of the {OUTPUT} from row {{1}} of {D}, divided by {{2}}: {{4}} of {{3}} pixels had windows that ran over "
        "the end of the array and went on at its start: wrong, but for chance.",
    )


def _zeros(a: Arrays) -> str:
    """What is put round the picture, or what is left out of it."""
    s = a.shape
    if a.wrapped_output.any():
        return ", which is too small: what slides out on one side will come in on the other."
    if a.rows > s.H or a.columns > s.W or a.tiles != (1, 1) or max(s.pad):
        return ". {2} cells of what is shown are zeros: a transform is a circle, and nothing of one side may come in on the other."
    return " as it is: with padding 0 every window lies inside the map."


def _row(role: str, many: bool, first: str) -> str:
    return (
        f"Row {{0}} of the padded {role}: its {{1}} numbers become {{2}} complex ones{' in each channel' if many else ''}; of a "
        f"real row the others are their mirror image. Frequency 0 is the row’s sum{first}, {{3}}."
    )


def _column(spectrum: str, first: str) -> str:
    return (
        f"Column {{0}}: its {{1}} complex numbers are transformed in turn, and the spectrum is whole there: "
        f"{spectrum} at (0, {{0}}){first} = ({{2}}, {{3}})."
    )


def table(args: list[tuple]) -> np.ndarray:
    """float64[steps, n]: the numbers of each step, filled up with zeros."""
    width = max(map(len, args))
    return np.array([(*row, *[0] * (width - len(row))) for row in args], float)


# -- cells ---------------------------------------------------------------------------------------
def told(steps: Steps, of: ConvShape) -> tuple[Told, ...]:
    spectra = (_spectrum(name, values, steps.a) for name, values in (("X", steps.X), ("W", steps.W)))
    return (*spectra, _product(steps, of), _dense(steps), _output(steps))


def _spectrum(name: str, values: np.ndarray, a: Arrays) -> Told:
    """[maps, rows, frequencies]: both parts, and of which wave it says how much there is."""
    rows, columns = values.shape[1:]
    down = np.minimum(np.arange(rows), a.rows - np.arange(rows))[:, None]
    args = np.stack(np.broadcast_arrays(values.real, values.imag, down, np.arange(columns)), axis=-1)
    args = args.reshape(-1, 4)
    texts = (
        f"In the end {name} = ({{0}}, {{1}}) here: how much there is of the wave of {{2}} periods down and {{3}} across.",
        f"In the end {name} = ({{0}}, {{1}}) here: the sum of all numbers.",
    )
    return Told(name, Captions(texts, (args[:, 2:] == 0).all(axis=1).astype(int), args))


def _product(steps: Steps, of: ConvShape) -> Told:
    """[rows, frequencies]: the sum over the channels with its numbers, and the cells it is made of."""
    x, w, y, maps = steps.X, steps.W, steps.Y, steps.part.maps
    rest = plain(y - (x * w.conj()).sum(axis=0), steps.a.bound_spectrum)
    numbers = [n for c in range(maps) for n in (x[c], w[c])] + [rest, y]
    args = np.stack([part.ravel() for n in numbers for part in (n.real, n.imag)], axis=1).astype(float)
    terms = [f"({{{4 * c}}}, {{{4 * c + 1}}}) · conj({{{4 * c + 2}}}, {{{4 * c + 3}}})" for c in range(maps)]
    at = 4 * maps
    if maps < of.C:
        terms.append(f"({{{at}}}, {{{at + 1}}}) from the channels not shown")
    text = f"Y = {' + '.join(terms)} = ({{{at + 2}}}, {{{at + 3}}})."
    cells = steps.spectrum.reshape(maps, -1).T
    return Told("Y", Captions((text,), np.zeros(len(args), int), args), {"X": cells, "W": cells})


def _dense(steps: Steps) -> Told:
    """[rows, columns]: what becomes of each pixel."""
    a, p, (h, w) = steps.a, steps.part, steps.places
    is_picked = np.zeros((p.rows, p.columns), bool)
    is_picked[(h - p.row)[:, None], w - p.column] = True
    wraps = a.wrapped[p.row : p.row + p.rows, p.column : p.column + p.columns]
    size = a.rows * a.columns
    args = np.stack([np.full(steps.dense.size, size), (steps.dense / size).ravel()], axis=1).astype(float)
    texts = (  # by 2 * picked + wraps
        "Right, but no pixel of the output is picked here: computed to be thrown away.",
        "Its window runs over the end of the array and goes on at the start: wrong, and never picked.",
        "Divided by {0} it is {1}, a pixel of the output.",
        "Its window runs over the end of the array and goes on at the start: {1} is wrong, but for chance, and picked all the same.",
    )
    return Told("d", Captions(texts, (2 * is_picked + wraps).ravel(), args))


def _output(steps: Steps) -> Told:
    """[P, Q shown]: where it was picked, and where that was wrong what it is to be."""
    a, p = steps.a, steps.part
    rows, columns = np.meshgrid(*steps.places, indexing="ij")
    at = steps.p[:, None], steps.q
    size = np.full(rows.size, a.rows * a.columns)
    args = np.stack([rows.ravel(), columns.ravel(), size, steps.right[at].ravel()], axis=1).astype(float)
    texts = (
        "It is d[{0}, {1}] / {2}.",
        "It is d[{0}, {1}] / {2}, whose window ran over the end: it should be {3}.",
    )
    cells = ((rows - p.row) * p.columns + columns - p.column).reshape(-1, 1)
    return Told("y", Captions(texts, a.wrapped_output[at].ravel().astype(int), args), {"d": cells})
