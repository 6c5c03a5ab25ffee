"""One sample on a GPU by CUDA events, and what keeps the processor out of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from kernels.engines.protocol import AHEAD
from kernels.model.program import RuleError

GRAPH_MS = 0.5  # a hot sample is a captured graph of as many runs as take about this long
LEAST_FLUSH = 256 * 2**20  # bytes: long enough to hide a launch queued behind it
MOST_FLUSHES = 64  # before a sample


def between_events(run: Callable[[], None], stream, before: Callable[[], None] | None) -> float:
    """ms of `run` on the GPU; `before` keeps the GPU busy while Python queues what follows."""
    return _timed(run, stream, before)[0]


def _timed(run: Callable[[], None], stream, before: Callable[[], None] | None) -> tuple[float, bool]:
    """(ms of `run` on the GPU, whether all of it was queued before the GPU came to it): whether the processor was done
    in less time than passed on the GPU between the first event, which it met no sooner than it was recorded, and `run`.
    (To ask an event whether it is done leaves an error in the runtime, which PyTorch takes for its own.)"""
    import cupy

    first, start, end = (cupy.cuda.Event() for _ in range(3))
    began = time.perf_counter()
    first.record(stream)
    if before:
        before()
    start.record(stream)
    run()
    end.record(stream)
    queued_ms = 1e3 * (time.perf_counter() - began)
    end.synchronize()
    took = cupy.cuda.get_elapsed_time
    return took(start, end), queued_ms < took(first, start)


def taker(run: Callable[[], None], stream, flush: Callable[[], None] | None) -> Taker:
    """Takes one sample in ms each time it is called."""
    return _Cold(run, stream, flush) if flush else _Hot(run, stream)


class Taker(Protocol):
    queued: str  # of Timed

    def __call__(self) -> float: ...


class _Hot:
    """The second of two launches of a graph of many runs, by the run."""

    queued = ""  # a graph is one launch

    def __init__(self, run: Callable[[], None], stream):
        once = min(between_events(run, stream, None) for _ in range(3))
        self._many = max(1, round(GRAPH_MS / max(once, 1e-3)))
        stream.begin_capture()
        for _ in range(self._many):
            run()
        self._graph, self._stream = stream.end_capture(), stream
        self._launch()

    def _launch(self) -> None:
        self._graph.launch(self._stream)

    def __call__(self) -> float:
        return between_events(self._launch, self._stream, before=self._launch) / self._many


class _Cold:
    """Where the GPU came to a sample before all of it was queued, it may have waited for Python, and it is taken again
    behind twice as many flushes: a library's call can take longer than one, and longer among others than alone. What
    waits for the GPU itself, or launches more than the GPU's queue holds, can be queued ahead of it by none."""

    def __init__(self, run: Callable[[], None], stream, flush: Callable[[], None]):
        self._run, self._stream, self._flush = run, stream, flush
        self._times, self._taken, self._waited = 1, 0, 0

    def _before(self) -> None:
        for _ in range(self._times):
            self._flush()

    def __call__(self) -> float:
        ms, ahead = _timed(self._run, self._stream, self._before)
        while not ahead and self._times < MOST_FLUSHES:
            self._times *= 2
            ms, ahead = _timed(self._run, self._stream, self._before)
        self._taken += 1
        self._waited += not ahead
        return ms

    @property
    def queued(self) -> str:
        return f"{self._taken - self._waited} of {self._taken}" if self._waited else AHEAD


def flusher(stream) -> Callable[[], None]:
    """Returns what overwrites the caches. RuleError names the bytes it needs if they are not free."""
    import cupy

    nbytes = max(2 * cupy.cuda.Device().attributes["L2CacheSize"], LEAST_FLUSH)
    try:
        trash = cupy.cuda.alloc(nbytes)
    except cupy.cuda.memory.OutOfMemoryError:
        free = cupy.cuda.Device().mem_info[0]
        raise RuleError(
            f"overwriting the caches before each sample needs {nbytes:,} bytes on the GPU, {free:,} bytes are free; "
            "take a smaller shape or batch"
        ) from None
    return lambda: trash.memset_async(0, trash.mem.size, stream)
