"""As much of CuPy as transfer programs use, on NumPy: each call is executed at once, events hold the host's time."""

from __future__ import annotations

import ctypes
import time
import types
from typing import Any

import numpy as np

ATTRIBUTES = {"ManagedMemory": 1, "ConcurrentManagedAccess": 1, "MultiProcessorCount": 4, "L2CacheSize": 1 << 20}
FREE = 8 << 30


class CUDARuntimeError(RuntimeError):
    pass


class Stream:
    def __init__(self, non_blocking: bool = False):
        self.captured: list | None = None

    def __enter__(self):
        STATE.current.append(self)
        return self

    def __exit__(self, *error):
        STATE.current.pop()

    def record(self, event=None):
        event.record(self)
        return event

    def wait_event(self, event) -> None:
        assert event.at is not None, "a stream waits for an event that was never recorded"

    def synchronize(self) -> None: ...

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self):
        found, self.captured = self.captured, None
        return Graph(found)


class Graph:
    def __init__(self, calls):
        self.calls = calls

    def launch(self, stream=None) -> None:
        for call in self.calls:
            call()


class Event:
    def __init__(self, block=False, disable_timing=False):
        self.at: float | None = None
        self.timing = not disable_timing

    def record(self, stream=None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None: ...


def get_elapsed_time(a: Event, b: Event) -> float:
    assert a.timing and b.timing
    return 1e3 * (b.at - a.at)


class Memory:
    def __init__(self, size: int):
        self.bytes = np.full(size, 0xFF, np.uint8)  # NaN
        self.size = size


class MemoryPointer:
    def __init__(self, mem, offset: int, pool=None):
        self.mem, self.offset, self.pool = mem, offset, pool

    @property
    def ptr(self) -> int:
        return self.mem.bytes.ctypes.data + self.offset

    def copy_from_host_async(self, address: int, nbytes: int, stream=None) -> None:
        ctypes.memmove(self.ptr, address, nbytes)

    def copy_to_host_async(self, address: int, nbytes: int, stream=None) -> None:
        ctypes.memmove(address, self.ptr, nbytes)

    def memset(self, value: int, nbytes: int) -> None:
        self.mem.bytes[self.offset : self.offset + nbytes] = value

    memset_async = memset


class _Pooled(Memory):
    def __init__(self, size: int):
        super().__init__(size)
        self.number = STATE.next()
        for hook in STATE.hooks:
            hook.malloc_postprocess(0, size, size, self.bytes.ctypes.data, self.number)

    def __del__(self):
        for hook in STATE.hooks:
            hook.free_postprocess(0, self.size, self.bytes.ctypes.data, self.number)


class MemoryPool:
    def malloc(self, size: int) -> MemoryPointer:
        if size > FREE:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
        return MemoryPointer(_Pooled(size), 0)

    def free_all_blocks(self) -> None: ...


class OutOfMemoryError(MemoryError):
    pass


class MemoryHook:
    def __init__(self): ...

    def __enter__(self):
        STATE.hooks.append(self)
        return self

    def __exit__(self, *error):
        STATE.hooks.remove(self)


class ndarray:
    def __init__(self, shape, dtype=np.float32, memptr=None):
        self.shape, self.dtype, self.data = tuple(shape), np.dtype(dtype), memptr

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def numpy(self) -> np.ndarray:
        flat = self.data.mem.bytes[self.data.offset : self.data.offset + self.nbytes]
        return flat.view(self.dtype).reshape(self.shape)

    def __getitem__(self, rows: slice) -> ndarray:
        start = rows.start * self.nbytes // self.shape[0]
        part = (rows.stop - rows.start, *self.shape[1:])
        return ndarray(part, self.dtype, MemoryPointer(self.data.mem, self.data.offset + start))

    def set(self, array: np.ndarray, stream=None) -> None:
        self.numpy[...] = array


class Device:
    attributes = ATTRIBUTES
    mem_info = (FREE, 2 * FREE)

    def synchronize(self) -> None: ...


class _State:
    def __init__(self):
        self.current: list[Stream] = []
        self.hooks: list[MemoryHook] = []
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count


STATE = _State()


def compile_kernel(source: str, entry: str, defines) -> Any:
    """Returns a function that computes in NumPy what the programs' two kernels compute."""

    def call(grid, block, args, shared_mem=0) -> None:
        arrays = [a.numpy if isinstance(a, ndarray) else a for a in args]

        def compute() -> None:
            if "bank_free" in entry:
                np.matmul(arrays[0], arrays[1], out=arrays[3])
            else:
                np.add(arrays[0], arrays[1], out=arrays[2])

        stream = STATE.current[-1] if STATE.current else None
        if stream is not None and stream.captured is not None:
            stream.captured.append(compute)
        else:
            compute()

    return call


def pinned_pointer(memory, offset: int) -> np.ndarray:
    return memory.bytes


def module() -> types.SimpleNamespace:
    """Returns the stand-in for CuPy."""
    cuda = types.SimpleNamespace(
        Stream=Stream,
        Event=Event,
        get_elapsed_time=get_elapsed_time,
        Memory=Memory,
        MemoryPointer=MemoryPointer,
        Device=Device,
        MemoryPool=MemoryPool,
        MemoryHook=MemoryHook,
        PinnedMemory=Memory,
        PinnedMemoryPointer=pinned_pointer,
        malloc_managed=lambda size: MemoryPointer(Memory(size), 0),
        runtime=types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    return types.SimpleNamespace(cuda=cuda, ndarray=ndarray, __version__="fake")
