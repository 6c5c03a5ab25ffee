"""GPUs of a data parallel step as queues on the processor: work runs late, and in the order that shows a missing wait.

Arrays are NumPy's, a launch is its NumPy implementation. A stream is a queue. Nothing runs before somebody waits; then the
streams that compute run first as far as they can, or those that communicate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np


class Event:
    """A place in a stream that another stream may wait for; `passed` counts how often it was reached."""

    def __init__(self):
        self.recorded = self.passed = 0

    def record(self, stream: Stream) -> None:
        self.recorded += 1
        stream.queue(self._reach)

    def _reach(self) -> None:
        self.passed += 1


class Stream:
    def __init__(self):
        self.work: deque[Any] = deque()
        self.captured: list[Any] | None = None

    def queue(self, what: Any) -> None:
        (self.work if self.captured is None else self.captured).append(what)

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> Any:
        work, self.captured = self.captured, None
        return SimpleNamespace(launch=lambda stream: stream.work.extend(work))

    def wait_event(self, event: Event) -> None:
        self.work.append((event, event.recorded))


class Meeting:
    """Something that streams do together."""

    def __init__(self, run: Callable[[], None], streams: Sequence[Stream]):
        self.run, self.streams = run, streams


def _add(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    total = np.sum(inputs, axis=0, dtype=np.float32)
    for output in outputs:
        output[...] = total


class FakeDevices:
    def __init__(self, gpus: int):
        self.streams = [Stream() for _ in range(gpus)]
        self.now: list[Stream] = []

    @contextmanager
    def on(self, rank: int):
        self.now.append(self.streams[rank])
        yield self.streams[rank]
        self.now.pop()

    def empty(self, rank: int, size: Any, dtype: Any) -> np.ndarray:
        return np.empty(size, dtype)

    def fill(self, rank: int, array: np.ndarray, byte: int) -> None:
        """Fills now, or when what is captured runs."""

        def write() -> None:
            array.reshape(-1).view(np.uint8)[:] = byte

        write() if self.streams[rank].captured is None else self.streams[rank].queue(write)

    def copy(self, to: np.ndarray, to_rank: int, source: np.ndarray, from_rank: int) -> None:
        def move() -> None:
            to[...] = source

        self.streams[from_rank].queue(move)


class FakeTeam:
    """Stands for kernels.parallel.devices.Team. `computes_first`: which streams run as far as they can before the others.
    `deaf`: no stream waits for an event."""

    def __init__(self, gpus: int, computes_first: bool = True, deaf: bool = False):
        self.gpus, self.deaf = gpus, deaf
        self.devices, self.links = FakeDevices(gpus), FakeDevices(gpus)
        self.nccl = self if gpus > 1 else None
        both = (self.devices, self.links) if computes_first else (self.links, self.devices)
        self._order = [stream for each in both for stream in each.streams]

    def event(self, rank: int) -> Event:
        return Event()

    def call(self, rank: int, launch: Any, arrays: dict[str, np.ndarray]) -> Callable[[], None]:
        args = [arrays[a] if isinstance(a, str) else a for a in launch.args]
        return lambda: self.devices.now[-1].queue(lambda: launch.cpu(*args))

    def set(self, rank: int, array: np.ndarray, values: np.ndarray) -> None:
        array[...] = values.reshape(array.shape)

    def get(self, rank: int, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def runner(self, kind: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        assert kind == "all-reduce"
        meeting = Meeting(lambda: _add(inputs, outputs), self.links.streams)
        return lambda: [stream.queue(meeting) for stream in self.links.streams] and None

    def sums(self, arrays: Sequence[np.ndarray]) -> tuple[Callable[[], None], Callable[[int], None]]:
        meeting = Meeting(lambda: _add(arrays, arrays), self.devices.streams)
        return self.runner("all-reduce", arrays, arrays), lambda rank: self.devices.streams[rank].queue(meeting)

    def wait(self, deadline_s: float = 0.0) -> None:
        """Runs all that is queued."""
        while any(stream.work for stream in self._order):
            if not any(self._advance(stream) for stream in self._order):
                raise AssertionError("the streams wait for each other")

    def _advance(self, stream: Stream) -> bool:
        """Runs a stream as far as it can. Returns whether it ran anything."""
        ran = False
        while stream.work:
            first = stream.work[0]
            if isinstance(first, Meeting):
                if not all(each.work and each.work[0] is first for each in first.streams):
                    return ran
                for each in first.streams:
                    each.work.popleft()
                first.run()
            elif isinstance(first, tuple):
                event, count = first
                if event.passed < count and not self.deaf:
                    return ran
                stream.work.popleft()
            else:
                stream.work.popleft()()
            ran = True
        return ran
