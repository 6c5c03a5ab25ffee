"""What a device can do at most, by measurement: how fast it copies, how fast it multiplies and adds, what one
launch costs. A roofline is drawn from these, never from a data sheet."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from kernels.machine.timing import Budget, interleave

FMA_CHAINS = 8


@dataclass(frozen=True)
class Ceilings:
    """Rates are the best of their samples (less is the neighbours' doing), launches a median. The words beside
    a figure tell what was run."""

    copy_bytes_per_s: float  # read + written
    copy_n: int
    copy: str
    fp32_flops_per_s: float
    fp32_n: int
    fp32: str
    launch_us: float  # of the time measured, for each launch
    launch_n: int
    launch: str
    cache_bytes: int  # the last level: what fits there need not pass through memory
    device: str
    launch_host_us: float | None = None  # until the program can go on
    launch_sync_us: float | None = None  # until the program knows that the kernel ended

    def to_row(self) -> dict:
        """As a row keeps it, with the day."""
        told = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in asdict(self).items()}
        told |= {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
        return {k: v for k, v in told.items() if v is not None}


def best(amount: float, take: Callable[[], float], budget: Budget) -> tuple[float, int]:
    """(amount a second at the fastest sample, n). `take` gives ms."""
    (samples,) = interleave([take], budget)
    return amount / min(samples) * 1e3, len(samples)


def median(take: Callable[[], float], budget: Budget) -> tuple[float, int]:
    (samples,) = interleave([take], budget)
    return float(np.median(samples)), len(samples)


def fma_sum(start: np.ndarray, a: float, b: float, rounds: int) -> np.ndarray:
    """What a thread of machine/02_fma.cu must give, in float64: `start` is its i % 1024. After n rounds of
    x = a x + b, x is a^n x + b (1 - a^n) / (1 - a)."""
    a, b = float(np.float32(a)), float(np.float32(b))
    power = a**rounds
    chains = np.arange(FMA_CHAINS)[:, None] + start.astype(np.float64)
    return (power * chains + b * (1 - power) / (1 - a)).sum(axis=0)
