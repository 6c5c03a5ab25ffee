"""Tensor maps for the copy engine, written by the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from kernels.machine import driver as machine_driver
from kernels.model.program import RuleError
from kernels.model.tensor_map import Im2colMap, StridedMap, TensorMap

BYTES, ALIGN = 128, 64  # of CUtensorMap
OPAQUE = np.dtype([("opaque", "<u8", BYTES // 8)])
# CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
_TYPES = {"uint8": 0, "int8": 0, "float16": 6, "float32": 7, "bfloat16": 9}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_LINES_OF_256 = 3


def encoded(map_: TensorMap, address: int) -> np.ndarray:
    """Returns the map of a tensor at a device address, as CuPy passes it by value. RuleError if the driver refuses it."""
    map_.check()
    rank = len(map_.extents)
    room = ctypes.create_string_buffer(BYTES + ALIGN)
    aligned = -(-ctypes.addressof(room) // ALIGN) * ALIGN
    encode, box = _box_of(map_)
    error = encode(
        ctypes.c_void_p(aligned),
        _TYPES[map_.dtype],
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*map_.extents),
        (ctypes.c_uint64 * max(rank - 1, 1))(*map_.strides),
        *box,
        0,  # not interleaved
        _SWIZZLES[map_.swizzle],
        _LINES_OF_256,
        0,  # zeros outside
    )
    if error:
        raise RuleError(f"the driver refuses the tensor map {map_}: error {error}")
    return np.array(np.frombuffer(ctypes.string_at(aligned, BYTES), OPAQUE)[0])


def _box_of(map_: TensorMap) -> tuple[Callable[..., int], tuple]:
    """Returns the driver's function for a kind of map, and its arguments that describe the box."""
    library, rank = machine_driver.library(), len(map_.extents)
    if isinstance(map_, Im2colMap):
        lower, upper = ((ctypes.c_int * 2)(*corner) for corner in (map_.lower, map_.upper))
        return library.cuTensorMapEncodeIm2col, (
            lower,
            upper,
            *map(ctypes.c_uint32, map_.box),
            _steps(1, *map_.steps, 1),
        )
    strided = isinstance(map_, StridedMap)
    box = (ctypes.c_uint32 * rank)(*(map_.span if strided else map_.box))
    return library.cuTensorMapEncodeTiled, (box, _steps(*(map_.steps if strided else (1,) * rank)))


def _steps(*steps: int) -> ctypes.Array:
    return (ctypes.c_uint32 * len(steps))(*steps)
