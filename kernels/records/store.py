"""The store: every measurement made here or taken from a colleague, in one SQLite file, with all it explains.

Whatever happens to the file, the app goes on: each failure is a StoreError in words, rows that could not be
written wait in memory, and a damaged file is set aside, never deleted.
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

HERE, RECORDED = "here", "recorded"  # origins that no import may claim
APPLICATION = 0x4B544852  # "KTHR": a file of ours
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
SCHEMA = len(MIGRATIONS)  # kept as PRAGMA user_version; each entry above leads from one to the next
MOST_HELD = 1_000  # rows that wait in memory where the file cannot be written
MOST_ORIGIN = 80


class StoreError(RuntimeError):
    """Why the store could not answer or keep, in words a reader can use."""


@dataclass(frozen=True)
class Filter:
    """Which rows are meant: those that agree with every field that is not empty."""

    rung: str = ""
    engine: str = ""
    device: str = ""
    mode: str = ""
    origin: str = ""
    shape: str = ""  # as rows.matches reads it

    def takes(self, row: Mapping[str, Any], origin: str) -> bool:
        exact = (self.rung, row["rung"]), (self.engine, row["engine"]), (self.device, row["device"])
        return (
            all(not asked or asked == got for asked, got in (*exact, (self.mode, row["mode"])))
            and (not self.origin or self.origin == origin)
            and (not self.shape or rows.matches(self.shape, row["rung"], canonical(row["shape"])))
        )


@dataclass(frozen=True)
class Entry:
    """A row and what the store knows beside it."""

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
        self._held: dict[str, Entry] = {}
        self._asides: list[str] = []
        self._looked = False

    # -- writing ---------------------------------------------------------------------------------
    def add(self, new: Iterable[Mapping[str, Any]], origin: str = HERE) -> int:
        """Keep rows; how many of them were not there before. All or none: StoreError says why none."""
        return self._insert([_entry(row, origin) for row in new])

    def keep(self, new: Iterable[Mapping[str, Any]]) -> str:
        """`add` for rows just measured, which are never lost: those that cannot be written wait in memory, are
        listed with the others, and go in with the next that can. "" or why they wait."""
        try:
            entries = [_entry(row, HERE) for row in new]
        except RowError as e:
            return f"The run cannot be stored: a row {e}."
        with self._lock:
            held = [*self._held.values(), *entries]
            try:
                self._insert(held)
            except StoreError as e:
                self._held = {entry.id: entry for entry in held[-MOST_HELD:]}
                return f"{e} The run is kept until the app stops."
            self._held = {}
            return ""

    def import_(self, text: str, origin: str) -> tuple[int, int]:
        """(rows in the file, rows that were new) of an export. rows.RowError says what is wrong with it, and then
        nothing was taken."""
        new = rows.parse(text)
        return len(new), self.add(new, name_of(origin))

    def _insert(self, entries: Sequence[Entry]) -> int:
        values = [
            (e.id, e.inserted, rows.made(e.row), e.row["rung"], canonical(e.row["shape"]), e.row["engine"],
             e.row["device"], e.row["mode"], e.row["median_ms"], e.origin, json.dumps(e.row, allow_nan=False))
            for e in entries
        ]  # fmt: skip
        with self._opened() as db, _transaction(db):
            before = db.total_changes
            db.executemany(f"INSERT OR IGNORE INTO rows VALUES ({', '.join('?' * 11)})", values)
            return db.total_changes - before

    # -- reading ---------------------------------------------------------------------------------
    def row(self, id_: str) -> Entry | None:
        if id_ in self._held:
            return self._held[id_]
        with self._opened(reading=True) as db:
            found = db.execute("SELECT id, row, origin, inserted FROM rows WHERE id = ?", (id_,)).fetchone()
        return _read(found) if found else None

    def rows(self, asked: Filter = Filter(), most: int = -1, skip: int = 0) -> list[Entry]:
        """Entries that `asked` means, newest first."""
        held = [e for e in self._held.values() if asked.takes(e.row, e.origin)]
        where, values = _where(asked)
        begin = max(0, skip - len(held))  # every row before this one stands before the rows asked for
        upto = most + skip - begin if most >= 0 else -1
        query = f"SELECT id, row, origin, inserted FROM rows {where} ORDER BY made DESC, id LIMIT ? OFFSET ?"
        with self._opened(reading=True) as db:
            found = [_read(line) for line in db.execute(query, (*values, upto, begin))]
        both = newest_first([*held, *found]) if held else found
        return both[skip - begin : upto if upto >= 0 else None]

    def count(self, asked: Filter = Filter()) -> int:
        held = sum(asked.takes(e.row, e.origin) for e in self._held.values())
        where, values = _where(asked)
        with self._opened(reading=True) as db:
            return held + db.execute(f"SELECT count(*) FROM rows {where}", values).fetchone()[0]

    def kinds(self) -> set[tuple[str, str, str, str, str]]:
        """What there is to filter by: each (rung, engine, device, mode, origin)."""
        with self._opened(reading=True) as db:
            found = db.execute("SELECT DISTINCT rung, engine, device, mode, origin FROM rows").fetchall()
        held = ((*(e.row[n] for n in ("rung", "engine", "device", "mode")), e.origin) for e in self._held.values())  # fmt: skip
        return {*map(tuple, found), *held}

    def export(self, ids: Iterable[str]) -> str:
        """The rows of these ids as a file that `import_` takes."""
        found = [entry.row for id_ in ids if (entry := self.row(id_))]
        return rows.exported(found)

    def notes(self) -> list[str]:
        """What befell the file since the app began, in words: each time it was damaged, and where it is now."""
        return list(self._asides)

    # -- the file --------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _opened(self, reading: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection for one call; what goes wrong with it is told as a StoreError. A file found damaged is set
        aside, and the call fails: the next one finds a new file."""
        self._look()
        try:
            with contextlib.closing(self._connect(reading)) as db:
                yield db
        except (sqlite3.Error, OSError) as e:
            if _damaged(e):
                self._set_aside()
            raise StoreError(self._why(e)) from e

    def _look(self) -> None:
        """Once: is the file whole? It is set aside here, before anybody waits for an answer."""
        with self._lock:
            if self._looked:
                return
            self._looked = True
            if self.path.exists() and not self._whole():
                self._set_aside()

    def _connect(self, reading: bool) -> sqlite3.Connection:
        if not reading:
            return self._prepared()
        if not self.path.exists():  # nothing was ever kept
            return _migrated(sqlite3.connect(":memory:", isolation_level=None), 0)
        try:
            return self._prepared()
        except (sqlite3.OperationalError, OSError) as e:
            if _busy(e):
                raise
            return self._prepared("?mode=ro", "?immutable=1")

    def _prepared(self, *options: str) -> sqlite3.Connection:
        """The file with the schema of this version; with options read only, and the first of them that works."""
        if not options:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        failed: sqlite3.Error | None = None
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
                failed = e
            except BaseException:
                db.close()
                raise
        raise failed

    def _set_up(self, db: sqlite3.Connection, version: int) -> None:
        if version < SCHEMA:
            with contextlib.suppress(
                sqlite3.OperationalError
            ):  # another process is at it: it stays as that left it
                db.execute("PRAGMA journal_mode = WAL")
            with _transaction(db):
                _migrated(db, db.execute("PRAGMA user_version").fetchone()[0])
        for pragma in self.pragmas:
            db.execute(pragma)

    def _version(self, db: sqlite3.Connection) -> int:
        """The file's schema. StoreError where the file is not for this version to touch."""
        db.execute("BEGIN")  # one moment of the file: another process may be making it
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

    def _why(self, e: Exception) -> str:
        """An error as words. SQLite's names: lock, full disk, read-only place, damage, others."""
        said, name = str(e), getattr(e, "sqlite_errorname", "")
        if _busy(e):
            told = f"The store {self.path} is locked by another process; try again in a moment."
        elif name.startswith("SQLITE_FULL"):
            told = f"The disk of {self.path} is full; what was stored before is safe."
        elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            told = f"The store {self.path} cannot be written: {said}."
        elif _damaged(e):
            told = self._asides[-1] if self._asides else f"The store {self.path} is damaged."
        else:
            told = f"The store {self.path} cannot be used: {said}."
        return told

    # -- damage ----------------------------------------------------------------------------------
    def _whole(self) -> bool:
        try:
            uri = self.path.absolute().as_uri() + "?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=self._patience_s)) as db:
                return db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        except sqlite3.Error as e:
            return not _damaged(e)

    def _aside(self) -> Path:
        """A name that is free."""
        stamp = _now().replace(":", "").replace("-", "")
        for number in itertools.count():
            more = f"-{number}" if number else ""
            path = self.path.with_name(f"{self.path.stem}.damaged-{stamp}{more}{self.path.suffix}")
            if not path.exists():
                return path
        raise AssertionError

    def _set_aside(self) -> None:
        """Rename the damaged file by the date, begin a new one, and save into it each row that can still be read
        and is what its name, a digest, says."""
        with self._lock:
            if not self.path.exists() or self._whole():
                return  # another thread or process has done it
            aside = self._aside()
            try:
                for end in ("", "-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        Path(f"{self.path}{end}").rename(f"{aside}{end}")
                saved = self._insert(_readable(aside))
            except (OSError, StoreError) as e:
                self._asides.append(f"The store {self.path} is damaged and could not be set aside: {e}")
                return
            self._asides.append(
                f"The store was damaged. It was set aside as {aside.name}, a new one was begun, and {saved:,} rows were saved into it."
            )


@lru_cache(maxsize=8)
def _store(path: Path) -> Store:
    return Store(path)


def mine() -> Store:
    """The store of this user, one a process."""
    try:
        return _store(folder.file())
    except RuntimeError as e:  # a user without a home
        raise StoreError(
            f"There is no place to keep measurements: {e}. Set {folder.VARIABLE} to a folder."
        ) from None


def newest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(sorted(entries, key=lambda e: e.id), key=lambda e: rows.made(e.row), reverse=True)


def name_of(origin: str) -> str:
    """A name for an import that is short, of one line, and none of our own."""
    line = "".join(c if c.isprintable() else " " for c in origin).strip()[:MOST_ORIGIN]
    line = line.encode("utf-8", "replace").decode()
    return line if line and line not in (HERE, RECORDED) else f"import {line}".strip()


def _entry(row: Mapping[str, Any], origin: str) -> Entry:
    rows.check(row)
    return Entry(id_of(row), row, origin, _now())


def _read(line: Sequence[str]) -> Entry:
    id_, text, origin, inserted = line
    return Entry(id_, json.loads(text), origin, inserted)


def _where(asked: Filter) -> tuple[str, list[str]]:
    exact = {n: v for n, v in vars(replace(asked, shape="")).items() if v}
    terms = [f"{name} = ?" for name in exact] + ["meant(?, rung, shape)"] * bool(asked.shape)
    values = [*exact.values(), *([asked.shape] if asked.shape else [])]
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), values


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


def _readable(path: Path) -> list[Entry]:
    """The rows of a damaged file that are still what they were: from the first to the damage, and from the last."""
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
                        entry = _read(line)
                        rows.check(entry.row)
                        if id_of(entry.row) == entry.id and isinstance(entry.origin, str):
                            found[entry.id] = entry
    return list(found.values())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
