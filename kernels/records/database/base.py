"""A database of rows: its queries, the same for each kind. A subclass opens it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, desc, func, select

from kernels.records.database import StoreError, schema
from kernels.records.database.tables import ENTRY, ROWS, c, entry, storable, terms, values
from kernels.records.entry import Entry, Filter


class Database(ABC):
    """Safe to use from any thread. Each failure is a StoreError."""

    name: str  # of the database, in sentences
    _insert: Callable[..., Any]  # the dialect's

    # -- queries ---------------------------------------------------------------------------------
    def insert(self, entries: Sequence[Entry]) -> int:
        """Inserts the entries whose ids are new and returns how many were. Either all are written or, with a StoreError,
        none."""
        # In the order of their ids: two apps that insert the same rows wait for each other in one direction.
        new = [values(e) for e in sorted(entries, key=lambda e: e.id)]
        with self.opened() as db:
            statement = self._insert(ROWS).on_conflict_do_nothing().returning(c.id)
            return len(db.execute(statement, new).all()) if new else 0

    def find(self, id_: str) -> Entry | None:
        """Returns the entry with this id, None if there is none."""
        with self.opened(reading=True) as db:
            found = db.execute(ENTRY.where(c.id == id_)).one_or_none() if storable(id_) else None
        return entry(found) if found else None

    def page(self, query: Filter, limit: int | None, offset: int) -> list[Entry]:
        """Returns the entries that match, newest first: at most `limit` (None: all) after the first `offset`."""
        with self.opened(reading=True) as db:
            matching = ENTRY.where(*terms(db, query)).order_by(desc(c.made), c.id)
            return [entry(line) for line in db.execute(matching.limit(limit).offset(offset))]

    def count(self, query: Filter) -> int:
        with self.opened(reading=True) as db:
            return db.execute(select(func.count()).select_from(ROWS).where(*terms(db, query))).scalar_one()

    def kinds(self) -> set[tuple[str, ...]]:
        """Returns each (rung, engine, device, mode, origin)."""
        with self.opened(reading=True) as db:
            found = db.execute(select(c.rung, c.engine, c.device, c.mode, c.origin).distinct())
            return {tuple(line) for line in found}

    def groups(self) -> dict[tuple[str, str], tuple[int, str]]:
        """Returns, for each (rung, shape), the number of rows and when the newest was measured."""
        grouped = select(c.rung, c.shape, func.count(), func.max(c.made)).group_by(c.rung, c.shape)
        with self.opened(reading=True) as db:
            return {(rung, shape): (number, newest) for rung, shape, number, newest in db.execute(grouped)}

    def notes(self) -> list[str]:
        """Returns messages about damage since the app started."""
        return []

    # -- opening ---------------------------------------------------------------------------------
    @abstractmethod
    def opened(self, reading: bool = False) -> AbstractContextManager[Connection]:
        """Opens a transaction for one call; its errors become a StoreError."""

    @abstractmethod
    def _begin(self, reading: bool) -> AbstractContextManager[Connection]:
        """Returns a context that yields a connection with an open transaction."""

    @abstractmethod
    def _check(self, db: Connection, version: int) -> None:
        """StoreError if the database is of another program, or cannot be used."""

    @contextlib.contextmanager
    def _current(self, reading: bool) -> Iterator[Connection]:
        """Yields a connection to a database with the schema of this version. Reading writes nothing, except that an older
        schema is migrated: where nothing was ever stored, it reads an empty database."""
        with self._begin(reading) as db:
            version = self._version(db)
            if version == schema.SCHEMA or not reading:
                if version < schema.SCHEMA:
                    schema.migrate(db)
                yield db
                return
        if version:
            with self._begin(reading=False) as db:
                schema.migrate(db)
        with self._begin(reading) if version else schema.empty().connect() as db:
            yield db

    def _version(self, db: Connection) -> int:
        """Returns the version of the schema. StoreError if this app must not use the database."""
        version = schema.stored_version(db)
        self._check(db, version)
        if version > schema.SCHEMA:
            raise StoreError(
                f"{self.name} was written by a newer version of this app (its schema is {version}, this one knows "
                f"{schema.SCHEMA}); it was left as it is."
            )
        return version
