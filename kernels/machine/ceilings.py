"""Measured limits of a device: rate of copies, rate of multiply-adds, cost of one launch. Rooflines use these figures,
never a data sheet."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from kernels.i18n import mark, tr_filled
from kernels.machine.timing import Budget, interleave

FMA_CHAINS = 8
# What was run for a figure, as stored in rows, on a GPU and on a processor. `shown` gives the sentence for readers.
GPU_COPY = "device to device, {mib} MiB, bytes read and written"
GPU_FP32 = "FMA kernel, {chains} chains a thread, no tensor cores"
GPU_LAUNCH = "empty kernel, {n} queued behind a busy GPU, by events"
CPU_COPY = "NumPy copy on one core, {mib} MiB, bytes read and written"
CPU_FP32 = "NumPy's BLAS, product of two {extent} x {extent_again} matrices, {cores} cores"
CPU_LAUNCH = "NumPy call on one number, {n} in a row"
SHOWN = {
    GPU_COPY: mark("device to device, {mib} MiB, bytes read and written"),
    GPU_FP32: mark("FMA kernel, {chains} chains per thread, no tensor cores"),
    GPU_LAUNCH: mark("empty kernel, {n} in the queue of a busy GPU, timed by events"),
    CPU_COPY: mark("NumPy copy on one core, {mib} MiB, bytes read and written"),
    CPU_FP32: mark("NumPy's BLAS, product of two {extent} x {extent} matrices, {cores} cores"),
    CPU_LAUNCH: mark("NumPy call on one number, {n} in a row"),
}


@dataclass(frozen=True)
class Ceilings:
    """Measured limits. Rates are the best of their samples, because other programs slow the rest down. Launch costs are
    medians. The text field beside a figure says what was run."""

    copy_bytes_per_s: float  # read + written
    copy_n: int
    copy: str
    fp32_flops_per_s: float
    fp32_n: int
    fp32: str
    launch_us: float  # time for each launch in a sequence
    launch_n: int
    launch: str
    cache_bytes: int  # the last level: data that fit there need not pass through memory
    device: str
    launch_host_us: float | None = None  # until the program can continue
    launch_sync_us: float | None = None  # until the program knows that the kernel ended

    def to_row(self) -> dict:
        """Returns the figures as they are stored in a row, with the date."""
        figures = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in asdict(self).items()}
        figures |= {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
        return {k: v for k, v in figures.items() if v is not None}


def shown(text: str) -> str:
    """Returns what was run for a figure, as stored in a row, in the reader's language."""
    return tr_filled(text, SHOWN)


def best(amount: float, sample: Callable[[], float], budget: Budget) -> tuple[float, int]:
    """Returns (amount per second at the fastest sample, n). `sample` runs once and returns ms."""
    (samples,) = interleave([sample], budget)
    return amount / min(samples) * 1e3, len(samples)


def median(sample: Callable[[], float], budget: Budget) -> tuple[float, int]:
    (samples,) = interleave([sample], budget)
    return float(np.median(samples)), len(samples)


def fma_sum(start: np.ndarray, a: float, b: float, rounds: int) -> np.ndarray:
    """Returns the expected result of a thread of machine/02_fma.cu, in float64; `start` is its i % 1024. After n rounds
    of x = a x + b, x is a^n x + b (1 - a^n) / (1 - a)."""
    a, b = float(np.float32(a)), float(np.float32(b))
    power = a**rounds
    chains = np.arange(FMA_CHAINS)[:, None] + start.astype(np.float64)
    return (power * chains + b * (1 - power) / (1 - a)).sum(axis=0)
