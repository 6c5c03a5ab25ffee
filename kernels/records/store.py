"""The store: every measurement made here or imported, in one SQLite file, with its provenance.

Whatever happens to the file, the app continues. Each failure is a StoreError with a sentence for the page. Rows that
could not be written wait in memory. A damaged file is set aside, never deleted.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernels.records import folder, rows
from kernels.records.jsontext import RowError, canonical, id_of

HERE, RECORDED = "here", "recorded"  # origins that no import may use
APPLICATION = 0x4B544852  # "KTHR": SQLite's application_id of this app's files
MIGRATIONS = (
    """
    CREATE TABLE rows (
        id TEXT PRIMARY KEY, inserted TEXT NOT NULL, made TEXT NOT NULL, rung TEXT NOT NULL, shape TEXT NOT NULL,
        engine TEXT NOT NULL, device TEXT NOT NULL, mode TEXT NOT NULL, median_ms REAL NOT NULL,
        origin TEXT NOT NULL, row TEXT NOT NULL);
    CREATE INDEX by_made ON rows (made DESC, id);
    CREATE INDEX by_kind ON rows (rung, shape, engine, device, mode);
    CREATE INDEX by_origin ON rows (origin);
    """,
)
SCHEMA = len(MIGRATIONS)  # stored as PRAGMA user_version; each entry above migrates to the next version
MAX_PENDING = 1_000  # rows that wait in memory while the file cannot be written
MAX_ORIGIN = 80


class StoreError(RuntimeError):
    """Why the store could not read or write, as a sentence for the page."""


@dataclass(frozen=True)
class Filter:
    """A filter of rows: every field that is not empty must match."""

    rung: str = ""
    engine: str = ""
    device: str = ""
    mode: str = ""
    origin: str = ""
    shape: str = ""  # as rows.matches reads it
    ladder: str = ""  # the part of the rung's name before "/"
    exact_shape: str = ""  # canonical JSON

    def matches(self, row: Mapping[str, Any], origin: str) -> bool:
        exact = (self.rung, row["rung"]), (self.engine, row["engine"]), (self.device, row["device"])
        return (
            all(not wanted or wanted == value for wanted, value in (*exact, (self.mode, row["mode"])))
            and (not self.origin or self.origin == origin)
            and (not self.ladder or row["rung"].startswith(f"{self.ladder}/"))
            and (not self.exact_shape or self.exact_shape == canonical(row["shape"]))
            and (not self.shape or rows.matches(self.shape, row["rung"], canonical(row["shape"])))
        )


@dataclass(frozen=True)
class Entry:
    """A row with its id, its origin and when it was inserted."""

    id: str
    row: Mapping[str, Any]
    origin: str
    inserted: str = ""


class Store:
    """Safe to use from any thread: each call opens the file anew."""

    pragmas = ("PRAGMA synchronous = FULL",)

    def __init__(self, path: Path | str, patience_s: float = 2.0):
        self.path, self._patience_s = Path(path), patience_s
        self._lock = threading.RLock()
        self._pending: dict[str, Entry] = {}
        self._damage_messages: list[str] = []
        self._checked = False

    # -- writing ---------------------------------------------------------------------------------
    def add(self, new: Iterable[Mapping[str, Any]], origin: str = HERE) -> int:
        """Add rows and return how many are new. Either all are written or, with a StoreError, none."""
        return self._insert([_entry(row, origin) for row in new])

    def save(self, new: Iterable[Mapping[str, Any]]) -> str:
        """Add rows just measured and return "" or why they could not be written. Such rows wait in memory, are listed
        with the others, and are written by the next call that can write."""
        try:
            entries = [_entry(row, HERE) for row in new]
        except RowError as e:
            return f"The run cannot be stored: a row {e}."
        with self._lock:
            pending = [*self._pending.values(), *entries]
            try:
                self._insert(pending)
            except StoreError as e:
                self._pending = {entry.id: entry for entry in pending[-MAX_PENDING:]}
                return f"{e} The run is kept until the app stops."
            self._pending = {}
            return ""

    def import_(self, text: str, origin: str) -> tuple[int, int]:
        """Import an export and return (rows in it, rows that are new). rows.RowError says what is wrong with it; then
        nothing was imported."""
        new = rows.parse(text)
        return len(new), self.add(new, import_name(origin))

    def _insert(self, entries: Sequence[Entry]) -> int:
        values = [
            (e.id, e.inserted, rows.measured_at(e.row), e.row["rung"], canonical(e.row["shape"]), e.row["engine"],
             e.row["device"], e.row["mode"], e.row["median_ms"], e.origin, json.dumps(e.row, allow_nan=False))
            for e in entries
        ]  # fmt: skip
        with self._opened() as db, _transaction(db):
            before = db.total_changes
            db.executemany(f"INSERT OR IGNORE INTO rows VALUES ({', '.join('?' * 11)})", values)
            return db.total_changes - before

    # -- reading ---------------------------------------------------------------------------------
    def row(self, id_: str) -> Entry | None:
        if id_ in self._pending:
            return self._pending[id_]
        with self._opened(reading=True) as db:
            found = db.execute("SELECT id, row, origin, inserted FROM rows WHERE id = ?", (id_,)).fetchone()
        return _entry_from_row(found) if found else None

    def rows(self, query: Filter = Filter(), limit: int = -1, offset: int = 0) -> list[Entry]:
        """Returns the entries that match, newest first: at most `limit` (-1: all) after the first `offset`."""
        pending = [e for e in self._pending.values() if query.matches(e.row, e.origin)]
        where, values = _where(query)
        # Every row of the file before `start` comes before the requested ones.
        start = max(0, offset - len(pending))
        end = limit + offset - start if limit >= 0 else -1
        select = f"SELECT id, row, origin, inserted FROM rows {where} ORDER BY made DESC, id LIMIT ? OFFSET ?"
        with self._opened(reading=True) as db:
            found = [_entry_from_row(line) for line in db.execute(select, (*values, end, start))]
        both = newest_first([*pending, *found]) if pending else found
        return both[offset - start : end if end >= 0 else None]

    def count(self, query: Filter = Filter()) -> int:
        pending = sum(query.matches(e.row, e.origin) for e in self._pending.values())
        where, values = _where(query)
        with self._opened(reading=True) as db:
            return pending + db.execute(f"SELECT count(*) FROM rows {where}", values).fetchone()[0]

    def kinds(self) -> set[tuple[str, str, str, str, str]]:
        """Returns the values to filter by: each (rung, engine, device, mode, origin)."""
        with self._opened(reading=True) as db:
            found = db.execute("SELECT DISTINCT rung, engine, device, mode, origin FROM rows").fetchall()
        pending = ((*(e.row[n] for n in ("rung", "engine", "device", "mode")), e.origin) for e in self._pending.values())  # fmt: skip
        return {*map(tuple, found), *pending}

    def groups(self) -> dict[tuple[str, str], tuple[int, str]]:
        """Returns, for each (rung, shape as canonical JSON), the number of rows and when the newest was measured."""
        with self._opened(reading=True) as db:
            found = db.execute(
                "SELECT rung, shape, count(*), max(made) FROM rows GROUP BY rung, shape"
            ).fetchall()
        groups = {(rung, shape): (number, newest) for rung, shape, number, newest in found}
        for entry in self._pending.values():
            key = entry.row["rung"], canonical(entry.row["shape"])
            number, newest = groups.get(key, (0, ""))
            groups[key] = number + 1, max(newest, rows.measured_at(entry.row))
        return groups

    def export(self, ids: Iterable[str]) -> str:
        """Returns the rows with these ids as the text of a file that `import_` reads."""
        found = [entry.row for id_ in ids if (entry := self.row(id_))]
        return rows.to_json(found)

    def notes(self) -> list[str]:
        """Returns messages about damage to the file since the app started, with its new name."""
        return list(self._damage_messages)

    # -- the file --------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _opened(self, reading: bool = False) -> Iterator[sqlite3.Connection]:
        """Yields a connection for one call; its errors become a StoreError. A damaged file is set aside and the call
        fails: the next call finds a new file."""
        self._check_once()
        try:
            with contextlib.closing(self._connect(reading)) as db:
                yield db
        except (sqlite3.Error, OSError) as e:
            if _damaged(e):
                self._set_aside()
            raise StoreError(self._message(e)) from e

    def _check_once(self) -> None:
        """Check the file at the first call, and set it aside if it is damaged, before any query."""
        with self._lock:
            if self._checked:
                return
            self._checked = True
            if self.path.exists() and not self._is_intact():
                self._set_aside()

    def _connect(self, reading: bool) -> sqlite3.Connection:
        if not reading:
            return self._prepared()
        if not self.path.exists():  # nothing was ever stored
            return _migrated(sqlite3.connect(":memory:", isolation_level=None), 0)
        try:
            return self._prepared()
        except (sqlite3.OperationalError, OSError) as e:
            if _busy(e):
                raise
            return self._prepared("?mode=ro", "?immutable=1")

    def _prepared(self, *options: str) -> sqlite3.Connection:
        """Open the file with the schema of this version. `options`: URI options for reading, of which the first that
        works is used."""
        if not options:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        error: sqlite3.Error | None = None
        for option in options or ("?mode=rwc",):
            uri = self.path.absolute().as_uri() + option
            db = sqlite3.connect(uri, uri=True, timeout=self._patience_s, isolation_level=None)
            try:
                version = self._version(db)
                db.create_function("meant", 3, rows.matches, deterministic=True)
                if not options:
                    self._set_up(db, version)
                return db
            except sqlite3.OperationalError as e:
                db.close()
                error = e
            except BaseException:
                db.close()
                raise
        raise error

    def _set_up(self, db: sqlite3.Connection, version: int) -> None:
        if version < SCHEMA:
            with contextlib.suppress(sqlite3.OperationalError):  # another process writes: it sets the mode
                db.execute("PRAGMA journal_mode = WAL")
            with _transaction(db):
                _migrated(db, db.execute("PRAGMA user_version").fetchone()[0])
        for pragma in self.pragmas:
            db.execute(pragma)

    def _version(self, db: sqlite3.Connection) -> int:
        """Returns the file's schema. StoreError if this version must not use the file."""
        db.execute("BEGIN")  # a consistent read: another process may be creating the file
        version = db.execute("PRAGMA user_version").fetchone()[0]
        stamp = db.execute("PRAGMA application_id").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        db.execute("COMMIT")
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer version of this app (its schema is {version}, this one knows {SCHEMA}); "
                "it was left as it is."
            )
        if stamp != APPLICATION and tables:
            raise StoreError(f"{self.path} is a database of another program; it was left as it is.")
        return version

    def _message(self, e: Exception) -> str:
        """Returns the message of an error, by SQLite's name of it: lock, full disk, read-only file, damage, others."""
        text, name = str(e), getattr(e, "sqlite_errorname", "")
        if _busy(e):
            message = f"The store {self.path} is locked by another process; try again in a moment."
        elif name.startswith("SQLITE_FULL"):
            message = f"The disk of {self.path} is full; what was stored before is safe."
        elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            message = f"The store {self.path} cannot be written: {text}."
        elif _damaged(e):
            message = (
                self._damage_messages[-1] if self._damage_messages else f"The store {self.path} is damaged."
            )
        else:
            message = f"The store {self.path} cannot be used: {text}."
        return message

    # -- damage ----------------------------------------------------------------------------------
    def _is_intact(self) -> bool:
        try:
            uri = self.path.absolute().as_uri() + "?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=self._patience_s)) as db:
                return db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        except sqlite3.Error as e:
            return not _damaged(e)

    def _aside_path(self) -> Path:
        """Returns a free path for the damaged file."""
        stamp = _now().replace(":", "").replace("-", "")
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
                saved = self._insert(_readable_entries(aside))
            except (OSError, StoreError) as e:
                self._damage_messages.append(
                    f"The store {self.path} is damaged and could not be set aside: {e}"
                )
                return
            self._damage_messages.append(
                f"The store was damaged. It was set aside as {aside.name}, a new one was begun, and {saved:,} rows were saved into it."
            )


@lru_cache(maxsize=8)
def _store(path: Path) -> Store:
    return Store(path)


def user_store() -> Store:
    """Returns the store of this user, one per process. StoreError if the user has no home folder."""
    try:
        return _store(folder.file())
    except RuntimeError as e:  # a user without a home
        raise StoreError(
            f"There is no place to keep measurements: {e}. Set {folder.VARIABLE} to a folder."
        ) from None


def newest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(sorted(entries, key=lambda e: e.id), key=lambda e: rows.measured_at(e.row), reverse=True)


def import_name(origin: str) -> str:
    """Returns a name for an import: short, on one line, different from the app's own origins."""
    line = "".join(c if c.isprintable() else " " for c in origin).strip()[:MAX_ORIGIN]
    line = line.encode("utf-8", "replace").decode()
    return line if line and line not in (HERE, RECORDED) else f"import {line}".strip()


def _entry(row: Mapping[str, Any], origin: str) -> Entry:
    rows.check(row)
    return Entry(id_of(row), row, origin, _now())


def _entry_from_row(line: Sequence[str]) -> Entry:
    id_, text, origin, inserted = line
    return Entry(id_, json.loads(text), origin, inserted)


def _where(query: Filter) -> tuple[str, list[str]]:
    special = {
        "meant(?, rung, shape)": query.shape,
        "instr(rung, ?) = 1": f"{query.ladder}/" if query.ladder else "",
        "shape = ?": query.exact_shape,
    }
    exact = {f"{n} = ?": v for n, v in vars(replace(query, shape="", ladder="", exact_shape="")).items() if v}
    terms = exact | {term: value for term, value in special.items() if value}
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), list(terms.values())


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise


def _migrated(db: sqlite3.Connection, version: int) -> sqlite3.Connection:
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        for statement in filter(str.strip, script.split(";")):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {number}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.create_function("meant", 3, rows.matches, deterministic=True)
    return db


def _busy(e: Exception) -> bool:
    return getattr(e, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _damaged(e: Exception) -> bool:
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
                        entry = _entry_from_row(line)
                        rows.check(entry.row)
                        if id_of(entry.row) == entry.id and isinstance(entry.origin, str):
                            found[entry.id] = entry
    return list(found.values())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
