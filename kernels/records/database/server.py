"""The store in a PostgreSQL database, which several machines share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from sqlalchemy import Connection, Engine, create_engine, inspect, make_url
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from kernels.records import folder
from kernels.records.database import StoreError
from kernels.records.database.base import Database
from kernels.records.database.tables import ROWS

DRIVER = "postgresql+psycopg"
SCHEMES = ("postgresql", DRIVER)
CONNECT_S = 3  # for a connection
ANSWER_S = 10  # for a statement; also for a network that is silent
CONNECTIONS = 4  # of one process
FULL, READ_ONLY = "53100", "25006"  # SQLSTATE
BUSY = ("55P03", "57014", "40P01")  # a lock or an answer that took too long, a deadlock


class Server(Database):
    """A database of a PostgreSQL server. Connections are kept, and one that was lost is opened again by the next call."""

    _insert = staticmethod(postgresql.insert)

    def __init__(self, url: str, patience_s: float):
        self.name = f"The database {folder.shown(url)}"
        self._url, self._patience_s = url, patience_s
        self._made: Engine | None = None
        self._making = threading.Lock()

    @contextlib.contextmanager
    def opened(self, reading: bool = False) -> Iterator[Connection]:
        try:
            with self._current(reading) as db:
                yield db
        except SQLAlchemyError as e:
            raise StoreError(self._message(e)) from e

    def _begin(self, reading: bool) -> AbstractContextManager[Connection]:
        return self._engine().begin()

    def _engine(self) -> Engine:
        """Returns the engine. StoreError if the URL or the installation does not allow one."""
        with self._making:
            if self._made is None:
                self._made = _engine(self._url, self._patience_s)
            return self._made

    def _check(self, db: Connection, version: int) -> None:
        if version:
            return
        if inspect(db).has_table(ROWS.name):
            raise StoreError(f"{self.name} has a table {ROWS.name} of another program; it was left as it is.")
        if (encoding := db.exec_driver_sql("SHOW server_encoding").scalar_one()) != "UTF8":
            raise StoreError(f"{self.name} has the encoding {encoding}; create one with the encoding UTF8.")

    def _message(self, e: SQLAlchemyError) -> str:
        """Returns the message of an error, by PostgreSQL's code of it: no connection, lock, full disk, others."""
        cause = getattr(e, "orig", None) or e
        code = getattr(cause, "sqlstate", None) or ""
        reason = _reason(str(cause))
        if isinstance(e, PoolTimeoutError) or code in BUSY:
            message = f"{self.name} is busy; try again in a moment."
        elif code == FULL:
            message = f"The disk of the database {folder.shown(self._url)} is full; what was stored before is safe."
        elif code == READ_ONLY:
            message = f"{self.name} cannot be written: {reason}."
        elif isinstance(e, OperationalError):
            message = f"{self.name} cannot be reached: {reason}."
        else:
            message = f"{self.name} cannot be used: {reason}."
        return message


def _engine(text: str, patience_s: float) -> Engine:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in SCHEMES:
        raise StoreError(f"{folder.STORE} must be {DRIVER}://USER:PASSWORD@HOST/DATABASE.")
    limits = {
        "connect_timeout": str(CONNECT_S),
        "tcp_user_timeout": str(1000 * ANSWER_S),
        "options": f"-c statement_timeout={max(ANSWER_S, patience_s):g}s -c lock_timeout={patience_s:g}s",
        "client_encoding": "UTF8",
        "fallback_application_name": folder.NAME,
    }
    try:
        return create_engine(
            url.set(drivername=DRIVER, query={**limits, **url.query}),
            pool_pre_ping=True,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=patience_s,
        )
    except ImportError as e:
        raise StoreError(
            f"{folder.STORE} names a PostgreSQL database, which needs psycopg: pip install -r requirements-pool.txt ({e})"
        ) from e


def _reason(text: str) -> str:
    """Returns the part of a driver's message that names the cause, of the last host if there are several."""
    return text.rpartition(" failed: ")[2].partition("\n")[0].removeprefix("FATAL:").strip(" .")
