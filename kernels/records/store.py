"""The store: every measurement made here or imported, with its provenance: in one SQLite file, or in a PostgreSQL database
that several machines share (kernels.records.database).

Whatever happens to the database, the app continues. Each failure is a StoreError with a sentence for the page. Rows that
could not be written wait in memory.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.model.row import Row
from kernels.records import folder, rows
from kernels.records.database import MISSING, StoreError
from kernels.records.entry import EVERYTHING, HERE, RECORDED, Entry, Filter, import_name, newest_first
from kernels.records.jsontext import RowError, canonical, id_of

if TYPE_CHECKING:
    from kernels.records.database.base import Database

__all__ = ["HERE", "RECORDED", "Entry", "Filter", "Store", "StoreError", "newest_first", "user_store"]
MAX_PENDING = 1_000  # rows that wait in memory while the database cannot be written


class Store:
    """Safe to use from any thread. place: the path of a file, or the URL of a PostgreSQL database."""

    def __init__(self, place: Path | str, patience_s: float = 2.0):
        self._place, self._patience_s = place, patience_s
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._database: Database | None = None
        self._pending: dict[str, Entry] = {}

    @property
    def database(self) -> Database:
        """Returns the database. StoreError if this installation lacks what it needs."""
        with self._opening:
            if self._database is None:
                self._database = _database(self._place, self._patience_s)
            return self._database

    # -- writing ---------------------------------------------------------------------------------
    def add(self, new: Iterable[Row], origin: str = HERE) -> int:
        """Add rows and return how many are new. Either all are written or, with a StoreError, none."""
        return self.database.insert([_entry(row, origin) for row in new])

    def save(self, new: Iterable[Row]) -> str:
        """Add rows just measured and return "" or why they could not be written. Such rows wait in memory, are listed
        with the others, and are written by the next call that can write."""
        try:
            entries = [_entry(row, HERE) for row in new]
        except RowError as e:
            return f"The run cannot be stored: a row {e}."
        with self._lock:
            pending = [*self._pending.values(), *entries]
            try:
                self.database.insert(pending)
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

    # -- reading ---------------------------------------------------------------------------------
    def row(self, id_: str) -> Entry | None:
        return self._pending.get(id_) or self.database.find(id_)

    def rows(self, query: Filter = EVERYTHING, limit: int = -1, offset: int = 0) -> list[Entry]:
        """Returns the entries that match, newest first: at most `limit` (-1: all) after the first `offset`."""
        pending = [e for e in self._pending.values() if query.matches(e.row, e.origin)]
        # Every row of the database before `start` comes before the requested ones.
        start = max(0, offset - len(pending))
        end = limit + offset - start if limit >= 0 else None
        found = self.database.page(query, end, start)
        both = newest_first([*pending, *found]) if pending else found
        return both[offset - start : end]

    def count(self, query: Filter = EVERYTHING) -> int:
        pending = sum(query.matches(e.row, e.origin) for e in self._pending.values())
        return pending + self.database.count(query)

    def kinds(self) -> set[tuple[str, ...]]:
        """Returns the values to filter by: each (rung, engine, device, mode, origin)."""
        pending = (
            (*(e.row[n] for n in ("rung", "engine", "device", "mode")), e.origin) for e in self._pending.values()
        )
        return {*self.database.kinds(), *pending}

    def groups(self) -> dict[tuple[str, str], tuple[int, str]]:
        """Returns, for each (rung, shape as canonical JSON), the number of rows and when the newest was measured."""
        groups = self.database.groups()
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
        """Returns messages about damage since the app started."""
        return self.database.notes()


def _database(place: Path | str, patience_s: float) -> Database:
    try:
        if isinstance(place, str):
            from kernels.records.database.server import Server

            return Server(place, patience_s)
        from kernels.records.database.file import File

        return File(place, patience_s)
    except ImportError as e:
        raise StoreError(MISSING.format(name=e.name)) from e


@lru_cache(maxsize=8)
def _store(place: Path | str) -> Store:
    return Store(place)


def user_store() -> Store:
    """Returns the store of this user, one per process. StoreError if the user has no home folder."""
    try:
        return _store(folder.database() or folder.file())
    except RuntimeError as e:  # a user without a home
        raise StoreError(f"There is no place to keep measurements: {e}. Set {folder.VARIABLE} to a folder.") from None


def _entry(row: Row, origin: str) -> Entry:
    rows.check(row)
    return Entry(id_of(row), row, origin, datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
