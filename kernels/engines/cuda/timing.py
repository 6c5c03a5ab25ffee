"""One sample on a GPU by CUDA events, without the host's time to queue it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from kernels.engines.protocol import AHEAD
from kernels.model.program import RuleError

GRAPH_MS = 0.5  # about the duration of the captured graph of runs that is a hot sample
MIN_FLUSH = 256 * 2**20  # bytes: long enough to hide a launch queued behind it
MAX_FLUSHES = 64  # before a sample


def between_events(run: Callable[[], None], stream, before: Callable[[], None] | None) -> float:
    """Returns the ms of `run` on the GPU. `before` keeps the GPU busy while Python queues `run`."""
    return _timed(run, stream, before)[0]


def _timed(run: Callable[[], None], stream, before: Callable[[], None] | None) -> tuple[float, bool]:
    """Returns (ms of `run` on the GPU, whether all of it was queued before the GPU began it).

    It was queued in time if queueing took the host less than the GPU's time from the first event to `run`. The GPU does
    not reach the first event before it is recorded. (A query of an unfinished event leaves an error in the runtime,
    which PyTorch then raises as its own.)
    """
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
    elapsed_ms = cupy.cuda.get_elapsed_time
    return elapsed_ms(start, end), queued_ms < elapsed_ms(first, start)


def sampler(run: Callable[[], None], stream, flush: Callable[[], None] | None) -> Sampler:
    """Returns a function that takes one sample, in ms, at each call: cold with `flush`, else hot."""
    return _Cold(run, stream, flush) if flush else _Hot(run, stream)


class Sampler(Protocol):
    """A function that takes one sample in ms at each call."""

    @property
    def queued(self) -> str: ...  # of Timed

    def __call__(self) -> float: ...


class _Hot:
    """Times the second of two launches of a graph of many runs; a sample is the time of one run."""

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
    """Times one run after flushes of the caches.

    If the GPU begins a sample before all of it is queued, it may have waited for Python. The sample is then taken again
    with twice as many flushes: a library's call can take longer than one flush, and longer among other samples than
    alone. No number of flushes helps a run that waits for the GPU itself, or that launches more than the GPU's queue
    holds.
    """

    def __init__(self, run: Callable[[], None], stream, flush: Callable[[], None]):
        self._run, self._stream, self._flush = run, stream, flush
        self._flushes, self._samples, self._late = 1, 0, 0

    def _before(self) -> None:
        for _ in range(self._flushes):
            self._flush()

    def __call__(self) -> float:
        ms, ahead = _timed(self._run, self._stream, self._before)
        while not ahead and self._flushes < MAX_FLUSHES:
            self._flushes *= 2
            ms, ahead = _timed(self._run, self._stream, self._before)
        self._samples += 1
        self._late += not ahead
        return ms

    @property
    def queued(self) -> str:
        return f"{self._samples - self._late} of {self._samples}" if self._late else AHEAD


def flusher(stream) -> Callable[[], None]:
    """Returns a function that overwrites the caches. RuleError names the bytes it needs if they are not free."""
    import cupy

    nbytes = max(2 * cupy.cuda.Device().attributes["L2CacheSize"], MIN_FLUSH)
    try:
        trash = cupy.cuda.alloc(nbytes)
    except cupy.cuda.memory.OutOfMemoryError:
        free = cupy.cuda.Device().mem_info[0]
        raise RuleError(
            f"overwriting the caches before each sample needs {nbytes:,} bytes on the GPU, {free:,} bytes are free; "
            "take a smaller shape or batch"
        ) from None
    return lambda: trash.memset_async(0, trash.mem.size, stream)
