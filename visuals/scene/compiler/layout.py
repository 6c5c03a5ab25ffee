"""Where a tensor of a view shows the elements of an array in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kernels.engines.emulator.watch.recording import Recording
from kernels.engines.emulator.watch.types import UNKNOWN
from visuals.scene.compiler.expressions import Names, Value, parse
from visuals.scene.compiler.view import Array, Buffer, Shown

BIT = "bit"  # a type of numbers: the bits of words


@dataclass(frozen=True)
class Layout:
    """Planes, rows and columns of a tensor, and of the whole array. `cell`: of each element, -1 for one that is not shown; None: its own
    number."""

    extents: tuple[int, int, int]
    whole: tuple[int, int, int]
    cell: np.ndarray | None = None

    def of(self, element: np.ndarray) -> np.ndarray:
        """Returns the cells of elements."""
        return element if self.cell is None else self.cell[element]

    def shown(self, of_elements: np.ndarray) -> np.ndarray:
        """Returns what an array of numbers, one an element, has for each cell."""
        if self.cell is None:
            return of_elements
        out = np.zeros(prod(self.extents), of_elements.dtype)
        out[self.cell[self.cell >= 0]] = of_elements[self.cell >= 0]
        return out


class _Elements:
    """The names in a place in memory (expressions.Names)."""

    def __init__(self, count: int, per_block: int):
        self.among = np.ones(count, bool)
        block, cell = np.divmod(np.arange(count), per_block)
        self.names: Mapping[str, np.ndarray] = {"block": block, "cell": cell}

    def value(self, name: str) -> Value:
        return Value(self.names[name])

    def element(self, name: str, index: Value) -> Value:
        raise KeyError(name)

    def received(self, name: str) -> Value:
        raise KeyError(name)

    def count(self, name: str) -> int:
        raise KeyError(name)


def placed(
    place: Sequence[str], part: Sequence[range | None], names: Names, count: int
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Returns the cells of numbers, -1 for one that is not shown, and how many planes, rows and columns they need."""
    axes = [np.broadcast_to(np.asarray(parse(text).value(names).of, int), count) for text in place]
    inside = np.logical_and.reduce([axis >= 0 for axis in axes])
    for axis, of in zip(axes, part, strict=True):
        inside &= True if of is None else (axis >= of.start) & (axis < of.stop)
    starts = [of.start if of else 0 for of in part]
    found = [axis[inside] - start for axis, start in zip(axes, starts, strict=True)]
    extents = tuple(
        int(axis.max(initial=-1)) + 1 if of is None else len(of) for axis, of in zip(found, part, strict=True)
    )
    cells = np.full(count, -1)
    cells[inside] = np.ravel_multi_index(tuple(found), extents) if inside.any() else 0
    return cells, extents


def layout_of(recording: Recording, shown: Array) -> Layout:
    """Returns where a launch has the elements of a tensor."""
    name = recording.buffer(shown.array)
    if isinstance(shown, Buffer):
        array = recording.before[name]
        count = per_block = parted(array, shown.dtype).size
        *outer, _ = array.shape or (1,)
        whole = _three(shown.shape or (*outer, count // prod(outer)))
    else:
        type_ = recording.watched.shared.get(name, UNKNOWN)
        stored = dict(zip(recording.watched.buffers, recording.watched.dtypes, strict=True)).get(name)
        itemsize = np.dtype(shown.dtype or stored).itemsize if stored else type_.size // len(type_.leaves)
        per_block = (type_.size or recording.launch.shared) // itemsize
        count = per_block * recording.blocks
        *planes, rows, _ = (1, *type_.shape) if len(type_.shape) > 1 else (1, 1)
        whole = prod(planes), rows * recording.blocks, per_block // (prod(planes) * rows)
    if not shown.place and not shown.part:
        return Layout(whole, whole)
    place = shown.place or (f"cell // {whole[2]}", f"cell % {whole[2]}")
    cells, extents = placed(place, shown.part or (None, None), _Elements(count, per_block), count)
    return Layout(_three(extents), whole if not shown.place else _three(extents), cells)


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    *planes, rows, columns = (1, 1, *extents)[-max(3, len(extents)) :]
    return prod(planes), rows, columns


def origin_of(shown: Shown) -> tuple[int, int, int]:
    """Returns plane, row and column of a tensor's first cell."""
    plane, row, column = (0, 0, 0, *(of.start if of else 0 for of in shown.part))[-3:]
    return plane, row, column


def parted(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the numbers of an array, flat, its bytes read as another type; "bit": each of its bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype == BIT:
        return np.unpackbits(flat.view(np.uint8), bitorder="little")
    return flat.view(dtype) if dtype else flat
