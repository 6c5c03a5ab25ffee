"""The GPU's backend of transfer programs: CuPy executes each operation, events and the clock time it.

Each operation of a queue lies between two events in its stream. An event's time counts from one that is recorded at the start.
The host's clock starts beside it, so both times agree within some microseconds.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kernels.engines.cuda.compile import compile_kernel
from kernels.engines.cuda.device import load
from kernels.i18n import tr
from kernels.model.program import Launch, RefusedError
from kernels.transfers.gpu import HostArray
from kernels.transfers.operations import CUDA_MALLOC, HOST, MANAGED, Op, Span, Timeline

if TYPE_CHECKING:
    import cupy


R = TypeVar("R")


class CudaBackend:
    """Executes operations through CuPy. `timed`: also records an event before and after each, for the timeline; a total is
    measured without them."""

    def __init__(self, timed: bool = False):
        self.cupy, self.timed = load(), timed
        self._pool = self.cupy.cuda.MemoryPool()
        self._streams: list[cupy.cuda.Stream] = []
        self._capturing = False
        self._pending: list[tuple[int, cupy.cuda.Event, cupy.cuda.Event]] = []  # (operation, event before, event after)
        self._host: list[tuple[int, float, float]] = []
        self._start, self._base = 0.0, None

    # -- time --------------------------------------------------------------------------------------------
    def restart(self) -> None:
        """Starts the clocks: an event in an idle stream, and the host's clock."""
        self._pending.clear()
        self._host.clear()
        self.cupy.cuda.Device().synchronize()
        self._base = self.cupy.cuda.Event()
        stream = self._clock_stream()
        before = time.perf_counter()
        self._base.record(stream)
        self._base.synchronize()
        self._start = (before + time.perf_counter()) / 2

    def _clock_stream(self) -> cupy.cuda.Stream:
        if not self._streams:
            self.stream("clock")
        return self._streams[0]

    def host(self, at: int, call: Callable[[], R]) -> R:
        if not self.timed or self._capturing:
            return call()
        begin = time.perf_counter()
        result = call()
        self._host.append((at, begin, time.perf_counter()))
        return result

    def run(self, at: int, stream: cupy.cuda.Stream, call: Callable[[], object]) -> None:
        if not self.timed:
            call()
            return
        before, after = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        before.record(stream)
        call()
        after.record(stream)
        self._pending.append((at, before, after))

    def elapsed_ms(self) -> float:
        """Waits for the GPU and returns the ms since the start, by the host's clock."""
        for stream in self._streams:
            stream.synchronize()
        return 1e3 * (time.perf_counter() - self._start)

    def timeline(self, ops: tuple[Op, ...], total_ms: float) -> Timeline:
        """Returns the timeline of the operations that were run since the start. Arrays released after them, when the
        program's result is, are not part of it."""
        elapsed = self.cupy.cuda.get_elapsed_time
        spans = [
            Span(at, HOST, 1e3 * (a - self._start), 1e3 * (b - self._start)) for at, a, b in self._host if at < len(ops)
        ]
        for at, before, after in self._pending:
            spans.append(Span(at, ops[at].queue, elapsed(self._base, before), elapsed(self._base, after)))
        return Timeline(tuple(sorted(spans, key=lambda s: (s.op, s.queue))), total_ms)

    # -- streams -------------------------------------------------------------------------------------------
    def stream(self, name: str) -> cupy.cuda.Stream:
        self._streams.append(self.cupy.cuda.Stream(non_blocking=True))
        return self._streams[-1]

    def record(self, stream: cupy.cuda.Stream) -> cupy.cuda.Event:
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def wait(self, stream: cupy.cuda.Stream, event: cupy.cuda.Event) -> None:
        stream.wait_event(event)

    def synchronize(self, streams: list[cupy.cuda.Stream]) -> None:
        for stream in streams:
            stream.synchronize()

    # -- memory ------------------------------------------------------------------------------------------
    def allocate(self, shape: tuple[int, ...], memory: str) -> cupy.ndarray:
        cuda, nbytes = self.cupy.cuda, 4 * int(np.prod(shape))
        if memory == CUDA_MALLOC:
            pointer = cuda.MemoryPointer(cuda.Memory(nbytes), 0)
        else:
            pointer = cuda.malloc_managed(nbytes) if memory == MANAGED else self._pool.malloc(nbytes)
        return self.cupy.ndarray(shape, np.float32, memptr=pointer)

    def resident(self, array: np.ndarray) -> cupy.ndarray:
        found = self.allocate(array.shape, "")
        found.set(np.ascontiguousarray(array, np.float32))
        self.cupy.cuda.Device().synchronize()
        return found

    def pinned(self, shape: tuple[int, ...], pinned: bool) -> HostArray:
        """Returns an array in the host's memory. RefusedError if the system pins no more."""
        if not pinned:
            return HostArray(np.zeros(shape, np.float32))
        nbytes = 4 * int(np.prod(shape))
        try:
            memory = self.cupy.cuda.PinnedMemoryPointer(self.cupy.cuda.PinnedMemory(nbytes), 0)
        except self.cupy.cuda.runtime.CUDARuntimeError as e:
            raise RefusedError(f"{nbytes:,} bytes cannot be pinned: {e}") from None
        array = np.frombuffer(memory, np.float32, int(np.prod(shape))).reshape(shape)
        return HostArray(array, pinned=True, owner=memory)

    def close(self) -> None:
        """Gives the pool's memory back."""
        self._pool.free_all_blocks()

    # -- operations --------------------------------------------------------------------------------------
    def copy_in(self, buffer: cupy.ndarray, host: HostArray, stream: cupy.cuda.Stream) -> None:
        buffer.data.copy_from_host_async(host.array.ctypes.data, host.nbytes, stream)

    def copy_out(self, buffer: cupy.ndarray, host: HostArray, stream: cupy.cuda.Stream) -> None:
        buffer.data.copy_to_host_async(host.array.ctypes.data, host.nbytes, stream)

    def touch(self, buffer: cupy.ndarray, host: HostArray, into: bool) -> None:
        address, count = buffer.data.ptr, int(np.prod(buffer.shape))
        managed = np.ctypeslib.as_array((ctypes.c_float * count).from_address(address)).reshape(buffer.shape)
        if into:
            managed[...] = host.array
        else:
            host.array[...] = managed

    def zero(self, buffer: cupy.ndarray) -> None:
        buffer.data.memset(0, buffer.nbytes)

    def launch(self, step: Launch, args: tuple, stream: cupy.cuda.Stream) -> None:
        compiled = compile_kernel(step.source, step.entry, step.defines)
        with stream:
            compiled(step.grid, step.block, args, shared_mem=step.shared)

    def begin_capture(self, stream: cupy.cuda.Stream) -> None:
        self._capturing = True
        with stream:
            stream.begin_capture()

    def end_capture(self, stream: cupy.cuda.Stream) -> cupy.cuda.Graph:
        self._capturing = False
        with stream:
            return stream.end_capture()

    def launch_graph(self, graph: cupy.cuda.Graph, stream: cupy.cuda.Stream) -> None:
        graph.launch(stream)


def managed_refusal() -> str:
    """Returns why this GPU cannot use managed memory safely; "" if it can.

    Without concurrent access, a processor that touches a page while any kernel runs ends the process.
    """
    attributes = load().cuda.Device().attributes
    if not attributes.get("ManagedMemory"):
        return tr("this GPU has no managed memory")
    if not attributes.get("ConcurrentManagedAccess"):
        return tr("this GPU or its driver does not allow the processor to touch managed memory while kernels run")
    return ""
