"""Annotations of the cells of the FFT scene: from which elements each was computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from visuals.conv.fft.arrays import Arrays, degrees, snap_to_integers
from visuals.scene.parts import Annotation, Captions

if TYPE_CHECKING:
    from visuals.conv.fft.steps import FftSteps


# -- annotations ---------------------------------------------------------------------------------
def annotations_of(steps: FftSteps, shape: ConvShape) -> tuple[Annotation, ...]:
    spectra = (_spectrum(name, values, steps.a) for name, values in (("X", steps.X), ("W", steps.W)))
    return (*spectra, _product(steps, shape), _dense(steps), _output(steps))


def _spectrum(name: str, values: np.ndarray, a: Arrays) -> Annotation:
    """Returns the annotation of a spectrum [maps, rows, frequencies]: both parts, and the wave whose amount it
    is."""
    rows, columns = values.shape[1:]
    down = np.minimum(np.arange(rows), a.rows - np.arange(rows))[:, None]
    args = np.stack(
        np.broadcast_arrays(np.real(values), np.imag(values), down, np.arange(columns), degrees(values)), axis=-1
    )
    args = args.reshape(-1, 5)
    texts = (
        tr(
            "Final value: {name} = ({0}, {1}), the amount of the wave that repeats {2}× down and {3}× across. Its "
            "phase is {4}°.",
            name=name,
        ),
        tr("Final value: {name} = ({0}, {1}), the sum of all numbers.", name=name),
    )
    return Annotation(name, Captions(texts, (args[:, 2:4] == 0).all(axis=1).astype(int), args))


def _product(steps: FftSteps, shape: ConvShape) -> Annotation:
    """Returns the annotation of a product [rows, frequencies]: the sum over the channels with its numbers, and
    its source cells."""
    x, w, y, maps = steps.X, steps.W, steps.Y, steps.part.maps
    remainder = snap_to_integers(y - (x * w.conj()).sum(axis=0), steps.a.max_product)
    numbers = [n for c in range(maps) for n in (x[c], w[c])] + [remainder, y]
    args = np.stack([part.ravel() for n in numbers for part in (n.real, n.imag)], axis=1).astype(float)
    terms = [f"({{{4 * c}}}, {{{4 * c + 1}}}) · conj({{{4 * c + 2}}}, {{{4 * c + 3}}})" for c in range(maps)]
    first = 4 * maps
    if maps < shape.C:
        terms.append(tr("{value} from the channels not shown", value=f"({{{first}}}, {{{first + 1}}})"))
    text = f"Y = {' + '.join(terms)} = ({{{first + 2}}}, {{{first + 3}}})."
    cells = steps.spectrum.reshape(maps, -1).T
    return Annotation("Y", Captions((text,), np.zeros(len(args), int), args), {"X": cells, "W": cells})


def _dense(steps: FftSteps) -> Annotation:
    """Returns the annotation of the transformed back array [rows, columns]: whether each pixel becomes an output."""
    a, p, (h, w) = steps.a, steps.part, steps.picked_positions
    is_picked = np.zeros((p.rows, p.columns), bool)
    is_picked[(h - p.row)[:, None], w - p.column] = True
    wraps = a.wrapped[p.row : p.row + p.rows, p.column : p.column + p.columns]
    size = a.rows * a.columns
    args = np.stack([np.full(steps.dense.size, size), (steps.dense / size).ravel()], axis=1).astype(float)
    texts = (  # by 2 * picked + wraps
        tr("This value is correct, but the output does not use it."),
        tr("The window wraps around the end of the array, so this value is wrong. The output does not use it."),
        tr("Divided by {0} it is {1}, a pixel of the output."),
        tr("The window wraps around the end of the array, so {1} is wrong (except by chance). It is still copied."),
    )
    return Annotation("d", Captions(texts, (2 * is_picked + wraps).ravel(), args))


def _output(steps: FftSteps) -> Annotation:
    """Returns the annotation of the output [P, Q visible]: where each pixel was taken from and, if that was
    wrong, its correct value."""
    a, p = steps.a, steps.part
    rows, columns = np.meshgrid(*steps.picked_positions, indexing="ij")
    index = steps.p[:, None], steps.q
    size = np.full(rows.size, a.rows * a.columns)
    args = np.stack([rows.ravel(), columns.ravel(), size, steps.expected[index].ravel()], axis=1).astype(float)
    texts = (
        tr("It is d[{0}, {1}] / {2}."),
        tr("It is d[{0}, {1}] / {2}. The window wraps around: the correct value is {3}."),
    )
    cells = ((rows - p.row) * p.columns + columns - p.column).reshape(-1, 1)
    return Annotation("y", Captions(texts, a.wrapped_output[index].ravel().astype(int), args), {"d": cells})
