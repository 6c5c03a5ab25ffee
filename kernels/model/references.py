"""Float64 references on a GPU: the largest presets take minutes on a processor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def on_gpu(compute: Callable[[ModuleType], T]) -> T | None:
    """Returns compute(cupy) if this process runs kernels on a GPU, so that CuPy is loaded; None if it does not, or if the
    GPU's memory is too small. The memory is free again afterwards."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return None
    try:
        found = compute(cupy)
    except cupy.cuda.memory.OutOfMemoryError:
        found = None
    except cupy.cuda.runtime.CUDARuntimeError:  # CuPy was loaded, but there is no driver or no GPU
        return None
    cupy.get_default_memory_pool().free_all_blocks()
    return found
