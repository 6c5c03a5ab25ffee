"""The 128 bytes of a tensor map in the emulator. CUDA's driver writes other ones, which are not documented."""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from kernels.model.tensor_map import ELEMENTS, Im2colMap, StridedMap, TensorMap

_MAGIC = b"TensorMp"
_FORM = struct.Struct("<8sQ4B5I4Q5H5B4b")
_NAMES = tuple(ELEMENTS)
_KINDS = TensorMap, StridedMap, Im2colMap


def encoded(map_: TensorMap, address: int) -> bytes:
    """Returns the 128 bytes of a map of the tensor at a generic address."""
    map_.check()
    rank, kind = len(map_.extents), _KINDS.index(type(map_))
    steps = map_.steps if isinstance(map_, (StridedMap, Im2colMap)) else ()
    corners = map_.lower + map_.upper if isinstance(map_, Im2colMap) else ()
    fields = (
        *(rank, _NAMES.index(map_.dtype), map_.swizzle, kind),
        *_padded(map_.extents, 5),
        *_padded(map_.strides, 4),
        *_padded(map_.box, 5),
        *_padded(steps, 5),
        *_padded(corners, 4),
    )
    return _FORM.pack(_MAGIC, address, *fields).ljust(128, b"\0")


@lru_cache(maxsize=256)
def decoded(data: bytes) -> tuple[TensorMap, int] | None:
    """Returns a map and the tensor's address from its 128 bytes; None if they are no map."""
    magic, address, rank, dtype, swizzle, kind, *numbers = _FORM.unpack(data[: _FORM.size])
    if magic != _MAGIC:
        return None
    extents, strides, box, steps, corners = (
        tuple(numbers[first:stop]) for first, stop in ((0, 5), (5, 9), (9, 14), (14, 19), (19, 23))
    )
    fields = "", _NAMES[dtype], extents[:rank], strides[: rank - 1]
    if kind == 2:
        return Im2colMap(*fields, box[:2], swizzle, steps[:2], corners[:2], corners[2:]), address
    strided = (steps[:rank],) if kind else ()
    return _KINDS[kind](*fields, box[:rank], swizzle, *strided), address


def box_elements(map_: TensorMap, corner: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (byte offsets from the tensor's start, whether each is inside the tensor) of the elements of a box in the
    order of shared memory. `corner`: the coordinates of its first element, innermost first."""
    steps = map_.steps if isinstance(map_, StridedMap) else (1,) * len(map_.box)
    offsets, inside = np.zeros(1, np.int64), np.ones(1, bool)
    item = ELEMENTS[map_.dtype]
    for first, count, step, extent, stride in zip(
        corner, map_.box, steps, map_.extents, (item, *map_.strides), strict=True
    ):
        index = first + step * np.arange(count)
        within = (index >= 0) & (index < extent)
        offsets = ((index * stride)[:, None] + offsets).reshape(-1)
        inside = (within[:, None] & inside).reshape(-1)
    return offsets, inside


def im2col_elements(map_: Im2colMap, corner: tuple[int, ...], tap: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same of the pixels that a copy in mode im2col takes. `corner`: (c, w, h, n) of the first window's
    corner; `tap`: (w, h) of the filter tap, from the corner. ValueError if no window has this corner."""
    c, w, h, n = corner
    across, down = map_.corners
    places = tuple((at - low) / step for at, low, step in zip((w, h), map_.lower, map_.steps, strict=True))
    if any(at % 1 or not 0 <= at < count for at, count in zip(places, (across, down), strict=True)):
        raise ValueError(f"no window begins at column {w}, row {h}")
    number = (n * down + int(places[1])) * across + int(places[0]) + np.arange(map_.box[1])
    row, column = np.divmod(number, across)
    images, row = np.divmod(row, down)
    columns = map_.lower[0] + map_.steps[0] * column + tap[0]
    rows = map_.lower[1] + map_.steps[1] * row + tap[1]
    channels = c + np.arange(map_.box[0])
    indices = (channels[None], columns[:, None], rows[:, None], images[:, None])
    strides = (ELEMENTS[map_.dtype], *map_.strides)
    offsets = np.zeros((1, 1), np.int64)
    for index, stride in zip(indices, strides, strict=True):
        offsets = offsets + index * stride
    inside = np.ones(offsets.shape, bool)
    for index, extent in zip(indices, map_.extents, strict=True):
        inside &= (index >= 0) & (index < extent)
    return offsets.reshape(-1), inside.reshape(-1)


def _padded(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (*numbers, *(0,) * (count - len(numbers)))
