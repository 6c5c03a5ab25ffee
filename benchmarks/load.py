"""Many readers of one process of the app at once. benchmarks/hall.py is about the hall.
python -m benchmarks.load [OUT.json] [--readers 100] [--seconds 60] [--bare]

Prints a Markdown table of measured figures and targets, and writes every sample to OUT.json.

The app is started here as a user starts it. Each reader is a WebSocket to /_stcore/stream that sends the messages of a
browser (streamlit.proto.BackMsg) and reads all replies (ForwardMsg). It opens /im2col, then changes one control every
3 s, with a random offset: a new value of one of N, C, H, W, K, R, pad h, sent with all fields and the address, as a
browser does. In between it does what a browser does by itself: it reruns the fragments that let charts load, and waits
for the emulator's counts by the route of pages/_watch.py. Their load on the server is part of the figures.

Timed: from sending a change to the message with the stage's scene of that shape, which is what a reader waits for; and to
the message that the whole script has finished, when all its messages have arrived and been unpacked here. Between the two
the page pauses for 80 ms, so that the browser paints the stage before the cards (pages/parts/stage.py). Drawing in the browser is not included.
All readers share one process here, which uses the same cores. Memory is the largest resident set of the server's
process; its children are listed separately. --bare: another page, with as many elements and nothing computed for them
(benchmarks/bare.py), to measure Streamlit itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import sys
import time
from collections.abc import Sequence
from statistics import median
from urllib.parse import urlencode

import numpy as np
import psutil
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from benchmarks.targets import Line, line, publish, spread
from kernels.conv.shape import ConvShape
from kernels.model.shape import ShapeError
from pages.conv import address as address_module
from tests.helpers.harness import serving

EVERY_S, RAMP_S, REST_S, PATIENCE_S = 3.0, 20.0, 5.0, 60.0
ASK_S = 0.3  # as visuals/stage/watch.js
CACHED_RUNS = 20  # as long as the browser keeps large messages
FINISHED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
SCENE = re.compile(rb'"key":"(im2col [^"]*)"')
VALUES = {
    "N": (1, 2),
    "C": (1, 2, 3),
    "H": range(6, 25),
    "W": range(6, 25),
    "K": range(1, 9),
    "R": (1, 2, 3),
    "pad_h": (0, 1, 2),
}


class Reader:
    """One browser tab at /im2col."""

    def __init__(self, url: str, seed: int, bare: bool = False):
        self.bare = bare  # no scene is expected
        self.url, self.random = url, random.Random(seed)
        self.shape = address_module.DEFAULT.shape
        self.fields: dict[str, tuple[str, float]] = {}  # by parameter: (id of the control, its value)
        # By fragment: (seconds between its runs, when the next is due).
        self.reruns_due: dict[str, tuple[float, float]] = {}
        self.page = ""  # the server's hash of the page
        self.runs, self.scene = 0, ""
        # Runs of fragments; what the page waits for, and the task that asks; counts received.
        self.parts, self.watched, self.asking, self.counted = 0, "", None, 0
        self.stage_at = 0.0  # when the last scene came
        # By hash of a large message: (run in which it last came, its scene).
        self.cached: dict[str, tuple[int, str]] = {}

    async def visit(self, start: float, end: float) -> tuple[float, list[float], int, int, list[float]]:
        """Returns seconds to open the page, ms of each rerun, runs of fragments, counts received, ms until each stage."""
        stream = self.url.replace("http", "ws", 1) + "/_stcore/stream"
        await self._get("/im2col")
        async with websockets.connect(
            stream, subprotocols=["streamlit"], origin=self.url, max_size=None
        ) as self.socket:
            opened = await self._rerun()
            samples, stages, next_change = [], [], start + self.random.uniform(0, EVERY_S)
            while next_change < end:
                await self._run_due_fragments(next_change)
                self._change_control()
                begin = time.perf_counter()
                samples.append(1e3 * await self._rerun())
                stages.append(1e3 * (self.stage_at - begin))
                next_change = max(next_change + EVERY_S, time.perf_counter())
            if self.asking:
                self.asking.cancel()
            return opened, samples, self.parts, self.counted, stages

    async def _get(self, path: str) -> tuple[dict[str, str], bytes]:
        """Returns the headers and the body of a request, on a connection of its own."""
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Accept: text/html, */*", "Connection: close"]
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            assert " 200 " in head[0], f"{path}: {head[0]}"
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            return headers, await reader.read()
        finally:
            writer.close()

    def _watch(self, path: str) -> None:
        """Asks for what the page waits for, and no longer for what it waited for before."""
        if path == self.watched:
            return
        self.watched = path
        if self.asking:
            self.asking.cancel()
        self.asking = asyncio.create_task(self._ask(path)) if path else None

    async def _ask(self, path: str) -> None:
        await asyncio.sleep(ASK_S)
        tag = ""
        while True:
            _, body = await self._get(f"/{path}?seen={tag}")
            answer = json.loads(body)
            if answer.get("done"):
                self.counted += "strip" in answer
            if answer.get("done") or answer.get("gone"):
                return
            tag = answer["tag"]

    def _change_control(self) -> None:
        """Change the value of one control; the shape stays valid."""
        while True:
            name = self.random.choice(list(VALUES))
            value = self.random.choice(list(VALUES[name]))
            try:
                shape = ConvShape(**self.shape.params() | {name: value})
            except ShapeError:
                continue
            if shape != self.shape:
                self.shape = shape
                self.fields[name] = (self.fields[name][0], float(value))
                return

    async def _run_due_fragments(self, until: float) -> None:
        """Run each fragment when it is due, as a browser does without input."""
        while self.reruns_due:
            fragment = min(self.reruns_due, key=lambda name: self.reruns_due[name][1])
            interval, due = self.reruns_due[fragment]
            if due >= until:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.reruns_due[fragment] = interval, time.perf_counter() + interval
            self.parts += 1
            await self._rerun(fragment)
        await asyncio.sleep(max(0.0, until - time.perf_counter()))

    async def _rerun(self, fragment: str = "") -> float:
        """Request a run, read to its end, and return the seconds."""
        message = BackMsg()
        request = message.rerun_script
        query = urlencode({"view": "explore"} | address_module.at_shape(address_module.DEFAULT, self.shape))
        request.query_string, request.page_script_hash = query, self.page
        request.page_name = "" if self.page else "im2col"  # once it is open the hash identifies it
        request.cached_message_hashes.extend(self.cached)
        request.fragment_id, request.is_auto_rerun = fragment, bool(fragment)
        request.context_info.url = f"{self.url}/im2col?{query}"
        for control, value in self.fields.values():
            request.widget_states.widgets.add(id=control, double_value=value)
        start = time.perf_counter()
        await self.socket.send(message.SerializeToString())
        await asyncio.wait_for(self._finished(), PATIENCE_S)
        return time.perf_counter() - start

    async def _finished(self) -> None:
        self.runs += 1
        while True:
            message = ForwardMsg()
            message.ParseFromString(await self.socket.recv())
            match message.WhichOneof("type"):
                case "navigation":
                    self.page = message.navigation.page_script_hash
                case "new_session" if not message.metadata.run.fragment_ids:
                    self.reruns_due = {}  # a run of the whole page lists the fragments again
                case "auto_rerun":
                    interval = message.auto_rerun.interval
                    self.reruns_due[message.auto_rerun.fragment_id] = interval, time.perf_counter() + interval
                case "stop_auto_rerun":
                    for fragment in message.stop_auto_rerun.fragment_ids:
                        self.reruns_due.pop(fragment, None)
                case "ref_hash":
                    self._cache_message(message.ref_hash, self.cached[message.ref_hash][1])
                case "delta":
                    self._element(message)
                case "script_finished" if message.script_finished in FINISHED:
                    break
        params = ",".join(f"{name}={value}" for name, value in self.shape.params().items())
        assert self.bare or params in self.scene, f"asked for {params}, the stage got {self.scene!r}"
        self.cached = {hash_: entry for hash_, entry in self.cached.items() if self.runs - entry[0] < CACHED_RUNS}

    def _element(self, message: ForwardMsg) -> None:
        element = message.delta.new_element
        kind, scene = element.WhichOneof("type"), ""
        if kind == "exception":
            raise RuntimeError(element.exception.message)
        if kind == "bidi_component" and element.bidi_component.component_name.endswith("live"):
            self._watch(json.loads(element.bidi_component.json)["watch"])
        if kind == "bidi_component" and (key := SCENE.search(element.bidi_component.bytes)):
            self.scene, self.stage_at = (scene := key[1].decode()), time.perf_counter()
        if kind == "number_input" and (name := element.number_input.query_param_key):
            field = element.number_input
            if field.set_value:  # set by the server; else a known control keeps its input
                self.fields[name] = field.id, field.value
            elif self.fields.get(name, ("",))[0] != field.id:
                self.fields[name] = field.id, field.default
        if message.metadata.cacheable:
            self._cache_message(message.hash, scene)

    def _cache_message(self, hash_: str, scene: str) -> None:
        self.cached[hash_] = self.runs, scene
        if scene:
            self.scene, self.stage_at = scene, time.perf_counter()


class Memory:
    """The largest resident sets of the processes of the app and of their children, each summed, in MB."""

    def __init__(self, pids: Sequence[int]):
        self.processes, self.server, self.children = [psutil.Process(pid) for pid in pids], 0.0, 0.0

    async def watch(self) -> None:
        while True:
            children = [child for process in self.processes for child in process.children(recursive=True)]
            self.server = max(self.server, _resident(self.processes))
            self.children = max(self.children, _resident(children))
            await asyncio.sleep(1)


def _resident(processes: Sequence[psutil.Process]) -> float:
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total / 1e6


async def run_readers(url: str, pids: Sequence[int], readers: int, seconds: float, bare: bool) -> list[Line]:
    memory = Memory(pids)
    watch = asyncio.create_task(memory.watch())
    begin = time.perf_counter()
    start = begin + RAMP_S + REST_S
    cpu = asyncio.create_task(load(memory.processes, start, seconds))

    async def one_reader(i: int):
        await asyncio.sleep(RAMP_S * i / readers)
        return await Reader(url, i, bare).visit(start, start + seconds)

    results = await asyncio.gather(*(one_reader(i) for i in range(readers)), return_exceptions=True)
    watch.cancel()
    visits = [v for v in results if not isinstance(v, BaseException)]
    for error in (v for v in results if isinstance(v, BaseException)):
        print(f"a reader failed: {error!r}", file=sys.stderr)
    assert any(v[1] for v in visits), "no reader was answered"
    opened, reruns = [v[0] for v in visits], [ms for v in visits for ms in v[1]]
    stages = reruns if bare else [ms for v in visits for ms in v[4]]
    server, readers_share = await cpu
    parts, counted = sum(v[2] for v in visits), sum(v[3] for v in visits)
    rate = (
        f"{len(reruns) / seconds:.1f} reruns a second, server {server:.0%} of a core, the readers {readers_share:.0%}; "
        f"beside them {parts} runs of parts of the page, and the counts of {counted} shapes came"
    )
    label = f"{readers} readers, a control every {EVERY_S:g} s"
    return [
        line(f"stage of the new shape, median ({label})", "ms", median(stages), 80, stages, spread(stages)),
        line("stage of the new shape, p95", "ms", np.percentile(stages, 95), 200, stages, f"most {max(stages):.4g}"),
        line("whole rerun, median", "ms", median(reruns), 160, reruns, f"{spread(reruns)}; {rate}"),
        line(
            "processor time of the server by reruns",
            "ms",
            1e3 * server * seconds / len(reruns),
            1e3 * EVERY_S / readers,
            [server],
        ),
        line("whole rerun, p95", "ms", np.percentile(reruns, 95), 280, reruns, f"most {max(reruns):.4g}"),
        line("memory of the server", "MB", memory.server, 600, [memory.server], f"children {memory.children:.0f} MB"),
        line("readers that failed", "readers", readers - len(visits), 0, results and [0.0] * readers),
        line(
            f"page opened, one every {RAMP_S / readers:.2g} s, median", "s", median(opened), 2, opened, spread(opened)
        ),
    ]


async def load(server: Sequence[psutil.Process], start: float, seconds: float) -> tuple[float, float]:
    """Returns the shares of a core that the server's processes and this process use for `seconds` from `start` on."""
    await asyncio.sleep(max(0.0, start - time.perf_counter()))
    processes = (*server, psutil.Process())
    for process in processes:
        process.cpu_percent()
    await asyncio.sleep(seconds)
    *shares, readers = (process.cpu_percent() / 100 for process in processes)
    return sum(shares), readers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?")
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--bare", action="store_true", help="the page of benchmarks/bare.py")
    args = parser.parse_args()
    load_average = os.getloadavg()[0]
    page = "benchmarks/bare.py" if args.bare else "app.py"
    with serving(page) as app:
        lines = asyncio.run(run_readers(app.url, [app.pid], args.readers, args.seconds, args.bare))
    publish(lines, args.out, load_average)


if __name__ == "__main__":
    main()
