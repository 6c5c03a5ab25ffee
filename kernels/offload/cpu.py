"""Measures the works on this processor: the sizes that were recorded on the GPU, verified."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import engines
from kernels.ladders import ladder_of
from kernels.machine import processor
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.model.verify import agrees, by_output
from kernels.offload.works import WORKS, Point, live
from kernels.runner import inputs_of

BUDGET = Budget(samples=15, seconds=0.5, min_samples=3, warm_up_s=0.02)


def times(
    key: str,
    progress: Callable[[float], None] = lambda share: None,
    part: Callable[[dict[str, Any]], None] = lambda row: None,
    budget: Budget = BUDGET,
    end: float = math.inf,
) -> list[dict[str, Any]]:
    """Returns a row for each size of a work: size, median, p20 and p80 in ms, n. Caches are overwritten before each run.

    A size that does not fit in memory is left out, and so are those after `end` (time.monotonic). RuleError for an unknown
    work, RuntimeError if a result is wrong.
    """
    if key not in WORKS:
        raise RuleError(f"no work {key}; there are: {', '.join(WORKS)}")
    found, sizes = [], live(key)
    for n, point in enumerate(sizes):
        if point.shape.bytes > processor.free_bytes() // 4 or time.monotonic() > end:
            continue
        row = time_of(key, point, budget)
        found.append(row)
        part(row)
        progress((n + 1) / len(sizes))
    return found


def time_of(key: str, point: Point, budget: Budget = BUDGET) -> dict[str, Any]:
    """Returns the row of one size, after its result agrees with the float64 reference."""
    work = WORKS[key]
    program, engine = work.program(point.shape), engines.load("cpu")
    ladder = ladder_of(work.cpu)
    inputs = inputs_of(ladder, point.shape, program)
    session = engine.open(program, inputs)
    out = session.verify_run()
    expected = by_output(ladder.reference(point.shape, **inputs), tuple(b.name for b in program.outputs))
    reference, scale = next(iter(expected.values()))
    if not agrees(out, reference, scale, work.rung.tolerance):
        raise RuntimeError(f"{key} at {point.shape}: the processor's result disagrees with the reference")
    (timed,) = engine.sample([session], "cold", budget)
    session.close()
    p20, median, p80 = np.percentile(timed.samples_ms, (20, 50, 80))
    return {
        "size": point.size,
        "ms": float(median),
        "p20_ms": float(p20),
        "p80_ms": float(p80),
        "n": len(timed.samples_ms),
    }
