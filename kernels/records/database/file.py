"""The store in one SQLite file. A damaged file is set aside, never deleted."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from kernels.records import rows
from kernels.records.database import StoreError
from kernels.records.database.base import Database
from kernels.records.database.schema import APPLICATION
from kernels.records.database.tables import entry
from kernels.records.entry import Entry
from kernels.records.jsontext import id_of


class File(Database):
    """One SQLite file. Each call opens it anew: any thread and several processes may use it."""

    _insert = staticmethod(sqlite.insert)
    pragmas = ("PRAGMA synchronous = FULL",)

    def __init__(self, path: Path, patience_s: float):
        self.path, self.name, self._patience_s = path, str(path), patience_s
        self._lock = threading.RLock()
        self._damage_messages: list[str] = []
        self._checked = False
        self._engines = {reading: _engine(partial(self._connect, reading), reading) for reading in (True, False)}

    def notes(self) -> list[str]:
        """Returns messages about damage to the file since the app started, with its new name."""
        return list(self._damage_messages)

    # -- opening ---------------------------------------------------------------------------------
    @contextlib.contextmanager
    def opened(self, reading: bool = False) -> Iterator[Connection]:
        """Yields a connection for one call. A damaged file is set aside and the call fails: the next call finds a new
        file."""
        self._check_once()
        try:
            with self._current(reading) as db:
                yield db
        except (DBAPIError, OSError) as e:
            cause = e.orig if isinstance(e, DBAPIError) else e
            if _damaged(cause):
                self._set_aside()
            raise StoreError(self._message(cause)) from e

    def _begin(self, reading: bool) -> AbstractContextManager[Connection]:
        return self._engines[reading].begin()

    def _connect(self, reading: bool) -> sqlite3.Connection:
        """Opens the file. A file that cannot be written is opened for reading by the first option that works."""
        exists = self.path.exists()
        if reading and not exists:
            return sqlite3.connect(":memory:", isolation_level=None)
        if not exists:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        options = ("mode=rwc", "mode=ro", "immutable=1") if reading else ("mode=rwc",)
        for option in options:
            uri = f"{self.path.absolute().as_uri()}?{option}"
            db = sqlite3.connect(uri, uri=True, timeout=self._patience_s, isolation_level=None)
            try:
                is_new = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                if not reading:
                    self._configure(db, is_new)
                return db
            except BaseException as e:
                db.close()
                if not isinstance(e, sqlite3.OperationalError) or _busy(e) or option == options[-1]:
                    raise
        raise AssertionError

    def _configure(self, db: sqlite3.Connection, is_new: bool) -> None:
        if is_new:
            with contextlib.suppress(sqlite3.OperationalError):  # another process writes: it sets the mode
                db.execute("PRAGMA journal_mode = WAL")
        for pragma in self.pragmas:
            db.execute(pragma)

    def _check(self, db: Connection, version: int) -> None:
        stamp = db.exec_driver_sql("PRAGMA application_id").scalar_one()
        if stamp != APPLICATION and db.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
            raise StoreError(f"{self.path} is a database of another program; it was left as it is.")

    def _message(self, e: BaseException | None) -> str:
        """Returns the message of an error, by SQLite's name of it: lock, full disk, read-only file, damage, others."""
        text, name = str(e), getattr(e, "sqlite_errorname", "")
        if _busy(e):
            message = f"The store {self.path} is locked by another process; try again in a moment."
        elif name.startswith("SQLITE_FULL"):
            message = f"The disk of {self.path} is full; what was stored before is safe."
        elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            message = f"The store {self.path} cannot be written: {text}."
        elif _damaged(e):
            message = self._damage_messages[-1] if self._damage_messages else f"The store {self.path} is damaged."
        else:
            message = f"The store {self.path} cannot be used: {text}."
        return message

    # -- damage ----------------------------------------------------------------------------------
    def _check_once(self) -> None:
        """Check the file at the first call, and set it aside if it is damaged, before any query."""
        with self._lock:
            if self._checked:
                return
            self._checked = True
            if self.path.exists() and not self._is_intact():
                self._set_aside()

    def _is_intact(self) -> bool:
        try:
            uri = self.path.absolute().as_uri() + "?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=self._patience_s)) as db:
                return db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        except sqlite3.Error as e:
            return not _damaged(e)

    def _aside_path(self) -> Path:
        """Returns a free path for the damaged file."""
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        for number in itertools.count():
            more = f"-{number}" if number else ""
            path = self.path.with_name(f"{self.path.stem}.damaged-{stamp}{more}{self.path.suffix}")
            if not path.exists():
                return path
        raise AssertionError

    def _set_aside(self) -> None:
        """Rename the damaged file by the date and create a new one. Each row that can still be read and that matches
        its id, a digest, is saved into it."""
        with self._lock:
            if not self.path.exists() or self._is_intact():
                return  # another thread or process has done it
            aside = self._aside_path()
            try:
                for suffix in ("", "-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
                saved = self.insert(_readable_entries(aside))
            except (OSError, StoreError) as e:
                self._damage_messages.append(f"The store {self.path} is damaged and could not be set aside: {e}")
                return
            self._damage_messages.append(
                f"The store was damaged. It was set aside as {aside.name}, a new one was begun, and {saved:,} rows were saved into it."
            )


def _engine(connect: partial[sqlite3.Connection], reading: bool) -> Engine:
    """Returns an engine without a pool whose transactions begin as SQLite's do: to write, one waits for the others."""
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    begin = "BEGIN" if reading else "BEGIN IMMEDIATE"
    event.listen(engine, "begin", lambda db: db.exec_driver_sql(begin))
    return engine


def _busy(e: BaseException | None) -> bool:
    return getattr(e, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _damaged(e: BaseException | None) -> bool:
    return getattr(e, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _readable_entries(path: Path) -> list[Entry]:
    """Returns the intact rows of a damaged file, read from the first row to the damage and from the last row back to
    it."""
    found: dict[str, Entry] = {}
    for order in ("", "DESC"):
        with contextlib.suppress(sqlite3.Error):
            uri = path.absolute().as_uri() + "?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
                db.text_factory = lambda raw: raw.decode("utf-8", "replace")
                for line in db.execute(
                    f"SELECT id, row, origin, inserted FROM rows NOT INDEXED ORDER BY rowid {order}"
                ):
                    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                        read = entry(line)
                        rows.check(read.row)
                        if id_of(read.row) == read.id and isinstance(read.origin, str):
                            found[read.id] = read
    return list(found.values())
