"""Where the job service of this machine is: its files in the data folder, their locks, and the version of its code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from kernels.records import folder

ROOT = Path(__file__).parents[2]
SOURCES = ("*.py", "*.cu", "*.cuh", "*.zip", "*.json")  # of what a run executes
MAX_SOCKET = 100  # characters of a socket's path: Linux and macOS allow hardly more
# Environment variables with the same value in every app of one service.
SHARED_SETTINGS = ("CUDA_VISIBLE_DEVICES", folder.STORE)


@dataclass(frozen=True)
class Address:
    """What a service writes about itself. `version`: of its code; `settings`: its SHARED_SETTINGS."""

    socket: str
    pid: int
    version: tuple[int, str]
    settings: dict[str, str]


@dataclass(frozen=True)
class Place:
    """The files of the service of one data folder on this machine. Machines that share a folder have a service each."""

    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / f"jobs-{machine()}.{name}"

    def address(self) -> Address | None:
        """Returns the address of the service that was started last; None if there is none or its file is damaged."""
        try:
            fields = json.loads(self.file("json").read_text("utf-8"))
            return Address(**fields | {"version": tuple(fields["version"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def publish(self, address: Address) -> None:
        new = self.file("json.new")
        new.write_text(json.dumps(asdict(address)), "utf-8")
        new.replace(self.file("json"))

    def withdraw(self, address: Address) -> None:
        """Removes the address of a service, unless another one has written its own."""
        if self.address() == address:
            self.file("json").unlink(missing_ok=True)

    def key(self) -> bytes:
        """Returns the key that apps and service prove to each other to have. Only this user can read it."""
        path = self.file("key")
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()

    def new_socket(self) -> str:
        """Returns where a new service listens: a named pipe on Windows, else a socket beside the other files, or in a
        temporary folder if its path would be too long."""
        name = secrets.token_hex(6)
        if sys.platform == "win32":
            return rf"\\\\.\\pipe\\kernel-theatre-{name}"
        path = self.file(f"{name}.sock")
        if len(os.fsencode(path)) > MAX_SOCKET:
            path = Path(tempfile.mkdtemp(prefix="kernel-theatre-")) / "jobs.sock"
        return str(path)

    @contextlib.contextmanager
    def lock(self, name: str, wait: bool = True) -> Iterator[bool]:
        """Holds a lock among the processes of this machine. It ends with its process, however that ends. Yields whether it
        was free; without `wait` it may not be."""
        with self.file(name).open("ab") as file:
            held = _lock(file, wait)
            try:
                yield held
            finally:
                if held:
                    _unlock(file)


def _lock(file, wait: bool) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _unlock(file) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def machine() -> str:
    """Returns the machine's name, as a part of a file's name."""
    return "".join(c for c in socket.gethostname() if c.isalnum() or c in "-_")[:40] or "machine"


def here() -> Place:
    """Returns the place of the user's data folder, or one in a temporary folder if that cannot be written."""
    for path in (folder.folder(), Path(tempfile.gettempdir()) / f"kernel-theatre-{_user()}"):
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (
                hasattr(os, "getuid")
                and path.parent == Path(tempfile.gettempdir())
                and path.stat().st_uid != os.getuid()
            ):
                continue  # another user made it
            place = Place(path)
            place.key()
            return place
    raise OSError(f"neither {folder.folder()} nor {tempfile.gettempdir()} can be written")


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


@cache
def version() -> tuple[int, str]:
    """Returns the version of the code that runs execute: when a source was changed last, and a digest. The later of two
    versions is the larger one."""
    newest, digest = 0, hashlib.sha256(sys.version.encode())
    paths = sorted(path for pattern in SOURCES for path in (ROOT / "kernels").rglob(pattern))
    for path in paths:
        status = path.stat()
        newest = max(newest, status.st_mtime_ns)
        digest.update(f"{path.relative_to(ROOT)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return newest, digest.hexdigest()[:16]


def settings() -> dict[str, str]:
    """Returns the shared settings. A file and a sentence hold them: the database is named without its password."""
    values = {name: os.environ.get(name, "") for name in SHARED_SETTINGS}
    return values | {folder.STORE: folder.shown(folder.database())}
