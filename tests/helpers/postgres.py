"""A PostgreSQL server for tests: with a folder, a port and a password of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

USER, PASSWORD = "theatre", "a secret"
ENCODED = "a%20secret"  # in a URL


def programs() -> Path:
    """Returns the folder of PostgreSQL's programs. Skips the test where there is none, or no driver."""
    pytest.importorskip("psycopg", reason="no psycopg here: pip install -r requirements-pool.txt")
    on_path = shutil.which("initdb")
    by_version = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    found = [Path(on_path).parent] if on_path else by_version
    if not found:
        pytest.skip("no PostgreSQL here: install it (Debian: apt-get install postgresql)")
    return found[-1]


class PostgreSQL:
    """A server on this machine. Its databases sort by the rules of English, as those of most servers do."""

    def __init__(self):
        self.programs, self.folder = programs(), Path(tempfile.mkdtemp(prefix="kernel-theatre-postgres-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._user = {}
        if getattr(os, "geteuid", lambda: 1)() == 0:  # PostgreSQL does not start as root
            import pwd

            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US"]
        self._run("initdb", "--no-sync", "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}", *locale)
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-o", options, "-l", self.folder / "log")

    def stop(self) -> None:
        """Stops the server, and ends every connection at once."""
        self._run("pg_ctl", "stop", "-m", "immediate")

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def url(self, database: str = "postgres", user: str = f"{USER}:{ENCODED}", options: str = "") -> str:
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}{options}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple]:
        """Executes statements, each in a transaction of its own, and returns the rows of the last."""
        with self.connect(database) as db:
            results = [db.execute(statement) for statement in statements]
            return results[-1].fetchall() if results[-1].description else []

    def connect(self, database: str = "postgres"):
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def database(self, name: str, *options: str) -> str:
        """Creates a database and returns its URL."""
        self.execute(f"CREATE DATABASE {name} {' '.join(options)}")
        return self.url(name)

    def _run(self, program: str, *options: str | Path) -> None:
        command = [self.programs / program, "-D", self.folder / "data", *options]
        done = subprocess.run(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._user)
        assert done.returncode == 0, done.stdout.decode()
