"""Complex numbers of a recording, whose parts are tensors of their own, as one tensor: magnitudes, or phases in degrees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernels.i18n import tr
from visuals.conv.fft.arrays import degrees, snap_to_integers
from visuals.scene.parts import Annotation, Captions, Write
from visuals.scene.scene import Scene


@dataclass(frozen=True)
class Spectrum:
    """Complex numbers that a scene writes: at `steps` into `cells`. `final`: complex [planes * rows * columns], NaN where none is."""

    name: str
    steps: np.ndarray
    cells: np.ndarray
    values: np.ndarray
    final: np.ndarray
    rows: int
    columns: int
    place: np.ndarray  # int: the cell of each cell of the parts


def spectrum_of(scene: Scene, name: str, grid: np.ndarray | None, size: tuple[int, int]) -> Spectrum:
    """Returns the numbers of tensors `name` + "r" and `name` + "i". `grid`: the cell of each in a tensor of `size`, if it is not that of
    the parts. What is rounding of float32 is left out."""
    real = scene.tensor(f"{name}r")
    steps, cells, values = scene._events(real.name)
    numbers = values + 1j * scene._events(f"{name}i")[2]
    numbers = snap_to_integers(numbers, float(np.abs(numbers).max(initial=0)))
    rows, columns = size if grid is not None else (real.rows, real.cols)
    place = np.arange(real.size) if grid is None else grid
    final = np.full(real.planes * rows * columns, np.nan, complex)
    final[place[cells]] = numbers
    return Spectrum(name, steps, place[cells], numbers, final, rows, columns, place)


def with_spectrum(scene: Scene, of: Spectrum, phases: bool) -> Scene:
    """Returns the scene with one tensor in place of both parts, with a note on each cell."""
    real, imaginary = (scene.tensor(f"{of.name}{part}") for part in "ri")
    shown = degrees(of.values) if phases else np.abs(of.values)
    size = f"{of.rows} × {of.columns}"
    tensor = replace(
        real,
        name=of.name,
        symbol=f"∠{of.name}" if phases else f"|{of.name}|",
        note=tr("{size}, degrees", size=size) if phases else size,
        rows=of.rows,
        cols=of.columns,
    )
    parts = {real.name, imaginary.name}
    groups = [
        replace(
            group,
            rows=tuple(
                tuple(of.name if one == real.name else one for one in row if one != imaginary.name)
                for row in group.rows
            ),
        )
        for group in scene.groups
    ]
    reads = [
        replace(read, source=of.name, cells=of.place[read.cells]) if read.source == real.name else read
        for read in scene.reads
        if read.source != imaginary.name
    ]
    return replace(
        scene,
        tensors=tuple(tensor if one is real else one for one in scene.tensors if one is not imaginary),
        groups=tuple(groups),
        writes=(
            *(write for write in scene.writes if write.target not in parts),
            Write(of.name, of.steps, shown.astype(np.float32), cells=of.cells),
        ),
        reads=tuple(reads),
    )


def note(of: Spectrum) -> Annotation:
    """Returns what is said of each number: both its parts, and the wave whose amount it is."""
    row, column = np.divmod(np.arange(of.final.size) % (of.rows * of.columns), of.columns)
    down = np.minimum(row, of.rows - row)
    numbers = np.nan_to_num(of.final)
    texts = (
        tr(
            "Final value: {name} = ({0}, {1}), the amount of the wave that repeats {2}× down and {3}× across. Its "
            "phase is {4}°.",
            name=of.name,
        ),
        tr("Final value: {name} = ({0}, {1}), the sum of all numbers.", name=of.name),
        tr("It is the conjugate of another number and not stored."),
    )
    kind = np.where(np.isnan(of.final), 2, (down + column == 0).astype(int))
    args = np.stack([np.real(numbers), np.imag(numbers), down, column, degrees(numbers)], axis=1)
    return Annotation(of.name, Captions(texts, kind, args))


def product_note(out: Spectrum, left: Spectrum, right: Spectrum, conjugate: bool) -> Annotation:
    """Returns what is said of each product: the sum over all channels, with its numbers. `conjugate`: whether the kernel conjugates the
    right factors."""
    channels = len(left.final) // len(out.final)
    factors = [side.final.reshape(channels, -1) for side in (left, right)]
    numbers = [n for c in range(channels) for n in (factors[0][c], factors[1][c])] + [out.final]
    args = np.nan_to_num(np.stack([part for n in numbers for part in (np.real(n), np.imag(n))], axis=1))
    factor = "conj({{{2}}}, {{{3}}})" if conjugate else "({{{2}}}, {{{3}}})"
    terms = [("({{{0}}}, {{{1}}}) · " + factor).format(*range(4 * c, 4 * c + 4)) for c in range(channels)]
    last = 4 * channels
    text = f"{out.name} = {' + '.join(terms)} = ({{{last}}}, {{{last + 1}}})."
    cells = np.arange(len(left.final)).reshape(channels, -1).T
    return Annotation(
        out.name, Captions((text,), np.zeros(len(args), int), args), {left.name: cells, right.name: cells}
    )
