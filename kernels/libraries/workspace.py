"""Workspace of the vendor libraries: how much one needs only the library knows, so it is no buffer of a Program. It
is taken from CuPy's pool at the first call, where the session's ledger sees it as that step's, and kept."""

from __future__ import annotations

from collections.abc import Callable

from kernels.model.program import RefusedError


def taker(nbytes: int, who: str) -> Callable[[], int]:
    """A function that gives the address of `nbytes` bytes on the GPU, the same each time; 0 where none are needed.
    RefusedError names the bytes where they are not free."""
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
        pass  # free, but in pieces
    raise RefusedError(
        f"{who} asks for a workspace of {nbytes:,} bytes, {free:,} bytes are free; take a smaller shape or batch"
    )
