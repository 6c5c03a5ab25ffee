"""The 128 bytes of a tensor map in the emulator. CUDA's driver writes other ones, which are not documented."""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from kernels.model.tensor_map import ELEMENTS, TensorMap

_MAGIC = b"TensorMp"
_FORM = struct.Struct("<8sQ4B5I4Q5H")
_NAMES = tuple(ELEMENTS)


def encoded(map_: TensorMap, address: int) -> bytes:
    """Returns the 128 bytes of a map of the tensor at a generic address."""
    map_.check()
    rank = len(map_.extents)
    fields = (
        *(rank, _NAMES.index(map_.dtype), map_.swizzle, 0),
        *_padded(map_.extents, 5), *_padded(map_.strides, 4), *_padded(map_.box, 5),
    )  # fmt: skip
    return _FORM.pack(_MAGIC, address, *fields).ljust(128, b"\0")


@lru_cache(maxsize=256)
def decoded(data: bytes) -> tuple[TensorMap, int] | None:
    """Returns a map and the tensor's address from its 128 bytes; None if they are no map."""
    magic, address, rank, dtype, swizzle, _, *numbers = _FORM.unpack(data[: _FORM.size])
    if magic != _MAGIC:
        return None
    extents, strides, box = numbers[:rank], numbers[5 : 4 + rank], numbers[9 : 9 + rank]
    return TensorMap("", _NAMES[dtype], tuple(extents), tuple(strides), tuple(box), swizzle), address


def box_elements(map_: TensorMap, corner: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (byte offsets from the tensor's start, whether each is inside the tensor) of the elements of a box in the
    order of shared memory. `corner`: the coordinates of its first element, innermost first."""
    offsets, inside = np.zeros(1, np.int64), np.ones(1, bool)
    item = ELEMENTS[map_.dtype]
    for first, count, extent, stride in zip(
        corner, map_.box, map_.extents, (item, *map_.strides), strict=True
    ):
        index = first + np.arange(count)
        within = (index >= 0) & (index < extent)
        offsets = ((index * stride)[:, None] + offsets).reshape(-1)
        inside = (within[:, None] & inside).reshape(-1)
    return offsets, inside


def _padded(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (*numbers, *(0,) * (count - len(numbers)))
