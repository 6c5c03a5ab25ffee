"""Measures a scenario on the GPU: verified, its total without events, its timeline with them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.engines.cuda.device import free_bytes, load, refused_when_full
from kernels.machine import processor
from kernels.model.program import RuleError
from kernels.model.row import Json
from kernels.transfers import scenarios
from kernels.transfers.cuda import CudaBackend, managed_refusal
from kernels.transfers.gpu import Gpu
from kernels.transfers.operations import Ledger, memory_after
from kernels.transfers.scenarios import FILE, Settings

REPEATS, WARM_UP = 9, 2


def measure(s: Settings, repeats: int = REPEATS, progress: Callable[[float], None] = lambda share: None) -> Json:
    """Returns the total (median, p20, p80, n), the timeline of one run, the error of the result and the bytes.

    Runs with and without events take turns, and each result is verified. The timeline is that of the timed run whose total
    is nearest to the median. RuleError if it does not fit or this GPU cannot; RuntimeError if a result is wrong.
    """
    s.check_memory(processor.free_bytes(), free_bytes())
    if s.scenario == "managed" and (why := managed_refusal()):
        raise RuleError(why)
    with refused_when_full():
        return _measured(s, repeats, progress)


def _measured(s: Settings, repeats: int, progress: Callable[[float], None]) -> Json:
    plain, timed = Gpu(CudaBackend(), notes=False), Gpu(CudaBackend(timed=True))
    given = scenarios.arrays(plain, s, plain.backend.pinned)
    again = given.on(timed)
    totals, timelines, errors = [], [], []
    found: tuple = ()  # the operations of the last run
    for n in range(WARM_UP + repeats):
        total, error, _ = _once(plain, s, given)
        of_timed, _, found = _once(timed, s, again)
        if n >= WARM_UP:
            totals.append(total)
            errors.append(error)
            timelines.append(timed.backend.timeline(found, of_timed))
        progress((n + 1) / (WARM_UP + repeats))
    median = float(np.median(totals))
    shown = min(timelines, key=lambda t: abs(t.total_ms - median))
    for gpu in (plain, timed):
        gpu.backend.close()
    p20, p80 = np.percentile(totals, (20, 80))
    return {
        "settings": {"rows": s.rows, "n": s.n},
        "total_ms": round(median, 6),
        "p20_ms": round(float(p20), 6),
        "p80_ms": round(float(p80), 6),
        "n": len(totals),
        "timeline": shown.to_json(),
        "ops": len(found),
        "error": max(errors),
        "memory": memory_after(found),
    }


def _once(gpu: Gpu, s: Settings, given: scenarios.Arrays) -> tuple[float, float, tuple]:
    """Returns the ms of one run, the error of its result and its operations."""
    given.reset(gpu)
    gpu.ops.clear()
    gpu.backend.restart()
    gc.disable()  # no collection in the middle of a run
    try:
        kept = s.row.program(gpu, *given.args)
        total = gpu.backend.elapsed_ms()
    finally:
        gc.enable()
    found = tuple(gpu.ops)
    del kept
    return total, given.check(), found


# -- the allocator's log -------------------------------------------------------------------------------
def line_hook() -> Any:
    """Returns a CuPy MemoryHook that notes each allocation with the line of the program that made it."""
    cupy = load()

    class LineHook(cupy.cuda.MemoryHook):
        name = "bytes by line"

        def __init__(self, gpu: Gpu):
            super().__init__()
            self.gpu, self.live, self.after = gpu, {}, []

        def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
            self.live[pmem_id] = self.gpu.line(), mem_size
            self._note()

        def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
            self.live.pop(pmem_id, None)
            self._note()

        def _note(self) -> None:
            self.after.append(sum(nbytes for _, nbytes in self.live.values()))

    return LineHook


def leak_log(s: Settings) -> Json:
    """Returns what the allocator's log shows of a leaking program: bytes after each call, and at the end by line."""
    with refused_when_full():
        gpu = Gpu(CudaBackend())
        given = scenarios.arrays(gpu, s, gpu.backend.pinned)
        gpu.backend.restart()
        with line_hook()(gpu) as hook:
            gpu.ops.clear()
            kept = s.row.program(gpu, *given.args)
            gpu.backend.elapsed_ms()
            log, after = Ledger(live=dict(hook.live)).by_line(), list(hook.after)
            predicted = memory_after(gpu.ops)
        given.check()
        del kept
        gpu.backend.close()
    return {
        "settings": {"rows": s.rows, "n": s.n},
        "after": after,
        "file": FILE.name,
        "log": [[line, nbytes] for line, nbytes in log.items()],
        "predicted_last": predicted[-1],
    }
