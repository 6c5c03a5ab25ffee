"""The GPU's ceilings and the cost of copies between host and device: parts of the cuda engine."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from kernels.engines.cuda import timing as cuda_timing
from kernels.engines.cuda.compile import compile_kernel
from kernels.engines.cuda.device import device_name, free_bytes, own_stream, poison
from kernels.engines.cuda.session import Session
from kernels.machine.ceilings import FMA_CHAINS, GPU_COPY, GPU_FP32, GPU_LAUNCH, Ceilings, best, fma_sum, median
from kernels.machine.timing import Budget, warm_up
from kernels.model.program import INPUT, RefusedError, RuleError

MAX_COPY = 1 << 30  # bytes read by one copy
MAX_PINNED = 1 << 30  # bytes: pinning more takes seconds, and no other program can use that memory meanwhile
BLOCK, BLOCKS_PER_SM = 256, 8  # fills every SM with threads
A, B, ROUNDS = 0.9999, 0.1, 16_384  # x = A x + B: stays near 1, and every round changes it
QUEUED = 200  # launches in one sample
FEW = Budget(samples=20, seconds=1.0)
COPIES = Budget(samples=11, seconds=1.0, min_samples=3)


def ceilings() -> Ceilings:
    stream = own_stream()
    with stream:
        fma, busy = _fma(stream)
        warm_up(lambda: (fma(), stream.synchronize()), 0.1)
        _verify_fma(busy)
        flops = 2.0 * FMA_CHAINS * ROUNDS * busy.size
        rate, rate_n = best(flops, lambda: cuda_timing.between_events(fma, stream, before=fma), FEW)
        copied, copy_rate, copy_n = _copy(stream, fma)
        launches, launch_n = _launches(stream, fma)
        stream.synchronize()
    return Ceilings(
        copy_bytes_per_s=copy_rate,
        copy_n=copy_n,
        copy=GPU_COPY.format(mib=copied >> 20),
        fp32_flops_per_s=rate,
        fp32_n=rate_n,
        fp32=GPU_FP32.format(chains=FMA_CHAINS),
        launch=GPU_LAUNCH.format(n=QUEUED),
        launch_n=launch_n,
        cache_bytes=_l2_bytes(),
        device=device_name(),
        **launches,
    )


def _l2_bytes() -> int:
    import cupy

    return cupy.cuda.Device().attributes["L2CacheSize"]


def _fma(stream):
    """Returns (function that queues the kernel once, array that it writes)."""
    import cupy

    kernel = compile_kernel("machine/02_fma.cu", "fma_chains", (("CHAINS", FMA_CHAINS),))
    blocks = BLOCKS_PER_SM * cupy.cuda.Device().attributes["MultiProcessorCount"]
    out = cupy.empty(blocks * BLOCK, np.float32)
    args = (out, np.float32(A), np.float32(B), np.int32(ROUNDS))
    poison(out, stream)
    return lambda: kernel((blocks,), (BLOCK,), args), out


def _verify_fma(out) -> None:
    result = out.get(stream=own_stream()).astype(np.float64)
    own_stream().synchronize()
    expected = fma_sum(np.arange(result.size) % 1024, A, B, ROUNDS)
    if not (np.isfinite(result).all() and (np.abs(result - expected) <= 1e-3 * expected).all()):
        raise RuntimeError("the FMA kernel disagrees with its closed form: no ceiling is taken from it")


def _copy(stream, busy: Callable[[], None]) -> tuple[int, float, int]:
    """Returns (bytes read by a copy, bytes read and written a second, n). A copy reads more than twice the L2."""
    import cupy

    free = free_bytes()
    size = max(4 * _l2_bytes(), min(MAX_COPY, free // 8)) >> 20 << 20
    if 2 * size > free:
        raise RuleError(f"a copy beyond the caches needs {2 * size:,} bytes, {free:,} bytes are free")
    pool = cupy.cuda.MemoryPool()
    rate, n = _copy_rate(pool.malloc(size), pool.malloc(size), size, stream, busy)
    pool.free_all_blocks()
    return size, rate, n


def _copy_rate(source, target, size: int, stream, busy: Callable[[], None]) -> tuple[float, int]:
    source.memset_async(0x5A, size, stream)
    target.memset_async(0, size, stream)

    def copy() -> None:
        target.copy_from_device_async(source, size, stream)

    rate, n = best(2.0 * size, lambda: cuda_timing.between_events(copy, stream, before=busy), FEW)
    ends = np.zeros(2, np.uint8)  # the last bytes show whether a copy was cut short
    (target + (size - 2)).copy_to_host_async(ends.ctypes.data, 2, stream)
    stream.synchronize()
    if (ends != 0x5A).any():
        raise RuntimeError("the device's copy did not arrive: no ceiling is taken from it")
    return rate, n


def _launches(stream, busy: Callable[[], None]) -> tuple[dict[str, float], int]:
    """Time an empty kernel: the GPU's time of one in a queue, the host's time to queue one, and launch + wait."""
    empty = compile_kernel("machine/01_empty.cu", "empty", ())

    def queue_many() -> None:
        for _ in range(QUEUED):
            empty((1,), (32,), ())

    def keep_busy() -> None:  # longer than Python takes to queue what follows
        for _ in range(8):
            busy()

    def wall(work: Callable[[], object]) -> float:
        stream.synchronize()
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3

    def one() -> None:
        empty((1,), (32,), ())
        stream.synchronize()

    queue_many()
    queued, n = median(lambda: cuda_timing.between_events(queue_many, stream, keep_busy) / QUEUED, FEW)
    host, _ = median(lambda: wall(queue_many) / QUEUED, FEW)
    sync, _ = median(lambda: wall(one), Budget(samples=100, seconds=0.5))
    times = {"launch_us": queued, "launch_host_us": host, "launch_sync_us": sync}
    return {name: 1e3 * ms for name, ms in times.items()}, n


# -- copies ------------------------------------------------------------------------------------
def copies(session: Session) -> dict | None:
    """Returns medians in ms by the wall clock: all inputs to the device and all outputs back.

    Host memory is NumPy's (pageable), then pinned. None for more than MAX_PINNED bytes, or if the system pins no more.
    """
    inputs = [session.arrays[b.name] for b in session.program.of_role(INPUT)]
    outputs = [session.arrays[b.name] for b in session.program.outputs]
    if sum(a.nbytes for a in (*inputs, *outputs)) > MAX_PINNED:
        return None
    stream, times = session.stream, {}
    hosts = {"pageable": lambda like: np.empty(like.shape, like.dtype), "pinned": _pinned}
    for kind, empty_like in hosts.items():
        try:
            sources = [(device, _fetched(device, empty_like(device))) for device in inputs]
            targets = [(device, _fetched(device, empty_like(device))) for device in outputs]
        except RefusedError:
            return None
        times[f"h2d_{kind}"], times["n"] = median(lambda s=sources: _to_device(s, stream), COPIES)
        times[f"d2h_{kind}"], _ = median(lambda t=targets: _to_host(t, stream), COPIES)
    return times


def _pinned(like) -> np.ndarray:
    """Returns an array like `like` in pinned memory. RefusedError if the system pins no more memory."""
    import cupy

    try:
        memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(like.nbytes), 0)
    except cupy.cuda.runtime.CUDARuntimeError as e:
        raise RefusedError(f"{like.nbytes:,} bytes cannot be pinned: {e}") from None
    return np.frombuffer(memory, like.dtype, like.size).reshape(like.shape)


def _fetched(device, host: np.ndarray) -> np.ndarray:
    """Returns `host` filled with the device's values: the real data is copied later, and every page exists."""
    host[...] = device.get(stream=own_stream())
    return host


def _to_device(sources, stream) -> float:
    start = time.perf_counter()
    for device, host in sources:
        device.data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)
    stream.synchronize()
    return (time.perf_counter() - start) * 1e3


def _to_host(targets, stream) -> float:
    start = time.perf_counter()
    for device, host in targets:
        device.data.copy_to_host_async(host.ctypes.data, host.nbytes, stream)
    stream.synchronize()
    return (time.perf_counter() - start) * 1e3
