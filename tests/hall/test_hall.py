"""A hall of real processes: readers stay with theirs, one that ends is replaced, a restart loses no request."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from hall import apps
from hall.__main__ import main
from hall.apps import Hall, Settings, default_hosts, free_port, options
from hall.haproxy import COOKIE, HallError
from tests.children.helpers import until
from tests.hall.test_haproxy import a_certificate, needs_haproxy

APP = "tests/helpers/hall_app.py"


def ask(url: str, cookie: str = "") -> tuple[str, int, str]:
    """Returns the name and the pid of the process that answers, and the cookie that the proxy sets."""
    context = ssl._create_unverified_context() if url.startswith("https") else None
    request = urllib.request.Request(url, headers={"Cookie": f"{COOKIE}={cookie}"} if cookie else {})
    with urllib.request.urlopen(request, timeout=30, context=context) as response:
        name, pid, _ = response.read().decode().split()
        return name, int(pid), response.headers.get("Set-Cookie") or ""


@contextmanager
def a_hall(**settings):
    hall = Hall(Settings(port=free_port(), app=APP, **settings))
    watcher = threading.Thread(target=hall.watch)
    try:
        hall.start()
        watcher.start()
        scheme = "https" if hall.settings.certificate else "http"
        url = f"{scheme}://127.0.0.1:{hall.settings.port}"
        until(lambda: answers(f"{url}/who"))
        yield hall, url
    finally:
        hall.stop()
        if watcher.is_alive():
            watcher.join()


def answers(url: str) -> bool:
    try:
        ask(url)
    except (OSError, urllib.error.URLError):
        return False
    return True


@needs_haproxy
def test_readers_stay_with_their_process_and_an_ended_one_is_replaced():
    with a_hall(processes=2, drain_s=0) as (hall, url):
        until(lambda: {ask(f"{url}/who")[0] for _ in range(4)} == {"app1", "app2"})
        assert f"{COOKIE}=app" in ask(f"{url}/who")[2] and "SameSite=Lax" in ask(f"{url}/who")[2]
        for name in ("app1", "app2"):
            assert {ask(f"{url}/who", name)[0] for _ in range(6)} == {name}
            assert ask(f"{url}/stage/watch/{name}-token")[0] == name  # without a cookie
        first = hall.apps[0].pid
        os.kill(first, signal.SIGKILL)
        assert ask(f"{url}/who", "app1")[0] == "app2"  # at once another one answers
        # While the new process is slow, the proxy may pass a request on to the other one.
        until(lambda: ask(f"{url}/who", "app1")[:2] == ("app1", hall.apps[0].pid), 60)
        assert hall.apps[0].pid != first
        _check_restart(hall, url)


def _check_restart(hall, url):
    """Restarts both processes while a reader asks again and again: each request is answered."""
    before, failures, done = {app.pid for app in hall.apps}, [], threading.Event()

    def reader():
        while not done.is_set():
            try:
                ask(f"{url}/who")
            except OSError as error:
                failures.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        hall.restart()
    finally:
        done.set()
        thread.join()
    assert not failures and not before & {app.pid for app in hall.apps}


@needs_haproxy
def test_over_https_frames_of_other_sites_keep_their_process(tmp_path):
    with a_hall(processes=1, certificate=a_certificate(tmp_path)) as (_, url):
        cookie = ask(f"{url}/who")[2]
        assert all(part in cookie for part in ("SameSite=None", "Secure", "HttpOnly", "Partitioned"))


def test_a_process_that_cannot_start_is_told(monkeypatch):
    hall = Hall(Settings(processes=1, port=free_port(), app="no_such_app.py"))
    monkeypatch.setattr(apps.shutil, "which", lambda name: sys.executable)
    try:
        with pytest.raises(HallError, match="process app1 of the app ended with status"):
            hall.start()
    finally:
        hall.stop()


def test_a_process_that_ends_at_once_again_and_again_is_not_started_forever():
    app = apps.App("app1", Settings(), "secret")
    starts = []
    app.start = lambda: starts.append(1)
    app._started = float("inf")
    app._process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    app._process.wait()
    with pytest.raises(HallError, match="ends as soon as it starts, status 3"):
        for _ in range(10):
            app.keep_alive()
    assert len(starts) == apps.MAX_QUICK - 1


def test_what_is_missing_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["2", "--port", str(free_port())]) == 1
    assert "apt-get install haproxy" in capsys.readouterr().err
    assert main(["0"]) == 1 and "1 to 64 processes" in capsys.readouterr().err
    assert main(["2", "--certificate", str(tmp_path / "none.pem")]) == 1
    assert "there is no certificate" in capsys.readouterr().err


def test_a_taken_port_is_told():
    import socket

    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        with pytest.raises(HallError, match=r"cannot be used: .*chooses another"):
            apps.refuse_taken(other.getsockname()[1])


def test_the_options_of_a_process(tmp_path):
    found = dict(option[2:].split("=", 1) for option in options(Settings(hosts=("hall.example.org",)), 8601))
    assert found["server.address"] == "127.0.0.1" and found["server.port"] == "8601"
    assert found["server.corsAllowedOrigins"] == '["http://hall.example.org"]'
    assert "server.xsrfCookieSameSite" not in found and "server.baseUrlPath" not in found
    framed = options(Settings(certificate=tmp_path, base="talk"), 8601)
    assert "--server.xsrfCookieSameSite=none" in framed and "--server.baseUrlPath=talk" in framed
    assert default_hosts()[-1].endswith(".local")
