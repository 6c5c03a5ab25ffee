"""A site of all lessons for tests of their layout: python -m tests.helpers.lessons_site OUT.

One process records every chapter down to its stage, and Explore with its cards. Only the kernels on memory are counted, in which
chapters ask for sectors. Each counter of the others has the same number: tests of numbers open the app's pages.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.engines.emulator.counters import FIELDS
from pages._lessons import LESSONS
from visuals.site import counting, crawl, unit, write
from visuals.site.files import Files
from visuals.site.host import Host, Recording

COUNT = 1234
TOPICS = {
    "threads": [{"topic": topic} for topic in ("divergence", "coalescing", "banks", "layout")],
    "precision": [{"topic": topic} for topic in ("gradients", "int8", "products")],
    "layers": [{"layer": "max-pool", "pass": "backward"}, {"layer": "cross-entropy", "pass": "step"}],
}
COUNTED = ("add/", "branch/", "stride/", "banks/", "layout/")
REFUSED = {"dtype": "fp16", "rung": "shared-tile"}  # in the lesson on tiling: a kernel without these numbers


class Drawn(BaseException):
    """Ends a run: the stage is drawn, and nothing below it is looked at."""


class DownToTheStage(Host):
    def __init__(self) -> None:
        super().__init__()
        self.mounted = self._mounted

    def record(self, path: str, params: Mapping[str, str], presses: Mapping[str, Any] | None = None) -> Recording:
        try:
            return super().record(path, params, presses)
        except Drawn:
            return Recording(path, dict(self.run.query), self.run.root)

    def _mounted(self, name: str) -> None:
        if name == "stage" and self.run.query.get("view") != "explore":
            raise Drawn


def record(out: Path) -> None:
    unit.Host = DownToTheStage
    unit.digests = lambda paths: {}  # this site is not built again
    counted = counting._count
    same = dict.fromkeys(FIELDS, COUNT), []
    counting._count = lambda rung, *more: counted(rung, *more) if rung.name.startswith(COUNTED) else same
    begun = unit.begin(out / unit.BUILD / "counts.json")
    unit.begin = lambda _: begun  # one process has one host
    units = {lesson.path: unit.build(lesson.path, out, depth=0) for lesson in LESSONS}
    for path, topics in {**TOPICS, "tiling": [REFUSED]}.items():
        units[path] = unit.extend(units[path], out, [{crawl.VIEW: crawl.EXPLORE} | topic for topic in topics])
    assert not any(one.failed for one in units.values()), {path: one.failed for path, one in units.items()}
    shell = write._shell(Files(out), units, write.Settings(out))
    for path, one in units.items():
        write._page(out, path, one, shell, "../")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
