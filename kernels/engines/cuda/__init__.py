"""The cuda engine: runs CUDA C++ through CuPy (NVRTC) and calls libraries. CUDA events time both.

CuPy's own kernels are not used: buffers are filled and caches flushed by memsets and copies. So only the source
that a reader sees is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from kernels.engines.cuda import probes
from kernels.engines.cuda.compile import compile_kernel
from kernels.engines.cuda.device import device_name, free_bytes, load, own_stream, refused_when_full, smi, status
from kernels.engines.cuda.session import Session, allocate_by_need, open
from kernels.engines.cuda.timing import between_events, flusher, sampler
from kernels.engines.protocol import Timed
from kernels.i18n import decimal, tr
from kernels.libraries import wheels
from kernels.machine import driver as machine_driver
from kernels.machine import elsewhere
from kernels.machine.others import Programs
from kernels.machine.timing import Budget, interleave, warm_up
from kernels.model.program import Launch, Tiles
from kernels.model.rules import MAX_STATIC_SHARED
from kernels.model.rung import Rung
from kernels.model.shape import Shape

__all__ = [
    "MEASURES",
    "Session",
    "allocate_by_need",
    "ceilings",
    "compile_kernel",
    "conditions",
    "copies",
    "device_name",
    "floor_ms",
    "free_bytes",
    "load",
    "open",
    "own_stream",
    "refusal",
    "refused_when_full",
    "sample",
    "status",
]

MEASURES = True


def refusal(rung: Rung, shape: Shape, tiles: Tiles) -> str:
    """Returns why the GPU of the machine that the reader's runs go to, or its libraries, cannot run a rung at a shape and
    all its tile sizes; "" if nothing is known against it."""
    there = elsewhere.chosen()
    gpu = there.gpu if there else machine_driver.find()
    if gpu is None or isinstance(gpu, machine_driver.GpuUnavailable):
        return ""  # the whole engine is refused, by its status
    min_capability = rung.capability(shape)
    if gpu.capability < min_capability:
        required, available = machine_driver.dotted(min_capability), machine_driver.dotted(gpu.capability)
        return tr(
            "compute capability {required} or newer is needed, {gpu} has {available}",
            required=required,
            gpu=gpu.name,
            available=available,
        )
    if rung.last_capability and gpu.capability > rung.last_capability:
        return tr(
            "compute capability {required} is needed, {gpu} has {available}",
            required=machine_driver.dotted(rung.last_capability),
            gpu=gpu.name,
            available=machine_driver.dotted(gpu.capability),
        )
    program = rung.build(shape, tiles)
    shared = max((step.shared for step in program.steps if isinstance(step, Launch)), default=0)
    if shared > max(gpu.shared_bytes, MAX_STATIC_SHARED):
        return tr(
            "a block needs {needed} bytes of shared memory, {gpu} has {available}",
            needed=decimal(f"{shared:,}"),
            gpu=gpu.name,
            available=decimal(f"{gpu.shared_bytes:,}"),
        )
    return wheels.refusal(program)


def conditions() -> dict:
    """Returns the versions of the driver, CUDA and the libraries, the clocks now (MHz, from nvidia-smi), and floor_ms().

    Each cold figure contains floor_ms(), the time of an empty sample.
    """
    import cupy

    from kernels.libraries import cublas, cudnn, cufft
    from kernels.libraries import torch as torch_library

    driver, sm, memory = smi("driver_version", "clocks.sm", "clocks.mem")
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


def _cuda_version(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


@cache
def ceilings() -> dict:
    """Returns this GPU's ceilings as a row (machine.ceilings.Ceilings). They are measured once in a process. RuleError
    if its memory is too full."""
    with refused_when_full():
        return probes.ceilings().to_row()


def copies(session: Session) -> dict | None:
    """Returns medians in ms of copying the inputs to the GPU and the output back; None if they are too large."""
    return probes.copies(session)


# -- timing ------------------------------------------------------------------------------------


def sample(
    sessions: Sequence[Session], mode: str, budget: Budget, progress: Callable[[float], None] = lambda share: None
) -> list[Timed]:
    """Time every session by CUDA events, interleaved.

    Cold: before each sample, writes over at least twice the L2 keep the GPU busy until the whole sample is queued.
    `Timed.queued` reports how many samples were not queued in time.
    Hot: no flush. A graph of many runs is launched twice, and the second launch is timed.
    """
    gpu = machine_driver.find()
    assert not isinstance(gpu, machine_driver.GpuUnavailable)  # the sessions are on it
    stream, programs = own_stream(), Programs(gpu.bus)
    with stream:
        for session in sessions:
            warm_up(lambda s=session: (s.run(), stream.synchronize()), budget.warm_up_s)
        flush = flusher(stream) if mode == "cold" else None
        samplers = [sampler(s.run, stream, flush) for s in sessions]
        all_samples = interleave(samplers, budget, progress)
        used = programs.readings()
        return [
            Timed(samples, _parts(session, stream, flush), sampler.queued, used)
            for session, samples, sampler in zip(sessions, all_samples, samplers, strict=True)
        ]


def floor_ms(n: int = 50) -> float:
    """Returns the median in ms of an empty cold sample: the cost of the events themselves."""
    stream = own_stream()
    with stream:
        flush = flusher(stream)
        return float(np.median([between_events(lambda: None, stream, flush) for _ in range(n)]))


def _parts(session: Session, stream, flush) -> tuple[tuple[str, float], ...]:
    """Returns the median in ms of each step timed alone, in the same mode; nothing for a program of one step."""
    steps = session.program.steps
    if len(steps) < 2:
        return ()
    samplers = [sampler(lambda i=i: session.run_step(i), stream, flush) for i in range(len(steps))]
    samples = interleave(samplers, Budget(samples=30, seconds=1.0))
    return tuple((step.name, float(np.median(s))) for step, s in zip(steps, samples, strict=True))
