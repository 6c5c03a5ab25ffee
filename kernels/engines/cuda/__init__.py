"""The cuda engine: the CUDA C++ through CuPy (NVRTC), libraries by their own calls, timed by events.

Nothing here uses CuPy's own kernels: filling and flushing are memsets and copies, so all that is
compiled is what the reader sees.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import numpy as np

from kernels import sources
from kernels.engines import cuda_headers
from kernels.engines.cuda.timing import between_events, flusher, taker
from kernels.engines.protocol import ALLOCATED, Timed, total_bytes
from kernels.libraries import wheels
from kernels.machine import driver as machine_driver
from kernels.machine.status import Status
from kernels.machine.timing import Budget, interleave, warm_up
from kernels.model import values
from kernels.model.program import (
    INPUT,
    OUTPUT,
    WORKSPACE,
    Launch,
    Program,
    RefusedError,
    RuleError,
    Step,
    Tiles,
    refuse_steps,
)
from kernels.model.rules import MOST_STATIC_SHARED
from kernels.model.rung import Rung

MEASURES = True
CONTEXT_MIB = 600  # a context takes about as much
SMI_S = 10  # nvidia-smi takes seconds if the driver is loaded for it


@cache
def status() -> Status:
    """Returns the GPU's name, or why it, CuPy or NVRTC cannot be used. CuPy is not imported, which takes a second: a
    server calls this at every rerun."""
    card = machine_driver.find()
    if isinstance(card, machine_driver.Unusable):
        return Status(False, card.text, card.advice)
    if importlib.util.find_spec("cupy") is None:
        return Status(
            False, "CuPy is not installed", f"pip install cupy-cuda{machine_driver.CUDA}x brings it"
        )
    if wheels.missing("nvrtc"):
        name, wheel = wheels.WHEELS["nvrtc"]
        return Status(False, f"{name} was not found on this machine", f"pip install {wheel} brings it")
    which = f"GPU {machine_driver.GPU} of {card.count}" if card.count > 1 else ""
    return Status(True, card.name, which=which)


def refusal(rung: Rung, shape: Any, tiles: Tiles) -> str:
    """Returns why this GPU, or the libraries beside it, cannot run a rung at a shape and all its tile sizes; "" if
    nothing is known against it."""
    card = machine_driver.find()
    if isinstance(card, machine_driver.Unusable):
        return ""  # the whole engine is refused, by its status
    least = rung.capability(shape)
    if card.capability < least:
        needed, there = machine_driver.dotted(least), machine_driver.dotted(card.capability)
        return f"compute capability {needed} or newer is needed, {card.name} has {there}"
    program = rung.build(shape, tiles)
    shared = max((step.shared for step in program.steps if isinstance(step, Launch)), default=0)
    if shared > max(card.shared_bytes, MOST_STATIC_SHARED):
        return f"a block needs {shared:,} bytes of shared memory, {card.name} has {card.shared_bytes:,}"
    return wheels.refusal(program)


def device_name() -> str:
    return status().text


@cache
def load() -> Any:
    """Returns CuPy. RuleError if it does not load."""
    try:
        import cupy
    except Exception as e:  # a broken installation raises anything
        said = next((line for line in reversed(str(e).splitlines()) if line.strip("= ")), type(e).__name__)
        raise RuleError(
            f"CuPy does not load; pip install --force-reinstall cupy-cuda{machine_driver.CUDA}x repairs it ({said.strip()})"
        ) from None
    return cupy


def free_bytes() -> int:
    """Returns the free bytes of the GPU's memory. RuleError if not even a context fits into it."""
    cupy = load()
    try:
        return cupy.cuda.Device().mem_info[0]
    except cupy.cuda.runtime.CUDARuntimeError as e:
        used, total, left = _smi("memory.used", "memory.total", "memory.free")
        # A GPU too full for a context reports that it is busy (seen on an H200 with 32 MiB left, CUDA 13.2).
        full = "cudaErrorDevicesUnavailable" in str(e) and left is not None and left < CONTEXT_MIB
        if not full and "cudaErrorMemoryAllocation" not in str(e):
            raise
    held = f"{used:,} of {total:,} MiB" if used and total else "all of it"
    raise RuleError(f"the GPU's memory is full: other programs hold {held}; nvidia-smi lists them")


def conditions() -> dict:
    """Driver, CUDA, cuBLAS, CuPy, the clocks at this moment (MHz, as nvidia-smi tells them) and what
    timing nothing costs (ms): the part of every cold figure that is not the kernel's."""
    import cupy

    from kernels.libraries import cublas, cudnn, cufft
    from kernels.libraries import torch as torch_library

    driver, sm, memory = _smi("driver_version", "clocks.sm", "clocks.mem")
    return {
        "driver": driver,
        "cuda": ".".join(map(str, _cuda_version(cupy.cuda.runtime.runtimeGetVersion()))),
        "cublas": cublas.version(),
        "cufft": cufft.version(),
        "cudnn": cudnn.version(),
        "torch": torch_library.version(),
        "cupy": cupy.__version__,
        "numpy": np.__version__,
        "clock_sm_mhz": sm,
        "clock_memory_mhz": memory,
        "event_floor_ms": floor_ms(),
    }


def _smi(*fields: str) -> list[Any]:
    """Returns what nvidia-smi reports of the GPU in use, whole numbers as int; None for a field that it does not know,
    and for every field if it is missing or does not answer."""
    unknown: list[Any] = [None] * len(fields)
    card = machine_driver.find()
    if isinstance(card, machine_driver.Unusable):
        return unknown
    query = [f"--id={card.bus}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        ran = subprocess.run(
            ["nvidia-smi", *query], capture_output=True, text=True, timeout=SMI_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return unknown
    values = [value.strip() for value in ran.stdout.split(",")]
    if ran.returncode or len(values) != len(fields):
        return unknown
    return [int(v) if v.isdigit() else None if v.startswith("[") else v for v in values]


def _cuda_version(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


@cache
def ceilings() -> dict:
    """What this GPU does at most, as engines.ceilings.Ceilings tells it; measured once in a process. RuleError where
    its memory is too full."""
    from kernels.engines.cuda import probes as engines_cuda_probes

    with refused_when_full():
        return engines_cuda_probes.ceilings().to_row()


def copies(session: Session) -> dict | None:
    """Medians in ms of bringing the inputs to the GPU and the output back; None where that is too much."""
    from kernels.engines.cuda import probes as engines_cuda_probes

    return engines_cuda_probes.copies(session)


@lru_cache(maxsize=sources.KEPT)
def compile_kernel(source: str, entry: str, defines: tuple[tuple[str, int], ...]):
    """The compiled entry point. RuleError with the compiler's words where it does not compile, and where there is no
    compiler."""
    import cupy

    if why := wheels.missing("nvrtc"):
        raise RuleError(why)
    text = sources.translation_unit(source)
    defined = (f"-D{name}={value}" for name, value in defines)
    module = cupy.RawModule(code=text, options=("--std=c++17", *defined, *cuda_headers.options(text)))
    try:
        return module.get_function(entry)
    except cupy.cuda.compiler.CompileException as e:
        raise RuleError(f"{source} does not compile:\n{cuda_headers.explained(str(e))}") from None


class Session:
    """Buffers on the GPU, in a pool of their own so that every allocation is seen."""

    counters = trace = None  # nothing is counted here

    def __init__(self, program: Program, inputs: dict[str, np.ndarray]):
        import cupy

        self.program = program
        self.stream = own_stream()
        self._pool = cupy.cuda.MemoryPool()
        self._ledger = _ledger_class()()
        self.arrays = {}
        with self._accounted():
            for role, at in ALLOCATED.items():
                for i, b in enumerate(program.of_role(role)):
                    if i == 0:
                        self._ledger.stage(at, role)
                    self.arrays[b.name] = cupy.empty(b.shape, b.dtype)
        self._allocations = len(self._ledger.timeline)
        for b in program.of_role(INPUT):
            self.arrays[b.name].set(np.ascontiguousarray(inputs[b.name]), stream=self.stream)
        self._calls = [self._call_of(step) for step in program.steps]

    @property
    def bytes(self) -> dict[str, int]:
        return self._ledger.bytes()

    @property
    def timeline(self) -> list[dict]:
        return self._ledger.timeline

    def _accounted(self):
        from contextlib import ExitStack

        import cupy

        stack = ExitStack()
        stack.enter_context(cupy.cuda.using_allocator(self._pool.malloc))
        stack.enter_context(self._ledger)
        return stack

    def _call_of(self, step: Step) -> Callable[[], None]:
        args = tuple(
            self.arrays[a] if isinstance(a, str) else (np.asarray(a) if a.dtype.names else a)
            for a in step.args
        )
        if isinstance(step, Launch):
            kernel = compile_kernel(step.source, step.entry, step.defines)
            if step.shared > MOST_STATIC_SHARED:  # a kernel must be told that it may have more
                kernel.max_dynamic_shared_size_bytes = step.shared
            return lambda: kernel(step.grid, step.block, args, shared_mem=step.shared)
        return step.bind(*args)

    def run(self) -> None:
        """Queue every step on the session's stream, which must be current."""
        for call in self._calls:
            call()

    def run_step(self, index: int) -> None:
        self._calls[index]()

    def verify_run(self) -> np.ndarray:
        for b in (*self.program.of_role(OUTPUT), *self.program.of_role(WORKSPACE)):
            poison(self.arrays[b.name], self.stream)
        del self._ledger.timeline[self._allocations :]
        with refused_when_full(), self.stream, self._accounted():
            for step, call in zip(self.program.steps, self._calls, strict=True):
                self._ledger.stage(step.name, WORKSPACE)  # what a library call takes while it runs
                call()
                self._ledger.told(getattr(call, "own_bytes", 0))
            for call in self._calls:  # a library with memory of its own brings its result here
                getattr(call, "deliver", lambda: None)()
            out = self.arrays[self.program.of_role(OUTPUT)[0].name].get(stream=self.stream)
        self.stream.synchronize()
        return out

    def close(self) -> None:
        self.stream.synchronize()
        self._calls.clear()
        self.arrays.clear()
        self._pool.free_all_blocks()


def open(program: Program, inputs: dict[str, np.ndarray], trace: None = None) -> Session:
    refuse_steps(program, "cuda")
    with refused_when_full():
        return Session(program, inputs)


@contextmanager
def refused_when_full() -> Iterator[None]:
    """Turns an error for want of the GPU's memory, CuPy's or PyTorch's, into a RefusedError with its bytes."""
    try:
        yield
    except (MemoryError, RuntimeError) as e:
        if type(e).__name__ != "OutOfMemoryError":
            raise
        said = str(e).partition("\n")[0].rstrip(".")
        raise RefusedError(f"the GPU's memory is full, {free_bytes():,} bytes are free ({said})") from None


@cache
def own_stream():
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def poison(array, stream) -> None:
    """NaN in each floating type; in each whole one a number so low that no result comes near it."""
    array.data.memset_async(0x80 if values.is_whole(array.dtype) else 0xFF, array.nbytes, stream)


@cache
def _ledger_class():
    """A MemoryHook that keeps bytes by role, stage by stage; made when CuPy is first needed."""
    import cupy

    class Ledger(cupy.cuda.MemoryHook):
        name = "bytes by role"

        def __init__(self):
            super().__init__()
            self.role = WORKSPACE
            self.timeline: list[dict] = []  # of each stage, its moment with the most bytes
            self._live: dict[int, tuple[str, int]] = {}
            self._now = dict.fromkeys(ALLOCATED, 0)
            self._most = dict(self._now)

        def stage(self, at: str, role: str) -> None:
            """From here on allocations are of `role`, and belong to the stage `at`."""
            self.role = role
            self.timeline.append({"at": at, **self._now})

        def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
            self._live[pmem_id] = self.role, mem_size
            self._now[self.role] += mem_size
            self._most[self.role] = max(self._most[self.role], self._now[self.role])
            if sum(self._now.values()) > total_bytes(self.timeline[-1]):
                self.timeline[-1].update(self._now)

        def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
            if pmem_id in self._live:
                role, size = self._live.pop(pmem_id)
                self._now[role] -= size

        def told(self, nbytes: int) -> None:
            """What a step took of this role, while it ran, from an allocator that is not CuPy's."""
            most = {**self._now, self.role: self._now[self.role] + nbytes}
            self._most[self.role] = max(self._most[self.role], most[self.role])
            if total_bytes(most) > total_bytes(self.timeline[-1]):
                self.timeline[-1].update(most)

        def bytes(self) -> dict[str, int]:
            return {**self._most, "peak": max(map(total_bytes, self.timeline), default=0)}

    return Ledger


# -- timing ------------------------------------------------------------------------------------


def sample(
    sessions: Sequence[Session],
    mode: str,
    budget: Budget,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Timed]:
    """Time every session by CUDA events, interleaved. Cold: a write over more than twice the L2 runs before each
    sample, as often as keeps the GPU busy until all of the sample is queued; where nothing does, that is told.
    Hot: no flush; a graph of many runs is launched twice and the second launch is timed."""
    stream = own_stream()
    with stream:
        for session in sessions:
            warm_up(lambda s=session: (s.run(), stream.synchronize()), budget.warm_up_s)
        flush = flusher(stream) if mode == "cold" else None
        takes = [taker(s.run, stream, flush) for s in sessions]
        whole = interleave(takes, budget, progress)
        return [
            Timed(samples, _parts(session, stream, flush), take.queued)
            for session, samples, take in zip(sessions, whole, takes, strict=True)
        ]


def floor_ms(n: int = 50) -> float:
    """Median of timing nothing at all, cold: what the events themselves cost."""
    stream = own_stream()
    with stream:
        flush = flusher(stream)
        return float(np.median([between_events(lambda: None, stream, flush) for _ in range(n)]))


def _parts(session: Session, stream, flush) -> tuple[tuple[str, float], ...]:
    """Median of each step timed alone, in the same mode; none where there is one step only."""
    steps = session.program.steps
    if len(steps) < 2:
        return ()
    takes = [taker(lambda i=i: session.run_step(i), stream, flush) for i in range(len(steps))]
    samples = interleave(takes, Budget(samples=30, seconds=1.0))
    return tuple((step.name, float(np.median(s))) for step, s in zip(steps, samples, strict=True))
