"""Times a work on both sides of this machine: all sizes, then all again, so that a pass shows how far the next one is off."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low

import numpy as np

from kernels.engines.cpu import flusher
from kernels.machine import processor
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.model.row import Json, Row
from kernels.offload import cpu, gpu
from kernels.offload.gpu import PARTS, Run
from kernels.offload.works import COPIES, MAX_MACS, Case, Point, case, live

PASSES = 3
MAX_BYTES = 1 << 24  # of a size that each pass measures: larger ones vary little, and their reference takes seconds
BUDGET = Budget(samples=15, seconds=0.2, min_samples=3, warm_up_s=0.02)
CPU, GPU = "cpu", "gpu"
Rows = dict[str, list[Json]]


def times(
    key: str,
    sizes: Sequence[Point] | None = None,
    with_gpu: bool = False,
    progress: Callable[[float], None] = lambda share: None,
    budget: Budget = BUDGET,
    passes: int = PASSES,
    end: float = math.inf,
) -> Rows:
    """Returns the rows of both sides (CPU, GPU), one for each size; without a GPU only the processor's.

    A row of the processor has size, ms (median), p20_ms, p80_ms, n, and passes: the median of each pass. One of the GPU has
    such figures by which copies count, and parts_ms: the parts of the run in the middle. What does not fit in memory is left
    out, and so is what had not begun at `end` (time.monotonic). RuleError for an unknown work, RuntimeError if a result is
    wrong.
    """
    points, flush = live(key) if sizes is None else sizes, flusher()
    of_cpu: dict[int, list[tuple[float, ...]]] = {}
    of_gpu: dict[int, list[Mapping[str, tuple[Run, ...]]]] = {}
    for n in range(passes):
        for at, point in enumerate(points):
            if time.monotonic() <= end and _fits(point) and not (n and _is_large(point)):
                given = case(key, point)
                of_cpu.setdefault(point.size, []).append(cpu.samples(given, flush, budget))
                if with_gpu and (found := _on_gpu(given, flush, budget)):
                    of_gpu.setdefault(point.size, []).append(found)
            progress((n * len(points) + at + 1) / (passes * len(points)))
    rows: Rows = {CPU: [{"size": size, **spread(found)} for size, found in of_cpu.items()]}
    if with_gpu:
        rows[GPU] = [gpu_row(size, found) for size, found in of_gpu.items()]
    return rows


def _fits(point: Point) -> bool:
    return point.shape.bytes <= processor.free_bytes() // 8


def _is_large(point: Point) -> bool:
    return point.shape.bytes > MAX_BYTES or point.macs > MAX_MACS


def _on_gpu(given: Case, flush: Callable[[], object], budget: Budget) -> Mapping[str, tuple[Run, ...]] | None:
    try:
        return gpu.samples(given, flush, budget)
    except RuleError:
        return None  # it does not fit


def spread(passes: Sequence[Sequence[float]]) -> Json:
    """Returns the figures of the ms of some passes. The median is a time that was measured: the lower of two in the middle."""
    samples = [ms for found in passes for ms in found]
    p20, p80 = np.percentile(samples, (20, 80), method="nearest")
    figures = {"ms": median_low(samples), "p20_ms": float(p20), "p80_ms": float(p80)}
    medians = [round(median_low(found), 6) for found in passes]
    return {name: round(ms, 6) for name, ms in figures.items()} | {"n": len(samples), "passes": medians}


def gpu_row(size: int, passes: Sequence[Mapping[str, tuple[Run, ...]]]) -> Json:
    row: Row = {"size": size}
    for copies in COPIES:
        runs = [run for found in passes for run in found[copies]]
        figures = spread([[sum(run) for run in found[copies]] for found in passes])
        middle = min(runs, key=lambda run: abs(sum(run) - figures["ms"]))
        row[copies] = {**figures, "parts_ms": dict(zip(PARTS, (round(ms, 6) for ms in middle), strict=True))}
    return row
