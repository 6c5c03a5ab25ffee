"""Workspace of the vendor libraries. Only the library knows its size, so it is not a buffer of a Program. It is allocated
from CuPy's pool at the first call, where the session's memory hook counts it for that step, and is then reused."""

from __future__ import annotations

from collections.abc import Callable

from kernels.model.program import RefusedError


def lazy_workspace(nbytes: int, who: str) -> Callable[[], int]:
    """Returns a function that returns the address of `nbytes` bytes on the GPU, the same at each call; 0 if none are
    needed. RefusedError names the bytes if they are not free."""
    memory = None

    def address() -> int:
        nonlocal memory
        if not nbytes:
            return 0
        if memory is None:
            memory = _alloc(nbytes, who)
        return memory.ptr

    return address


def _alloc(nbytes: int, who: str):
    import cupy

    free = cupy.cuda.Device().mem_info[0]
    try:
        if nbytes <= free:
            return cupy.cuda.alloc(nbytes)
    except cupy.cuda.memory.OutOfMemoryError:
        pass  # free, but fragmented
    raise RefusedError(
        f"{who} asks for a workspace of {nbytes:,} bytes, {free:,} bytes are free; take a smaller shape or batch"
    )
