"""A hall as a reader's browser sees it: a real process on a free port, and requests without a browser."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from hall.server import SESSION
from kernels.jobs.job import SECONDS
from kernels.jobs.place import Place
from kernels.jobs.settings import VARIABLE as JOBS
from kernels.records import folder
from tests.children.helpers import until
from tests.helpers.harness import ROOT

READER = "0123456789abcdef" * 2


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json()["error"]


@dataclass(frozen=True)
class Hall:
    port: int
    process: subprocess.Popen
    data: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, method: str = "GET", body: Any = None, session: str = READER, **headers: str) -> Answer:
        """Returns the answer to a request. `body`: bytes, or a value that is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = {SESSION: session, "Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data, {name: value for name, value in own.items() if value})
            response = connection.getresponse()
            return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def press(self, path: str, key: str, session: str = READER, **params: Any) -> Answer:
        body = {"key": key, "do": "run", "size": "stage"}
        return self.ask(f"/hall/press/{path}?{urlencode(params)}", "POST", body, session)

    def states(self, run: str, session: str = READER) -> Iterator[dict[str, Any]]:
        """Yields the states of a run, as the events come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", f"/hall/runs/{run}?session={session}")
            response = connection.getresponse()
            assert response.status == 200
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def strip(self, path: str, session: str = READER, **params: Any) -> dict[str, Any]:
        """Returns the strip of a page with what the session has measured."""
        doc = self.ask(f"/hall/page/{path}?{urlencode(params)}", session=session).json()["doc"]
        return next(found["strip"] for found in every(doc["c"]) if found.get("scene"))


def every(elements: list) -> Iterator[dict[str, Any]]:
    for element in elements:
        if isinstance(element, list):
            yield from every(element)
        else:
            yield element
            yield from every(element.get("c", []))


@contextmanager
def a_hall(site: Path, data: Path, seconds: float = 0.05) -> Iterator[Hall]:
    """Runs a hall on the files of a site. Its runs take samples for `seconds`. The job service ends with it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {folder.VARIABLE: str(data), folder.STORE: "", SECONDS: str(seconds), JOBS: "", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "hall", str(site), "--port", str(port), "--address", "127.0.0.1"],
        cwd=ROOT,
        env=os.environ | own,
        stdout=subprocess.DEVNULL,
    )
    hall = Hall(port, process, data)
    try:
        until(lambda: process.poll() is not None or _answers(hall), 120)
        assert process.poll() is None, "the hall ended"
        yield hall
    finally:
        process.terminate()
        process.wait()
        if service := Place(data).address():
            with suppress(ProcessLookupError):
                os.kill(service.pid, 15)


def _answers(hall: Hall) -> bool:
    with suppress(OSError):
        return hall.ask("/hall/health").status == 200
    return False
