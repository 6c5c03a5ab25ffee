"""A lecture hall: 300 readers of `python -m hall` at once.
python -m benchmarks.hall SITE [OUT.json] [--readers 300] [--seconds 120] [--runs 30]

Prints a Markdown table of measured figures and targets, and writes every sample to OUT.json. SITE is a folder that
`python -m visuals.site` wrote, with all lessons.

The hall is started here as a user starts it, with a data folder of its own. Each reader has a connection and asks what a
browser asks: the page of a lesson, then every 20 s, with a random offset, the next chapter. A chapter is its page and its
scene, unless the reader has them. The strip of this machine, with Run, follows; until it comes, a browser shows the recorded
one. Timed: from the first request to the last byte, unpacked. The hall has drawn each lesson once before. In the first minute some readers press Run in their chapter. Timed: from the press to their place in the queue, and to the page
with the result. Drawing in the browser is not included. The readers' process uses the same cores. Memory is the most
that the hall's process and the one that draws pages have together; pages of memory that processes share are divided between
them (Linux: PSS). The job service and its processes are listed beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.targets import Line, line, publish, spread
from hall.server import SESSION
from kernels.jobs.place import Place
from tests.helpers.hall import Hall, a_hall, every
from tests.helpers.site import Site

EVERY_S, RAMP_S, RUN_S, PATIENCE_S = 20.0, 10.0, 60.0, 600.0
RUN_LESSONS = ("tiling", "softmax", "attention", "direct", "im2col", "fusion")  # a processor runs their chapters


@dataclass
class Samples:
    """Milliseconds of each request of all readers, and what went wrong."""

    chapters: list[float] = field(default_factory=list)
    strips: list[float] = field(default_factory=list)
    places: list[float] = field(default_factory=list)
    results: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Connection:
    """A connection to the hall that stays open, as a browser's."""

    def __init__(self, port: int, session: str):
        self._port, self._session = port, session
        self._reader: asyncio.StreamReader | None = None

    async def ask(self, path: str, body: Any = None) -> bytes:
        """Returns the body of an answer, unpacked. AssertionError if it is none of success."""
        if self._reader is not None and self._reader.at_eof():
            self.close()  # the server closes a connection after a few seconds of rest
        await self._send(path, body)
        length, packed = await self._head(path)
        data = await self._reader.readexactly(length)
        return gzip.decompress(data) if packed else data

    async def lines(self, path: str):
        """Yields the events of an answer."""
        await self._send(path, None)
        await self._head(path)
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    async def _send(self, path: str, body: Any) -> None:
        if self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        data = b"" if body is None else json.dumps(body).encode()
        head = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: 127.0.0.1", "Accept-Encoding: gzip"]
        head += [f"{SESSION}: {self._session}", "Content-Type: application/json", f"Content-Length: {len(data)}"]
        self._writer.write("\r\n".join([*head, "", ""]).encode() + data)

    async def _head(self, path: str) -> tuple[int, bool]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = head.split(" ", 2)[1]
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        if status not in ("200", "202"):
            text = await self._reader.readexactly(int(fields.get("content-length", 0)))
            raise AssertionError(f"{path}: {status} {text[:200]!r}")
        return int(fields.get("content-length", 0)), fields.get("content-encoding") == "gzip"

    def close(self) -> None:
        if self._reader is not None:
            self._writer.close()
            self._reader = None


class Reader:
    """A browser tab in one lesson. `docs`: the file of each of its chapters by key."""

    def __init__(self, hall: Hall, lesson: str, docs: Mapping[str, str], seed: int, samples: Samples):
        self.hall, self.lesson, self.docs, self.samples = hall, lesson, docs, samples
        self.random, self.session = random.Random(seed), secrets.token_hex(16)
        self.chapters = sorted((key for key in docs if key.startswith("chapter=")), key=lambda key: int(key[8:]))
        self.at = self.random.randrange(len(self.chapters))
        self.files: dict[str, bytes] = {}  # those that its browser keeps
        self.stage = ""
        self.connection = Connection(hall.port, self.session)

    async def visit(self, start: float, end: float) -> None:
        await self.connection.ask(f"/{self.lesson}/")
        await self.strip(await self.turn())
        next_turn = start + self.random.uniform(0, EVERY_S)
        while next_turn < end:
            await asyncio.sleep(max(0.0, next_turn - time.perf_counter()))
            began = time.perf_counter()
            key = await self.turn()
            self.samples.chapters.append(1e3 * (time.perf_counter() - began))
            await self.strip(key)
            self.samples.strips.append(1e3 * (time.perf_counter() - began))
            next_turn += EVERY_S
        self.connection.close()

    async def turn(self) -> str:
        """Opens the next chapter and returns its key."""
        self.at = (self.at + 1) % len(self.chapters)
        key = self.chapters[self.at]
        elements = json.loads(await self.file(self.docs[key]))["c"]
        stages = [element for element in every(elements) if element.get("scene")]
        for stage in stages:
            await self.file(stage["scene"])
        self.stage = stages[0]["k"]
        return key

    async def strip(self, key: str) -> None:
        await self.connection.ask(f"/hall/strip/{self.lesson}?view=story&{key}")

    async def file(self, name: str) -> bytes:
        if name not in self.files:
            self.files[name] = gzip.decompress(await self.connection.ask(f"/files/{name}.bin"))
        return self.files[name]

    async def press(self, at: float) -> None:
        """Presses Run in the open chapter, and waits for the page with the result."""
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        own, news = Connection(self.hall.port, self.session), Connection(self.hall.port, self.session)
        address = f"{self.lesson}?view=story&{self.chapters[self.at]}"
        began = time.perf_counter()

        def since() -> float:
            return 1e3 * (time.perf_counter() - began)

        try:
            body = {"key": self.stage, "do": "run", "size": "stage"}
            run = json.loads(await own.ask(f"/hall/press/{address}", body))["run"]
            states = news.lines(f"/hall/runs/{run}?session={self.session}")
            await anext(states)
            self.samples.places.append(since())
            async for _ in states:
                pass
            page = json.loads(await own.ask(f"/hall/page/{address}"))
            self.samples.results.append(since())
            run = next(element["strip"]["run"] for element in every(page["doc"]["c"]) if element.get("scene"))
            if run["running"] or run["error"]:
                self.samples.errors.append(f"{address}: {run['error'] or 'the page shows no result'}")
        except (AssertionError, OSError, EOFError) as error:
            self.samples.errors.append(f"{address}: {error}")
        own.close()
        news.close()


class Memory:
    """The most memory in MB: of the hall with the process that draws, of the job service with its own."""

    def __init__(self, hall: Hall):
        self._data, self.hall, self.jobs = hall.data, 0.0, 0.0
        self._process = psutil.Process(hall.process.pid)

    async def watch(self) -> None:
        while True:
            everything, jobs = set(_family(self._process)), set()
            if service := Place(self._data).address():
                with contextlib.suppress(psutil.NoSuchProcess):
                    jobs = set(_family(psutil.Process(service.pid)))
            self.hall, self.jobs = max(self.hall, _memory(everything - jobs)), max(self.jobs, _memory(jobs))
            await asyncio.sleep(1)


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _memory(processes: Iterable[psutil.Process]) -> float:
    """Returns the MB of processes; what they share is counted once where the system says it (Linux)."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found = process.memory_full_info()
            total += getattr(found, "pss", found.rss)
    return total / 1e6


async def run_hall(hall: Hall, site: Site, readers: int, seconds: float, runs: int) -> list[Line]:
    samples, memory = Samples(), Memory(hall)
    watch = asyncio.create_task(memory.watch())
    lessons = {path: site.index(path) for path in site.config("")["pages"]}
    with_story = [path for path, docs in lessons.items() if "chapter=2" in docs]
    first = Connection(hall.port, secrets.token_hex(16))
    for path in with_story:
        await first.ask(f"/hall/strip/{path}")
    first.close()
    start = time.perf_counter() + RAMP_S
    tabs = [Reader(hall, path := with_story[n % len(with_story)], lessons[path], n, samples) for n in range(readers)]
    can_run = [tab for tab in tabs if tab.lesson in RUN_LESSONS][:runs]

    async def visit(n: int, tab: Reader) -> None:
        await asyncio.sleep(RAMP_S * n / readers)
        try:
            await tab.visit(start, start + seconds)
        except (AssertionError, OSError, EOFError) as error:
            samples.errors.append(f"{tab.lesson}: {error}")

    presses = [tab.press(start + RUN_S * n / len(can_run)) for n, tab in enumerate(can_run)]
    before, began = hall_seconds(hall), time.perf_counter()
    await asyncio.gather(*(visit(n, tab) for n, tab in enumerate(tabs)), *presses)
    share = (hall_seconds(hall) - before) / (time.perf_counter() - began)
    watch.cancel()
    for text in samples.errors[:10]:
        print(f"failed: {text}", file=sys.stderr)
    label = f"{readers} readers, a chapter every {EVERY_S:g} s"
    times, strips, places, results = samples.chapters, samples.strips, samples.places, samples.results
    used = f"hall {share:.0%} of a core"
    return [
        line(f"chapter, median ({label})", "ms", np.median(times), 50, times, f"{spread(times)}; {used}"),
        line("chapter, p95", "ms", np.percentile(times, 95), 150, times, f"most {max(times):.4g}"),
        line("chapter with Run of this machine, p95", "ms", np.percentile(strips, 95), 500, strips, spread(strips)),
        line(
            f"press to the place in the queue, {len(can_run)} presses, p95",
            "ms",
            np.percentile(places, 95),
            1000,
            places,
            spread(places),
        ),
        line("press to the page with the result, most", "s", max(results) / 1e3, PATIENCE_S, results, spread(results)),
        line("memory of the hall", "MB", memory.hall, 400, [memory.hall], f"job service {memory.jobs:.0f} MB"),
        line("requests that failed", "requests", len(samples.errors), 0, times),
    ]


def hall_seconds(hall: Hall) -> float:
    """Returns the processor seconds that the hall and the process that draws have used."""
    process = psutil.Process(hall.process.pid)
    drawing = [one for one in process.children() if "spawn_main" in " ".join(one.cmdline())]
    return sum(sum(one.cpu_times()[:2]) for one in (process, *drawing))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=Path)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--readers", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    load_average = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="kernel-theatre-", ignore_cleanup_errors=True) as data,
        a_hall(args.site, Path(data), seconds=3) as hall,
    ):
        lines = asyncio.run(run_hall(hall, Site(args.site), args.readers, args.seconds, args.runs))
    publish(lines, args.out, load_average)


if __name__ == "__main__":
    main()
