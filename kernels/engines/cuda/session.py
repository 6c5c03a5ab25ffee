"""A program on the GPU: its buffers in a separate memory pool, its steps ready to be queued."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kernels import sources
from kernels.engines.cuda import tensor_maps
from kernels.engines.cuda.compile import compile_kernel
from kernels.engines.cuda.device import clear, own_stream, poison, refused_when_full
from kernels.engines.cuda.memory_hook import memory_hook
from kernels.engines.cuda.replay import Replay
from kernels.engines.protocol import ALLOCATED, Allocated
from kernels.model.program import (
    INPUT,
    OUTPUT,
    WORKSPACE,
    Arg,
    HostLoop,
    Launch,
    Program,
    RefusedError,
    Step,
    refuse_steps,
)
from kernels.model.result import Memory
from kernels.model.rules import MAX_STATIC_SHARED
from kernels.model.tensor_map import TensorMap

if TYPE_CHECKING:
    import cupy


class Session:
    """Buffers on the GPU, in a separate pool so that every allocation is recorded."""

    counters = trace = None  # the GPU counts and traces nothing

    def __init__(self, program: Program, inputs: Mapping[str, np.ndarray]):
        import cupy

        self.program = program
        self.stream = own_stream()
        self._pool = cupy.cuda.MemoryPool()
        self._hook = memory_hook()()
        self.arrays = {}
        with self._accounted():
            for role, at in ALLOCATED.items():
                for i, b in enumerate(program.of_role(role)):
                    if i == 0:
                        self._hook.stage(at, role)
                    self.arrays[b.name] = cupy.empty(b.shape, stored(b.dtype))
        for b in program.of_role(WORKSPACE):
            if b.zeroed:
                clear(self.arrays[b.name], self.stream)
        self.arrays |= {view.name: view.cut(self.arrays[view.of]) for view in program.views}
        self._allocations = len(self._hook.timeline)
        self._in_place = {b.name: inputs[b.name] for b in program.in_place}
        self._set({b.name: inputs[b.name] for b in program.of_role(INPUT)})
        self._calls = [call_of(step, self.arrays) for step in program.steps]
        self._replay: Replay | None = None

    @property
    def memory(self) -> Memory:
        return self._hook.memory()

    def _accounted(self):
        from contextlib import ExitStack

        import cupy

        stack = ExitStack()
        stack.enter_context(cupy.cuda.using_allocator(self._pool.malloc))
        stack.enter_context(self._hook)
        return stack

    def put(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._set(arrays)

    def execute(self, program: Program) -> None:
        for n, (old, new) in enumerate(zip(self.program.steps, program.steps, strict=True)):
            if new is not old and new != old:
                self._calls[n] = call_of(new, self.arrays)
        self.program = program
        with self.stream:
            self.run()
        self.stream.synchronize()

    def replay(self, program: Program) -> None:
        """As `execute`, by one CUDA graph: it is captured at the first call, and only what changed is set in it later."""
        if self._replay is None:
            self._replay = self.captured()
        self._replay.update(program)
        self._replay.launch(self.stream)
        self.stream.synchronize()

    def captured(self) -> Replay:
        """Returns the session's program as a CUDA graph. Every kernel must have run once: a capture loads none."""
        with self.stream:
            self.stream.begin_capture()
            self.run()
            return Replay(self.stream.end_capture(), self.program)

    def _set(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.arrays[name].set(bits(array), stream=self.stream)

    def run(self) -> None:
        """Queue every step on the session's stream, which must be current."""
        for call in self._calls:
            call()

    def run_step(self, index: int) -> None:
        self._calls[index]()

    def verify_run(self) -> np.ndarray:
        for b in (*self.program.of_role(OUTPUT), *self.program.of_role(WORKSPACE)):
            if not b.zeroed:
                poison(self.arrays[b.name], self.stream)
        self._set(self._in_place)
        del self._hook.timeline[self._allocations :]
        with refused_when_full(), self.stream, self._accounted():
            for step, call in zip(self.program.steps, self._calls, strict=True):
                self._hook.stage(step.name, WORKSPACE)  # allocated by a library call while it runs
                call()
                self._hook.add_external(getattr(call, "workspace_bytes", 0))
            for call in self._calls:  # a library with its own memory copies its result here
                getattr(call, "copy_result", lambda: None)()
        return self.fetch(self.program.outputs[0].name)

    def fetch(self, name: str) -> np.ndarray:
        with self.stream:
            host = self.arrays[name].get(stream=self.stream)
        self.stream.synchronize()
        return host

    def close(self) -> None:
        self.stream.synchronize()
        self._calls.clear()
        self._replay = None
        self.arrays.clear()
        self._pool.free_all_blocks()


def stored(dtype: np.dtype | str) -> np.dtype:
    """Returns the type of CuPy's array for elements of a type: bytes for 8-bit floats, which CuPy lacks."""
    dtype = np.dtype(dtype)
    return np.dtype(np.uint8) if dtype.name.startswith("float8") else dtype


def bits(array: np.ndarray) -> np.ndarray:
    """Returns an array as CuPy takes it, contiguous and of the stored type."""
    return np.ascontiguousarray(array).view(stored(array.dtype))


def open(program: Program, inputs: Mapping[str, np.ndarray], trace: None = None) -> Session:
    refuse_steps(program, "cuda")
    with refused_when_full():
        return Session(program, inputs)


def call_of(step: Step, arrays: Mapping[str, cupy.ndarray]) -> Callable[[], None]:
    """Returns the call that queues a step on the current stream, with arrays by the names of its arguments."""
    args = tuple(argument(a, arrays) for a in step.args)
    if isinstance(step, Launch):
        kernel = compile_kernel(step.source, step.entry, step.defines)
        if step.shared > MAX_STATIC_SHARED:  # more needs this attribute
            kernel.max_dynamic_shared_size_bytes = step.shared
        if sources.needs_whole_grid(step.source):
            refuse_partial_grid(kernel, step)
        return lambda: kernel(step.grid, step.block, args, shared_mem=step.shared)
    if isinstance(step, HostLoop):
        raise TypeError(f"{step.name} is loops for the processor")
    return step.bind(*args)


def refuse_partial_grid(kernel: cupy.RawKernel, step: Launch) -> None:
    """Raises RefusedError if the GPU cannot run all blocks of a launch at the same time."""
    import cupy

    of_sm = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, math.prod(step.block), step.shared
    )
    limit = of_sm * cupy.cuda.Device().attributes["MultiProcessorCount"]
    if math.prod(step.grid) > limit:
        raise RefusedError(
            f"the blocks of {step.entry} wait for each other: this GPU runs {limit:,} of them at the same time, "
            f"the grid has {math.prod(step.grid):,}; take fewer blocks"
        )


def argument(a: Arg, arrays: Mapping[str, cupy.ndarray]) -> object:
    """Returns an argument as CuPy takes it."""
    if isinstance(a, TensorMap):
        return tensor_maps.encoded(a, arrays[a.buffer].data.ptr)
    if isinstance(a, str):
        return arrays[a]
    return np.asarray(a) if a.dtype.names else a


def allocate_by_need(
    program: Program, inputs: Mapping[str, np.ndarray], lives: Mapping[str, tuple[int, int]]
) -> list[Allocated]:
    """Runs each step once. Returns the bytes that CuPy's pool uses for each buffer that exists during it, and the rest.

    lives: the first and the last step of each workspace buffer. The pool rounds each buffer up to 512 bytes. The rest is
    what a library allocates from the pool during its call.
    """
    import cupy

    pool, stream, buffers = cupy.cuda.MemoryPool(), own_stream(), {b.name: b for b in program.buffers}
    views, arrays, found = program.views, {}, []
    with refused_when_full(), stream, cupy.cuda.using_allocator(pool.malloc):
        for b in (*program.of_role(INPUT), *program.of_role(OUTPUT)):
            arrays[b.name] = cupy.empty(b.shape, stored(b.dtype))
            if b.role == INPUT:
                arrays[b.name].set(bits(inputs[b.name]), stream=stream)
        for n, step in enumerate(program.steps):
            for name, (first, last) in lives.items():
                if last < n:
                    arrays.pop(name, None)
                elif first == n:
                    arrays[name] = cupy.empty(buffers[name].shape, stored(buffers[name].dtype))
                    (clear if buffers[name].zeroed else poison)(arrays[name], stream)
            sizes = {name: array.data.mem.size for name, array in arrays.items()}
            call = call_of(step, arrays | {v.name: v.cut(arrays[v.of]) for v in views if v.of in arrays})
            call()
            stream.synchronize()
            found.append(Allocated(sizes, pool.used_bytes() - sum(sizes.values())))
            del call
    return found
