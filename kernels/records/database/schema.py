"""The versions of the schema. Each is a revision of Alembic, named by its number: migrations/versions/revision_N.py.

A new version: write the next file, raise SCHEMA, change tables.py. A test compares the three.
"""

from __future__ import annotations

import threading

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, func

from kernels.records.database import MISSING, StoreError
from kernels.records.database.tables import METADATA

SCHEMA = 1
SCRIPTS = "kernels.records.database:migrations"
# "KTHR": SQLite's application_id of this app's files, and the number of the lock of migrations on a server.
APPLICATION = 0x4B544852
VERSIONS = sa.table("kernel_theatre_schema", sa.column("version_num"))  # Alembic writes it
_migrating = threading.Lock()  # Alembic's context belongs to the process


def stored_version(db: Connection) -> int:
    """Returns the version of the schema in a database, 0 for none."""
    if db.dialect.name == "sqlite":  # files of version 1 have no table of versions
        return db.exec_driver_sql("PRAGMA user_version").scalar_one()
    if db.execute(sa.select(func.to_regclass(VERSIONS.name))).scalar() is None:
        return 0
    return int(db.execute(sa.select(VERSIONS.c.version_num)).scalar() or 0)


def migrate(db: Connection) -> None:
    """Brings a database to SCHEMA within the transaction of `db`, once: another app may have done so since it began."""
    try:
        from alembic import command
        from alembic.config import Config
    except ImportError as e:
        raise StoreError(MISSING.format(name=e.name)) from e
    if db.dialect.name == "postgresql":  # SQLite's transactions that write exclude each other
        db.execute(sa.select(func.pg_advisory_xact_lock(APPLICATION)))
    if (version := stored_version(db)) >= SCHEMA:
        return
    config = Config(attributes={"connection": db, "version_table": VERSIONS.name})
    config.set_main_option("script_location", SCRIPTS)
    with _migrating:
        if version and not sa.inspect(db).has_table(VERSIONS.name):
            command.stamp(config, str(version))
        command.upgrade(config, str(SCHEMA))
    if db.dialect.name == "sqlite":
        db.exec_driver_sql(f"PRAGMA user_version = {SCHEMA}")
        db.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")


def empty() -> Engine:
    """Returns a database without rows, for reading where nothing was ever stored."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    METADATA.create_all(engine)
    return engine
