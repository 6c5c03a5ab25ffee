"""The emulator's counts in this process: the site is built without a job service, and a browser has none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernels.i18n import tr
from kernels.jobs import counts as jobs
from kernels.jobs.counts import Count
from kernels.jobs.job import Job, JobError
from kernels.jobs.settings import HERE, VARIABLE
from kernels.model.row import Json
from kernels.model.rung import Rung
from kernels.model.shape import Shape
from kernels.records.row import kernel_digest
from kernels.runner import run


class CountsHere:
    """Counts like kernels.jobs.counts.Counts, made when they are read. `file` keeps them from one build to the next.

    With `later` a read returns None and leaves the rung for `count_next`: a reader sees the scene before the counts.
    """

    file: Path | None = None
    later = False

    def __init__(self) -> None:
        self._known: Json = {}
        self.left: dict[str, tuple[Rung, Shape, dict[str, int]]] = {}  # to be counted, by key
        self._new = False
        if self.file and self.file.exists():
            self._known = json.loads(self.file.read_text("utf-8"))

    def get(self, rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> Count | None:
        """Returns the counts of a rung; None if the emulator cannot run it here."""
        full = dict(sorted((rung.default_tiles | dict(tiles)).items()))
        key = f"{rung.name} {shape} {full} {kernel_digest(rung.build(shape, full))}"
        if key not in self._known:
            if self.later:
                self.left[key] = rung, shape, full
                return None
            self._known[key], self._new = _count(rung, shape, full), True
        total, uncounted = self._known[key]
        return None if total is None else Count(total, tuple(uncounted))

    def count_next(self) -> None:
        """Counts one of the rungs that are left."""
        key, (rung, shape, full) = self.left.popitem()
        self._known[key] = _count(rung, shape, full)

    def request(self, rungs: Iterable[Rung], *_: object) -> Job:
        names = ", ".join(rung.name for rung in rungs)
        raise JobError(tr("the emulator cannot run {rungs} here", rungs=names))

    def drop(self, job: Job) -> None:
        """There are no jobs."""

    def position(self, job: Job) -> int:
        return 0

    def waiting(self) -> int:
        return 0

    def save(self) -> None:
        if self.file and self._new:
            self.file.write_text(json.dumps(self._known), "utf-8")


def _count(rung: Rung, shape: Shape, tiles: Mapping[str, int]) -> tuple[dict[str, float] | None, list[str]]:
    try:
        counters = run(rung.name, shape, engine="emulator", tiles=dict(tiles)).counted.to_json()
    except (RuntimeError, ValueError):  # tile sizes that were not compiled ahead, and no compiler here
        return None, []
    return counters["total"], counters["uncounted"]


def known(folder: Path) -> CountsHere:
    """Returns the counts that a build has kept in a folder. They count nothing."""
    found = CountsHere()
    found.later = True
    for file in sorted(folder.glob("counts-*.json")):
        found._known |= json.loads(file.read_text("utf-8"))
    return found


def install(file: Path | None = None, later: bool = False) -> list[CountsHere]:
    """Puts these counts in the place of those from another process. Returns the list that holds the ones in use."""
    used: list[CountsHere] = []

    class Counts(CountsHere):
        def __init__(self) -> None:
            super().__init__()
            used.append(self)

    Counts.file, Counts.later = file, later
    jobs.Counts = Counts
    os.environ[VARIABLE] = HERE  # no job service is started
    return used
