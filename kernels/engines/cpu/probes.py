"""This processor's ceilings, measured with the NumPy calls that the steps use: a part of the cpu engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from kernels.machine import processor
from kernels.machine.ceilings import CPU_COPY, CPU_FP32, CPU_LAUNCH, Ceilings, best, median
from kernels.machine.timing import Budget

EXTENT = 1024  # of the product: 2 GFLOP, 12 MB
CALLS = 2000  # in one sample
MIN_COPY = 32 * 2**20  # bytes read by one copy
FEW = Budget(samples=20, seconds=0.5, min_samples=8)  # the best of some: others may keep the cores busy


def ceilings() -> Ceilings:
    copied, copy_rate, copy_n = _copy()
    flops, flops_n = product()
    call_ms, call_n = _call()
    return Ceilings(
        copy_bytes_per_s=copy_rate,
        copy_n=copy_n,
        copy=CPU_COPY.format(mib=copied >> 20),
        fp32_flops_per_s=flops,
        fp32_n=flops_n,
        fp32=CPU_FP32.format(extent=EXTENT, extent_again=EXTENT, cores=os.cpu_count()),
        launch_us=1e3 * call_ms,
        launch_n=call_n,
        launch=CPU_LAUNCH.format(n=f"{CALLS:,}"),
        cache_bytes=processor.last_level_cache(),
        device=processor.device_name(),
    )


def _ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def _copy() -> tuple[int, float, int]:
    """Returns (bytes read by a copy, bytes read and written a second, n). A copy reads twice the last-level cache."""
    size = max(2 * processor.last_level_cache(), MIN_COPY)
    source, target = np.ones(size // 4, np.float32), np.zeros(size // 4, np.float32)
    target[...] = 0  # every page exists before a copy is timed
    rate, n = best(2.0 * size, lambda: _ms(lambda: np.copyto(target, source)), FEW)
    return size, rate, n


def product() -> tuple[float, int]:
    """Returns (FLOP a second, n) of NumPy's BLAS. The result is checked on its diagonal."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, EXTENT, EXTENT), dtype=np.float32)
    c = np.full((EXTENT, EXTENT), np.nan, np.float32)
    np.matmul(a, b, out=c)
    diagonal = np.einsum("ik,ki->i", a.astype(np.float64), b.astype(np.float64))
    if not np.allclose(np.diagonal(c), diagonal, rtol=1e-4, atol=1e-3):
        raise RuntimeError("NumPy's product disagrees with float64: no ceiling is taken from it")
    return best(2.0 * EXTENT**3, lambda: _ms(lambda: np.matmul(a, b, out=c)), FEW)


def _call() -> tuple[float, int]:
    """Returns (ms of one call, n): the cost of a NumPy call on one number."""
    one = np.zeros(1, np.float32)

    def many() -> None:
        for _ in range(CALLS):
            np.add(one, one, out=one)

    return median(lambda: _ms(many) / CALLS, FEW)
