"""Predicts the timeline of a transfer program from the rates of a machine.

Three queues of the GPU: copies in, kernels, copies out. An operation begins when its stream, its queue and the program have
reached it. A copy takes a latency and its bytes at the bandwidth. A copy from or to pageable memory goes through a buffer of the
driver, so the program waits for it. Kernels run one after the other. What was not measured takes no time here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kernels.transfers.operations import (
    ALLOCATE,
    COPY_IN,
    COPY_OUT,
    CUDA_MALLOC,
    FREE,
    GRAPH,
    HOST,
    LAUNCH,
    QUEUES,
    RECORD,
    SYNCHRONIZE,
    TOUCH,
    WAIT,
    Op,
    Span,
    Timeline,
)
from kernels.transfers.rates import Rates, rates
from kernels.transfers.scenarios import Settings, operations


@dataclass
class _Clock:
    """When each queue and each stream is free, and when the program goes on."""

    rates: Rates
    free: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0.0))
    streams: dict[str, float] = field(default_factory=dict)
    events: dict[int, float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def on_host(self, at: int, ms: float) -> None:
        if ms > 0:
            self.spans.append(Span(at, HOST, self.free[HOST], self.free[HOST] + ms))
            self.free[HOST] += ms

    def on_gpu(self, at: int, op: Op, ms: float) -> float:
        """Queues an operation and returns its end."""
        start = max(self.free[HOST], self.free[op.queue], self.streams.get(op.stream, 0.0))
        self.spans.append(Span(at, op.queue, start, start + ms))
        self.free[op.queue] = self.streams[op.stream] = start + ms
        return start + ms

    def wait_until(self, at: int, end: float) -> None:
        self.on_host(at, end - self.free[HOST])


def predict(ops: Sequence[Op], r: Rates) -> Timeline:
    """Returns the predicted timeline of operations on a machine with these rates."""
    clock = _Clock(r)
    for at, op in enumerate(ops):
        _STEPS[op.kind](clock, at, op)
    end = max([clock.free[HOST], *clock.streams.values()])
    return Timeline(tuple(clock.spans), end)


def unknown(ops: Sequence[Op], r: Rates) -> tuple[str, ...]:
    """Returns the kinds of operations whose time was not measured, so that a prediction leaves it out. An array from a pool
    that has it takes about as long as a line of Python: it counts as none."""
    return tuple(
        sorted(
            {
                op.kind
                for op in ops
                if op.kind == TOUCH
                or (op.memory == CUDA_MALLOC and r.allocation_ms(op.memory, op.kind == FREE) is None)
            }
        )
    )


@lru_cache(maxsize=256)
def predicted(s: Settings) -> Timeline:
    """Returns the predicted timeline of a scenario on the recorded GPU."""
    return predict(operations(s), rates())


def best_pieces(rows: int, most: int) -> tuple[int, list[tuple[int, float]]]:
    """Returns the number of pieces with the least predicted total, and (pieces, total in ms) of each number up to `most`."""
    points = [(n, predicted(Settings("pieces", rows, n)).total_ms) for n in range(1, min(most, rows) + 1)]
    return min(points, key=lambda point: point[1])[0], points


# -- operations --------------------------------------------------------------------------------------
def _memory(clock: _Clock, at: int, op: Op) -> None:
    """cudaFree waits until the GPU is idle. A pool gives and takes memory at once."""
    release = op.kind == FREE
    if release and op.memory == CUDA_MALLOC:
        clock.wait_until(at, max(clock.streams.values(), default=0.0))
    clock.on_host(at, clock.rates.allocation_ms(op.memory, release) or 0.0)


def _copy(clock: _Clock, at: int, op: Op) -> None:
    rate = clock.rates.copy("h2d" if op.kind == COPY_IN else "d2h", op.pinned)
    if not op.blocks:
        clock.on_host(at, clock.rates.call_ms)
    end = clock.on_gpu(at, op, rate.ms(op.nbytes))
    if op.blocks:
        clock.wait_until(at, end)


def _launch(clock: _Clock, at: int, op: Op) -> None:
    clock.on_host(at, clock.rates.call_ms)
    shape = dict(op.shape)
    one = max(clock.rates.kernel_ms(op.rung, shape), clock.rates.gap_ms)
    clock.on_gpu(at, op, op.launches * one)


def _record(clock: _Clock, at: int, op: Op) -> None:
    clock.events[at] = clock.streams.get(op.stream, 0.0)


def _wait(clock: _Clock, at: int, op: Op) -> None:
    ends = [clock.events[event] for event in op.waits]
    clock.streams[op.stream] = max([clock.streams.get(op.stream, 0.0), *ends])


def _synchronize(clock: _Clock, at: int, op: Op) -> None:
    ends = [clock.streams.get(op.stream, 0.0)] if op.stream else clock.streams.values()
    clock.wait_until(at, max(ends, default=0.0))


def _touch(clock: _Clock, at: int, op: Op) -> None:
    """The rate of page faults was not measured: no time is predicted."""


_STEPS = {
    ALLOCATE: _memory,
    FREE: _memory,
    COPY_IN: _copy,
    COPY_OUT: _copy,
    LAUNCH: _launch,
    GRAPH: _launch,
    RECORD: _record,
    WAIT: _wait,
    SYNCHRONIZE: _synchronize,
    TOUCH: _touch,
}
