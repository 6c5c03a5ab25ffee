"""Tensor maps for the copy engine, written by the driver."""

from __future__ import annotations

import ctypes

import numpy as np

from kernels.machine import driver as machine_driver
from kernels.model.program import RuleError
from kernels.model.tensor_map import TensorMap

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
    error = machine_driver.library().cuTensorMapEncodeTiled(
        ctypes.c_void_p(aligned),
        _TYPES[map_.dtype],
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*map_.extents),
        (ctypes.c_uint64 * max(rank - 1, 1))(*map_.strides),
        (ctypes.c_uint32 * rank)(*map_.box),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        0,  # not interleaved
        _SWIZZLES[map_.swizzle],
        _LINES_OF_256,
        0,  # zeros outside
    )
    if error:
        raise RuleError(f"the driver refuses the tensor map {map_}: error {error}")
    return np.array(np.frombuffer(ctypes.string_at(aligned, BYTES), OPAQUE)[0])
