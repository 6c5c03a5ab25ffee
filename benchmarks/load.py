"""A lecture hall: a hundred readers of the app at once.
python -m benchmarks.load [OUT.json] [--readers 100] [--seconds 60] [--bare]

Prints a Markdown table of what was measured beside its target, and writes every sample to OUT.json.

The app is started here as a reader starts it. Each reader is a WebSocket to /_stcore/stream that says what a
browser says (streamlit.proto.BackMsg) and reads all it is sent (ForwardMsg): it opens /im2col, then turns one
control every 3 s, from a moment of its own: a new value of one of N, C, H, W, K, R, pad h, with all its fields and
the address, as a browser sends them. In between it runs the parts of the page that ask for it, as often as they do:
at first what lets charts load, after each turn what waits for the emulator's counts; what that takes of the server
is in the figures.

Timed: from sending that to the message that the whole script has finished, everything it sent having arrived and
been unpacked here, the stage's scene of just that shape among it (checked). Not in it: drawing in the browser. All
readers share one process here, which takes its part of the same cores. Memory is the resident set of the server's
process, the largest seen; its children's stand apart. --bare: another page, with as many elements and nothing behind
them (benchmarks/bare.py), for what Streamlit itself takes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import time
from statistics import median
from urllib.parse import urlencode

import numpy as np
import psutil
import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from benchmarks.page import Line, line, publish, spread
from kernels.conv.shape import ConvShape
from kernels.model.shape import ShapeError
from pages.conv import address as conv_address
from tests.helpers.harness import serving

EVERY_S, RAMP_S, REST_S, PATIENCE_S = 3.0, 20.0, 5.0, 60.0
CACHED_RUNS = 20  # as long as the browser keeps large messages
FINISHED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
SCENE = re.compile(rb'"key":"(im2col [^"]*)"')
VALUES = {
    "N": (1, 2), "C": (1, 2, 3), "H": range(6, 25), "W": range(6, 25), "K": range(1, 9), "R": (1, 2, 3), "pad_h": (0, 1, 2),
}  # fmt: skip


class Reader:
    """One browser tab at /im2col."""

    def __init__(self, url: str, seed: int, bare: bool = False):
        self.bare = bare  # no scene is expected
        self.url, self.random = url, random.Random(seed)
        self.shape = conv_address.DEFAULT.shape
        self.fields: dict[str, tuple[str, float]] = {}  # parameter: (id of the control, its value)
        self.again: dict[
            str, tuple[float, float]
        ] = {}  # fragment: (seconds between its runs, when the next is due)
        self.page = ""  # as the server names it
        self.runs, self.scene = 0, ""
        self.parts, self.counting, self.counted = (
            0,
            False,
            0,
        )  # runs of fragments; counts waited for, and come
        self.cached: dict[str, tuple[int, str]] = {}  # hash of a large message: (run it came last, its scene)

    async def visit(self, start: float, end: float) -> tuple[float, list[float], int, int]:
        """Seconds to open the page, ms of each rerun, runs of fragments, counts that came."""
        stream = self.url.replace("http", "ws", 1) + "/_stcore/stream"
        async with websockets.connect(
            stream, subprotocols=["streamlit"], origin=self.url, max_size=None
        ) as self.socket:
            opened = await self._rerun()
            samples, turn = [], start + self.random.uniform(0, EVERY_S)
            while turn < end:
                await self._rest(turn)
                self._turn()
                samples.append(1e3 * await self._rerun())
                turn = max(turn + EVERY_S, time.perf_counter())
            return opened, samples, self.parts, self.counted

    def _turn(self) -> None:
        """Another value of one control; the shape stays a valid one."""
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

    async def _rest(self, until: float) -> None:
        """What the browser does by itself: run each fragment that asks for it when it is due."""
        while self.again:
            fragment = min(self.again, key=lambda name: self.again[name][1])
            every, due = self.again[fragment]
            if due >= until:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.again[fragment] = every, time.perf_counter() + every
            self.parts += 1
            await self._rerun(fragment)
        await asyncio.sleep(max(0.0, until - time.perf_counter()))

    async def _rerun(self, fragment: str = "") -> float:
        """Ask for a run, read to its end; seconds."""
        message = BackMsg()
        asked = message.rerun_script
        query = urlencode(conv_address.at(conv_address.DEFAULT, self.shape))
        asked.query_string, asked.page_script_hash = query, self.page
        asked.page_name = "" if self.page else "im2col"  # once it is open the hash says it
        asked.cached_message_hashes.extend(self.cached)
        asked.fragment_id, asked.is_auto_rerun = fragment, bool(fragment)
        asked.context_info.url = f"{self.url}/im2col?{query}"
        for control, value in self.fields.values():
            asked.widget_states.widgets.add(id=control, double_value=value)
        start = time.perf_counter()
        await self.socket.send(message.SerializeToString())
        await asyncio.wait_for(self._finished(), PATIENCE_S)
        return time.perf_counter() - start

    async def _finished(self) -> None:
        self.runs += 1
        while True:
            said = ForwardMsg()
            said.ParseFromString(await self.socket.recv())
            match said.WhichOneof("type"):
                case "navigation":
                    self.page = said.navigation.page_script_hash
                case "new_session" if not said.metadata.run.fragment_ids:
                    self.again = {}  # a run of the whole page says anew what is to be run again
                case "auto_rerun":
                    every = said.auto_rerun.interval
                    self.again[said.auto_rerun.fragment_id] = every, time.perf_counter() + every
                case "stop_auto_rerun":
                    for fragment in said.stop_auto_rerun.fragment_ids:
                        self.again.pop(fragment, None)
                case "ref_hash":
                    self._keep(said.ref_hash, self.cached[said.ref_hash][1])
                case "delta":
                    self._element(said)
                case "script_finished" if said.script_finished in FINISHED:
                    break
        params = ",".join(f"{name}={value}" for name, value in self.shape.params().items())
        assert self.bare or params in self.scene, f"asked for {params}, the stage got {self.scene!r}"
        self.cached = {h: one for h, one in self.cached.items() if self.runs - one[0] < CACHED_RUNS}

    def _element(self, said: ForwardMsg) -> None:
        element = said.delta.new_element
        kind, scene = element.WhichOneof("type"), ""
        if kind == "exception":
            raise RuntimeError(element.exception.message)
        if kind == "html" and "counting …" in element.html.body:
            self.counting = True
        if kind == "html" and "sectors read" in element.html.body:
            self.counting, self.counted = False, self.counted + self.counting
        if kind == "bidi_component" and (key := SCENE.search(element.bidi_component.bytes)):
            self.scene = scene = key[1].decode()
        if kind == "number_input" and (name := element.number_input.query_param_key):
            field = element.number_input
            if field.set_value:  # the server's own will; else a known control keeps what was typed
                self.fields[name] = field.id, field.value
            elif self.fields.get(name, ("",))[0] != field.id:
                self.fields[name] = field.id, field.default
        if said.metadata.cacheable:
            self._keep(said.hash, scene)

    def _keep(self, hash_: str, scene: str) -> None:
        self.cached[hash_] = self.runs, scene
        self.scene = scene or self.scene


class Memory:
    """The most that a process held, and the most that its children did, in MB."""

    def __init__(self, pid: int):
        self.process, self.server, self.children, self.cpu = psutil.Process(pid), 0.0, 0.0, 0.0

    async def watch(self) -> None:
        while True:
            children = [child.memory_info().rss for child in self.process.children(recursive=True)]
            self.server = max(self.server, self.process.memory_info().rss / 1e6)
            self.children = max(self.children, sum(children) / 1e6)
            await asyncio.sleep(1)


async def hall(url: str, pid: int, readers: int, seconds: float, bare: bool) -> list[Line]:
    memory = Memory(pid)
    watch = asyncio.create_task(memory.watch())
    begin = time.perf_counter()
    start = begin + RAMP_S + REST_S
    cpu = asyncio.create_task(load(memory.process, start, seconds))

    async def one(i: int):
        await asyncio.sleep(RAMP_S * i / readers)
        return await Reader(url, i, bare).visit(start, start + seconds)

    done = await asyncio.gather(*(one(i) for i in range(readers)), return_exceptions=True)
    watch.cancel()
    visits = [v for v in done if not isinstance(v, BaseException)]
    for failed in (v for v in done if isinstance(v, BaseException)):
        print(f"a reader failed: {failed!r}", file=sys.stderr)
    assert any(v[1] for v in visits), "no reader was answered"
    opened, reruns = [v[0] for v in visits], [ms for v in visits for ms in v[1]]
    server, own = await cpu
    parts, counted = sum(v[2] for v in visits), sum(v[3] for v in visits)
    rate = (
        f"{len(reruns) / seconds:.1f} reruns a second, server {server:.0%} of a core, the readers {own:.0%}; "
        f"beside them {parts} runs of parts of the page, and the counts of {counted} shapes came"
    )
    who = f"{readers} readers, a control every {EVERY_S:g} s"
    return [
        line(f"rerun, median ({who})", "ms", median(reruns), 50, reruns, f"{spread(reruns)}; {rate}"),
        line("processor time of the server by reruns", "ms", 1e3 * server * seconds / len(reruns), 1e3 * EVERY_S / readers, [server]),
        line("rerun, p95", "ms", np.percentile(reruns, 95), 200, reruns, f"most {max(reruns):.4g}"),
        line("memory of the server", "MB", memory.server, 600, [memory.server], f"children {memory.children:.0f} MB"),
        line("readers that failed", "readers", readers - len(visits), 0, done and [0.0] * readers),
        line(f"page opened, one every {RAMP_S / readers:.2g} s, median", "s", median(opened), 2, opened, spread(opened)),
    ]  # fmt: skip


async def load(server: psutil.Process, start: float, seconds: float) -> tuple[float, float]:
    """Shares of a core that the server and this process take between start and its end."""
    await asyncio.sleep(max(0.0, start - time.perf_counter()))
    both = (server, psutil.Process())
    for process in both:
        process.cpu_percent()
    await asyncio.sleep(seconds)
    return tuple(process.cpu_percent() / 100 for process in both)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?")
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--bare", action="store_true", help="the page of benchmarks/bare.py")
    asked = parser.parse_args()
    sys.argv = [sys.argv[0], *filter(None, [asked.out])]  # publish reads the name of the file there
    busy = os.getloadavg()[0]
    with serving("benchmarks/bare.py" if asked.bare else "app.py") as app:
        lines = asyncio.run(hall(app.url, app.pid, asked.readers, asked.seconds, asked.bare))
    publish(lines, "", busy)


if __name__ == "__main__":
    main()
