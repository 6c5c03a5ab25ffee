"""The emulator's counts of rungs, from a separate low-priority process, cached for all users."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kernels.jobs.client import Queue
from kernels.jobs.job import Job, Request, Rows
from kernels.jobs.worker import Worker
from kernels.ladders import find
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from kernels.records.row import kernel_digest

MAX_CACHED = 4096  # counts; one is about 2 KB
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Count:
    """Counts of one rung. `total`: warp instructions, sectors ... of all launches, by name; `left_out`: library calls,
    which are not counted."""

    total: Mapping[str, float]
    uncounted: tuple[str, ...] = ()


class Counts:
    """Counts by rung, shape, tile sizes and digest of the kernels. They have a worker of their own, whose process has
    the lowest priority: a run never waits for a count. Safe to use from any thread."""

    def __init__(self, module: str = "kernels.jobs.counter", queue: Queue | None = None):
        """`queue`: that of the job service, for a worker that all apps of this machine share."""
        self._lock = threading.Lock()
        self._cached: OrderedDict[Hashable, Count] = OrderedDict()
        if queue:
            queue.on_rows = self._keep
        self._worker = queue or Worker(DEADLINE_S, module, on_rows=self._keep)

    def get(self, rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> Count | None:
        """Returns the counts of a rung; None if it was not counted yet."""
        full = tuple(sorted((rung.default_tiles | dict(tiles)).items()))
        key = _key(rung.name, shape, full)
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def request(self, rungs: Iterable[Rung], shape: Shape, tiles: Mapping[str, int], owner: str = "") -> Job:
        """Queue rungs for counting; `of` returns their counts once the job is done. An owner's newer request replaces
        the one that waits. JobError as of Worker.submit."""
        rungs = list(rungs)
        known = {n: value for n, value in tiles.items() if any(n in r.tiles or n == r.name for r in rungs)}
        request = Request(tuple(r.name for r in rungs), shape, engine="emulator", tiles=known)
        job = self._worker.submit(request, owner)
        if job.cached:  # another app counted it, before this one was connected
            self._keep(job.result(0))
        return job

    def drop(self, job: Job) -> None:
        """Cancel a job if it still waits. A running count goes on to its end, for the next request."""
        self._worker.cancel(job, running=False)

    def position(self, job: Job) -> int:
        return self._worker.position(job)

    def waiting(self) -> int:
        return self._worker.waiting()

    def close(self) -> None:
        self._worker.close()

    def _keep(self, rows: Rows) -> None:
        for row in rows:
            shape, tiles = tuple(row["shape"].items()), tuple(sorted(row["tiles"].items()))
            counters = row["counters"]
            with self._lock:
                key = row["rung"], shape, tiles, row["kernels"]
                self._cached[key] = Count(counters["total"], tuple(counters["uncounted"]))
                if len(self._cached) > MAX_CACHED:
                    self._cached.popitem(last=False)


@lru_cache(maxsize=MAX_CACHED)
def _key(rung: str, shape: Shape, tiles: tuple[tuple[str, int], ...]) -> Hashable:
    """Returns the key of a count, with the digest of the kernels of a launch."""
    digest = kernel_digest(find(rung).build(shape, dict(tiles)))
    return rung, tuple(shape.params().items()), tiles, digest
