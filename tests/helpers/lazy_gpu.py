"""A GPU whose streams run late and in any order that the program allows, to find a missing wait."""

from __future__ import annotations

import random
from typing import Any

from kernels.transfers.gpu import Host


class Lazy(Host):
    """Queues the operations of each stream. A synchronisation runs queued operations of all streams, in a random order that
    keeps each stream's order and its waits for events, until the streams that it names are empty."""

    def __init__(self, seed: int):
        super().__init__()
        self._random = random.Random(seed)
        self._queues: dict[str, list[tuple[str, Any]]] = {}
        self._recorded: set[int] = set()
        self._events = 0

    def stream(self, name: str) -> str:
        self._queues[name] = []
        return name

    def record(self, stream: str) -> int:
        self._events += 1
        self._queues[stream].append(("record", self._events))
        return self._events

    def wait(self, stream: str, event: int) -> None:
        self._queues[stream].append(("wait", event))

    def run(self, at: int, stream: str, call) -> None:
        self._queues[stream].append(("run", call))

    def synchronize(self, streams: list[str]) -> None:
        while any(self._queues[name] for name in streams):
            ready = [name for name, queue in self._queues.items() if queue and self._can_run(queue[0])]
            assert ready, "the streams wait for each other"
            kind, what = self._queues[self._random.choice(ready)].pop(0)
            if kind == "record":
                self._recorded.add(what)
            elif kind == "run":
                what()

    def _can_run(self, entry: tuple[str, Any]) -> bool:
        kind, what = entry
        return kind != "wait" or what in self._recorded
