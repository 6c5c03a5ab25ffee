"""What a transfer program calls. Each call is noted as an operation, and a backend executes it.

`Dry` executes nothing: it gives the operations of a program of any size. `Host` executes all of it in NumPy. The GPU's
backend is kernels.transfers.cuda.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kernels.i18n import tr
from kernels.ladders import find, ladder_of
from kernels.model.program import Launch, RuleError
from kernels.transfers import programs
from kernels.transfers.operations import (
    ALLOCATE,
    COPY_IN,
    COPY_OUT,
    CUDA_MALLOC,
    FREE,
    GRAPH,
    LAUNCH,
    MANAGED,
    POOL,
    RECORD,
    SYNCHRONIZE,
    TOUCH,
    WAIT,
    Op,
)

if TYPE_CHECKING:
    import cupy

FLOAT = 4  # bytes
GEMM, ADD = "gemm/bank-free", "add/vector"  # the kernels of the programs
FILE = Path(programs.__file__)

R = TypeVar("R")
Captured = Any  # of a backend: a CUDA graph, or a list of launches


class HostArray:
    """A float32 array in the host's memory. `pinned`: its pages cannot be moved, so the GPU reads them directly."""

    def __init__(self, array: np.ndarray, pinned: bool = False, owner: object = None):
        self.array, self.pinned, self._owner = array, pinned, owner

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        """Returns the rows of a slice as another HostArray, or a number."""
        found = self.array[at]
        return HostArray(found, self.pinned, self) if isinstance(at, slice) else found


class _Memory:
    """The memory of an array. It is released when the last array that uses it is."""

    def __init__(self, gpu: Gpu, buffer: cupy.ndarray | np.ndarray, number: int, nbytes: int, memory: str):
        self.gpu, self.buffer, self.number, self.nbytes, self.memory = gpu, buffer, number, nbytes, memory

    def drop(self) -> None:
        """Gives up the backend's buffer."""
        self.buffer = None

    def __del__(self):
        if self.memory:
            self.gpu.released(self)


class DeviceArray:
    """A float32 array on the GPU, or some of its rows."""

    def __init__(self, gpu: Gpu, shape: tuple[int, ...], memory: _Memory, rows: slice | None = None):
        self.gpu, self.shape, self.memory, self.rows = gpu, tuple(shape), memory, rows

    @property
    def buffer(self) -> cupy.ndarray | np.ndarray:
        """Returns the backend's array."""
        whole: cupy.ndarray | np.ndarray = self.memory.buffer
        return whole if self.rows is None else whole[self.rows]

    @property
    def label(self) -> str:
        return f"{self.rows.start}–{self.rows.stop - 1}" if self.rows else ""

    @property
    def nbytes(self) -> int:
        return FLOAT * int(np.prod(self.shape))

    def __getitem__(self, rows: slice) -> DeviceArray:
        part = (rows.stop - rows.start, *self.shape[1:])
        return DeviceArray(self.gpu, part, self.memory, rows)

    def set(self, host: HostArray, stream: Stream | None = None) -> None:
        """Copies from the host. Without a stream, and from pageable memory, the program waits for the end."""
        self.gpu.copy(COPY_IN, self, host, stream)

    def get(self, stream: Stream | None = None, *, out: HostArray) -> None:
        self.gpu.copy(COPY_OUT, self, out, stream)

    def write(self, host: HostArray) -> None:
        """Writes managed memory from the host."""
        self.gpu.touch(self, host, into=True)

    def read(self, *, out: HostArray) -> None:
        """Reads managed memory on the host."""
        self.gpu.touch(self, out, into=False)


class Event:
    def __init__(self, op: int, handle: cupy.cuda.Stream | None):
        self.op, self.handle = op, handle


class Stream:
    """A queue of operations that run in their order. Operations of different streams can overlap."""

    def __init__(self, gpu: Gpu, name: str):
        self.gpu, self.name = gpu, name
        self.handle = gpu.backend.stream(name)

    def record(self) -> Event:
        gpu = self.gpu
        at = gpu.note(Op(RECORD, gpu.line(), self.name))
        return Event(at, gpu.backend.record(self.handle))

    def wait_event(self, event: Event) -> None:
        gpu = self.gpu
        gpu.note(Op(WAIT, gpu.line(), self.name, waits=(event.op,)))
        gpu.backend.wait(self.handle, event.handle)

    def synchronize(self) -> None:
        gpu = self.gpu
        at = gpu.note(Op(SYNCHRONIZE, gpu.line(), self.name, blocks=True))
        gpu.backend.host(at, lambda: gpu.backend.synchronize([self.handle]))


class Graph:
    """Launches that were captured from a stream."""

    def __init__(self, gpu: Gpu):
        self.gpu, self.ops, self.handle = gpu, [], None

    def launch(self, stream: Stream) -> None:
        gpu, first = self.gpu, self.ops[0]
        op = Op(GRAPH, gpu.line(), stream.name, rung=first.rung, shape=first.shape, launches=len(self.ops))
        gpu.backend.run(gpu.note(op), stream.handle, lambda: gpu.backend.launch_graph(self.handle, stream.handle))


class Gpu:
    """Notes each operation in `ops` and has the backend execute it. Without `notes` it notes no launch, which takes about as
    long as the launch itself."""

    def __init__(self, backend: Any, notes: bool = True):
        self.backend, self.notes, self.ops = backend, notes, []
        self._arrays = 0
        self._capturing: Graph | None = None
        self._streams: dict[str, Stream] = {}
        self._line = 0

    # -- notes -------------------------------------------------------------------------------------------
    def line(self) -> int:
        """Returns the line of the program that runs; the last one while it returns."""
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != programs.__file__:
            frame = frame.f_back
        if frame:
            self._line = frame.f_lineno
        return self._line

    def note(self, op: Op) -> int:
        """Returns the position of an operation, which is noted."""
        self.ops.append(op)
        return len(self.ops) - 1

    # -- streams -------------------------------------------------------------------------------------------
    def stream(self, name: str) -> Stream:
        if name not in self._streams:
            self._streams[name] = Stream(self, name)
        return self._streams[name]

    @property
    def main(self) -> Stream:
        """Returns the stream of calls that name none."""
        return self.stream("main")

    def synchronize(self) -> None:
        """Waits for all streams."""
        at = self.note(Op(SYNCHRONIZE, self.line(), blocks=True))
        handles = [stream.handle for stream in self._streams.values()]
        self.backend.host(at, lambda: self.backend.synchronize(handles))

    # -- memory ------------------------------------------------------------------------------------------
    def empty(self, shape: tuple[int, ...]) -> DeviceArray:
        return self._allocate(shape, POOL)

    def malloc(self, shape: tuple[int, ...]) -> DeviceArray:
        return self._allocate(shape, CUDA_MALLOC)

    def managed(self, shape: tuple[int, ...]) -> DeviceArray:
        return self._allocate(shape, MANAGED)

    def _allocate(self, shape: tuple[int, ...], memory: str) -> DeviceArray:
        nbytes, self._arrays = FLOAT * int(np.prod(shape)), self._arrays + 1
        at = self.note(Op(ALLOCATE, self.line(), nbytes=nbytes, array=self._arrays, memory=memory, blocks=True))
        buffer = self.backend.host(at, lambda: self.backend.allocate(shape, memory))
        return DeviceArray(self, shape, _Memory(self, buffer, self._arrays, nbytes, memory))

    def released(self, memory: _Memory) -> None:
        """Notes the end of an array, whose buffer goes back to where it came from."""
        op = Op(FREE, self.line(), nbytes=memory.nbytes, array=memory.number, memory=memory.memory, blocks=True)
        self.backend.host(self.note(op), memory.drop)

    def resident(self, array: np.ndarray) -> DeviceArray:
        """Returns an array that is on the GPU before the program begins: no operation of it."""
        return DeviceArray(self, array.shape, _Memory(self, self.backend.resident(array), 0, array.nbytes, ""))

    # -- copies ------------------------------------------------------------------------------------------
    def copy(self, kind: str, array: DeviceArray, host: HostArray, stream: Stream | None) -> None:
        if array.shape != host.shape:
            raise RuleError(tr("a copy needs equal shapes, got {a} and {b}", a=array.shape, b=host.shape))
        on, blocks = stream or self.main, stream is None or not host.pinned
        at = self.note(Op(kind, self.line(), on.name, array.nbytes, array.label, host.pinned, blocks))
        copy = self.backend.copy_in if kind == COPY_IN else self.backend.copy_out

        def whole() -> None:
            self.backend.run(at, on.handle, lambda: copy(array.buffer, host, on.handle))
            if blocks:
                self.backend.synchronize([on.handle])

        self.backend.host(at, whole)

    def touch(self, array: DeviceArray, host: HostArray, into: bool) -> None:
        at = self.note(Op(TOUCH, self.line(), nbytes=array.nbytes, blocks=True))
        self.backend.host(at, lambda: self.backend.touch(array.buffer, host, into))

    # -- kernels -----------------------------------------------------------------------------------------
    def multiply(self, x: DeviceArray, w: DeviceArray, y: DeviceArray, stream: Stream | None = None) -> None:
        """Computes y = x w by the kernel of GEMM."""
        (m, k), n = x.shape, w.shape[1]
        self._launch(GEMM, {"M": m, "N": n, "K": k}, {"A": x, "B": w, "C": y}, stream)

    def add(self, a: DeviceArray, b: DeviceArray, c: DeviceArray, stream: Stream | None = None) -> None:
        """Computes c = a + b by the kernel of add."""
        self._launch(ADD, {"M": a.shape[0], "N": a.shape[1]}, {"A": a, "B": b, "C": c}, stream)

    def _launch(self, rung: str, shape: dict[str, int], arrays: dict[str, DeviceArray], stream: Stream | None) -> None:
        on, step = stream or self.main, kernel(rung, tuple(shape.items()))
        args = tuple(arrays[a].buffer if isinstance(a, str) else a for a in step.args)
        if not self.notes:
            self.backend.launch(step, args, on.handle)
            if self._capturing:
                self._capturing.ops.append(Op(LAUNCH, 0, rung=rung, shape=tuple(shape.items())))
            return
        label = next((a.label for a in arrays.values() if a.label), "")
        op = Op(LAUNCH, self.line(), on.name, label=label, rung=rung, shape=tuple(shape.items()), launches=1)
        if self._capturing:
            self._capturing.ops.append(op)
            self.backend.launch(step, args, on.handle)
            return
        at = self.note(op)
        self.backend.host(
            at, lambda: self.backend.run(at, on.handle, lambda: self.backend.launch(step, args, on.handle))
        )

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[Graph]:
        """Captures the launches of a block as a graph in place of running them. The clock starts after it."""
        found = self._capturing = Graph(self)
        self.backend.begin_capture(stream.handle)
        try:
            yield found
        finally:
            self._capturing = None
            found.handle = self.backend.end_capture(stream.handle)
        self.backend.restart()

    # -- pieces ------------------------------------------------------------------------------------------
    @staticmethod
    def cut(rows: int, n: int) -> list[slice]:
        """Returns n slices of about the same length. RuleError for more pieces than rows."""
        if not 1 <= n <= rows:
            raise RuleError(tr("{rows} rows can be cut into 1 to {rows} pieces, got {n}", rows=rows, n=n))
        edges = [rows * k // n for k in range(n + 1)]
        return [slice(a, b) for a, b in pairwise(edges)]


@lru_cache(maxsize=1024)
def kernel(rung: str, shape: tuple[tuple[str, int], ...]) -> Launch:
    """Returns the launch of a rung at a shape. RuleError names a rule that the shape breaks."""
    found = find(rung)
    s = ladder_of(rung).shape(**dict(shape))
    (step,) = found.build(s, found.check(s, {})).launches
    return step


class Dry:
    """Executes nothing. Arrays are views of one zero, of any shape."""

    def host(self, at: int, call: Callable[[], R]) -> R:
        return call()

    def run(self, at: int, stream: cupy.cuda.Stream | None, call: Callable[[], object]) -> None:
        call()

    def restart(self) -> None: ...

    def stream(self, name: str) -> cupy.cuda.Stream | None:
        return name

    def record(self, stream: cupy.cuda.Stream | None) -> cupy.cuda.Event | None: ...

    def wait(self, stream: cupy.cuda.Stream | None, event: cupy.cuda.Event | None) -> None: ...

    def synchronize(self, streams: list[cupy.cuda.Stream]) -> None: ...

    def allocate(self, shape: tuple[int, ...], memory: str) -> cupy.ndarray | np.ndarray:
        return np.broadcast_to(np.float32(0), shape)

    def resident(self, array: np.ndarray) -> cupy.ndarray | np.ndarray:
        return array

    def copy_in(self, buffer: cupy.ndarray | np.ndarray, host: HostArray, stream: cupy.cuda.Stream | None) -> None: ...

    def copy_out(self, buffer: cupy.ndarray | np.ndarray, host: HostArray, stream: cupy.cuda.Stream | None) -> None: ...

    def touch(self, buffer: cupy.ndarray | np.ndarray, host: HostArray, into: bool) -> None: ...

    def zero(self, buffer: cupy.ndarray | np.ndarray) -> None: ...

    def launch(self, step: Launch, args: tuple, stream: cupy.cuda.Stream | None) -> None: ...

    def begin_capture(self, stream: cupy.cuda.Stream | None) -> None: ...

    def end_capture(self, stream: cupy.cuda.Stream | None) -> Captured: ...

    def launch_graph(self, graph: Captured, stream: cupy.cuda.Stream | None) -> None: ...


class Host(Dry):
    """Executes every operation at once, in NumPy: the numbers of a program without a GPU."""

    def __init__(self):
        self._captured: list | None = None

    def allocate(self, shape: tuple[int, ...], memory: str) -> cupy.ndarray | np.ndarray:
        return np.full(shape, np.nan, np.float32)

    def resident(self, array: np.ndarray) -> cupy.ndarray | np.ndarray:
        return np.array(array, np.float32)

    def copy_in(self, buffer: cupy.ndarray | np.ndarray, host: HostArray, stream: cupy.cuda.Stream | None) -> None:
        buffer[...] = host.array

    def copy_out(self, buffer: cupy.ndarray | np.ndarray, host: HostArray, stream: cupy.cuda.Stream | None) -> None:
        host.array[...] = buffer

    def touch(self, buffer: cupy.ndarray | np.ndarray, host: HostArray, into: bool) -> None:
        (self.copy_in if into else self.copy_out)(buffer, host, None)

    def zero(self, buffer: cupy.ndarray | np.ndarray) -> None:
        buffer[...] = 0

    def launch(self, step: Launch, args: tuple, stream: cupy.cuda.Stream | None) -> None:
        if self._captured is not None:
            self._captured.append((step, args))
        else:
            step.cpu(*args)

    def begin_capture(self, stream: cupy.cuda.Stream | None) -> None:
        self._captured = []

    def end_capture(self, stream: cupy.cuda.Stream | None) -> Captured:
        found, self._captured = self._captured, None
        return found

    def launch_graph(self, graph: Captured, stream: cupy.cuda.Stream | None) -> None:
        for step, args in graph:
            step.cpu(*args)
