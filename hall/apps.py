"""The processes of a hall: the app several times, and HAProxy before them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hall.haproxy import HallError, Proxy, Server, render

ROOT = Path(__file__).resolve().parents[1]
START_S, STOP_S = 60.0, 10.0
QUICK_S, MAX_QUICK = 10.0, 3  # a process that ends so soon so often in a row is not started again
LOOK_S = 0.5
MISSING = (
    "HAProxy is missing. Debian and Ubuntu: apt-get install haproxy; macOS: brew install haproxy; elsewhere "
    "deploy/compose.yaml brings one"
)


@dataclass(frozen=True)
class Settings:
    """The options of `python -m hall`. `hosts`: names by which readers reach this machine, beside its address; `drain_s`: how
    long a restart waits for the readers of a process to leave."""

    processes: int = 2
    port: int = 8501
    certificate: Path | None = None
    hosts: tuple[str, ...] = ()
    base: str = ""
    drain_s: float = 60.0
    app: str = "app.py"


class App:
    """One process of the app, on a port of its own."""

    def __init__(self, name: str, settings: Settings, secret: str):
        self.name, self.port = name, free_port()
        self._settings, self._secret = settings, secret
        self._process: subprocess.Popen | None = None
        self._started, self._quick = 0.0, 0
        self.stopping = False

    @property
    def server(self) -> Server:
        return Server(self.name, f"127.0.0.1:{self.port}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", self._settings.app, *options(self._settings, self.port)],
            cwd=ROOT,
            env=os.environ
            | {
                "KERNEL_THEATRE_APP": self.name,
                "STREAMLIT_SERVER_COOKIE_SECRET": self._secret,
                "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1"),
                # Each reader's page is drawn in a thread of its own. glibc would give the threads many heaps.
                "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),
            },
        )

    def wait_until_ready(self) -> None:
        base = f"/{self._settings.base.strip('/')}".rstrip("/")
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise HallError(f"process {self.name} of the app ended with status {self._process.returncode}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}{base}/_stcore/health", timeout=5).close()
                return
            time.sleep(0.05)
        raise HallError(f"process {self.name} of the app does not answer within {START_S:g} s")

    def keep_alive(self) -> None:
        """Starts the process again if it ended by itself. HallError if it ends at once, again and again."""
        if self.stopping or self._process.poll() is None:
            return
        self._quick = self._quick + 1 if time.monotonic() - self._started < QUICK_S else 0
        if self._quick >= MAX_QUICK:
            raise HallError(
                f"process {self.name} of the app ends as soon as it starts, status {self._process.returncode}"
            )
        print(
            f"hall: process {self.name} ended with status {self._process.returncode}; it is started again", flush=True
        )
        self.start()

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            end_process(self._process)


def options(settings: Settings, port: int) -> list[str]:
    """Returns Streamlit's options for one process."""
    hosts = settings.hosts or default_hosts()
    values = {
        "server.port": port,
        "server.address": "127.0.0.1",
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.baseUrlPath": settings.base,
        # A page may connect from these names; others would be looked up outside of this machine.
        "server.corsAllowedOrigins": str([f"http://{host}" for host in hosts]).replace("'", '"'),
    }
    if settings.certificate:
        values["server.xsrfCookieSameSite"] = "none"  # other sites may embed the app
    return [f"--{name}={value}" for name, value in values.items() if value != ""]


def default_hosts() -> tuple[str, ...]:
    name = socket.gethostname()
    return tuple(dict.fromkeys((name, name.partition(".")[0], f"{name.partition('.')[0]}.local")))


class Hall:
    """The apps and HAProxy. `restart` replaces the apps one after another while the others serve."""

    def __init__(self, settings: Settings):
        if not 1 <= settings.processes <= 64:
            raise HallError(f"a hall has 1 to 64 processes, got {settings.processes}")
        if settings.certificate and not settings.certificate.is_file():
            raise HallError(
                f"there is no certificate {settings.certificate}: a PEM file with certificate and private key"
            )
        self.settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="kernel-theatre-hall-"))
        secret = secrets.token_hex(32)
        self.apps = [App(f"app{n}", settings, secret) for n in range(1, settings.processes + 1)]
        self.proxy = Proxy(
            [app.server for app in self.apps],
            settings.port,
            settings.certificate,
            self.folder / "admin.sock",
            settings.base,
        )
        self._haproxy: subprocess.Popen | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        program = shutil.which("haproxy")
        if not program:
            raise HallError(MISSING)
        refuse_taken(self.settings.port)
        config = self.folder / "haproxy.cfg"
        config.write_text(render(self.proxy), "utf-8")
        for app in self.apps:
            app.start()
        for app in self.apps:
            app.wait_until_ready()
        self._haproxy = subprocess.Popen([program, "-W", "-db", "-f", str(config)])

    def watch(self) -> None:
        """Keeps the processes alive until `ended` is set. HallError if it cannot."""
        while not self.ended.wait(LOOK_S):
            if self._haproxy.poll() is not None:
                raise HallError(f"HAProxy ended with status {self._haproxy.returncode}")
            for app in self.apps:
                app.keep_alive()

    def restart(self) -> None:
        """Replaces each process: its new readers go to others, then it ends, when its last reader has left or after
        `drain_s`. A page that is still open connects to another process, and its address brings it back."""
        for app in self.apps:
            app.stopping = True
            self.tell(f"set server apps/{app.name} state drain")
            end = time.monotonic() + self.settings.drain_s
            while time.monotonic() < end and self.readers(app.name) and not self.ended.wait(LOOK_S):
                pass
            self.tell(f"set server apps/{app.name} state maint")
            app.stop()
            app.start()
            app.wait_until_ready()
            app.stopping = False
            self.tell(f"set server apps/{app.name} state ready")

    def readers(self, name: str) -> int:
        """Returns how many connections a process has."""
        for line in self.tell("show stat").splitlines():
            fields = line.split(",")
            if fields[:2] == ["apps", name]:
                return int(fields[4])
        return 0

    def tell(self, command: str) -> str:
        """Sends a command to HAProxy and returns its answer."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(5)
            admin.connect(str(self.proxy.admin))
            admin.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: admin.recv(65536), b"")).decode()

    def stop(self) -> None:
        self.ended.set()
        if self._haproxy and self._haproxy.poll() is None:
            end_process(self._haproxy)
        for app in self.apps:
            app.stopping = True
            app.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def end_process(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise HallError(f"port {port} cannot be used: {error.strerror}; PORT= or --port chooses another") from None


def run(settings: Settings) -> None:
    """Runs a hall until a signal ends it. SIGHUP restarts the apps one after another."""
    hall = Hall(settings)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: hall.ended.set())
    restarts = threading.Lock()

    def restart(*_) -> None:
        def one_at_a_time() -> None:
            if restarts.acquire(blocking=False):
                with contextlib.suppress(OSError, HallError):
                    hall.restart()
                restarts.release()

        threading.Thread(target=one_at_a_time, daemon=True).start()

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, restart)
    try:
        hall.start()
        scheme = "https" if settings.certificate else "http"
        print(f"hall: {settings.processes} processes at {scheme}://localhost:{settings.port}", flush=True)
        hall.watch()
    finally:
        hall.stop()


def names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, (text.strip() for each in texts for text in each.split(","))))
