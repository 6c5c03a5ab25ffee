"""Versions of the schema: an older database is migrated, once and without loss; a newer one is left as it is."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kernels.records.database import schema
from kernels.records.database.tables import METADATA
from kernels.records.jsontext import id_of
from kernels.records.store import HERE, Store, StoreError
from tests.helpers.rows_of import a_row

ROOT = Path(__file__).parents[3]
FILE_OF_VERSION_1 = ROOT / "tests" / "fixtures" / "measurements-1.sqlite"  # written by the app before Alembic
IN_IT = {
    id_of(row): (row, origin)
    for row, origin in (
        (a_row(1, samples=[1.0, 1.1, 1.2]), HERE),
        (a_row(2, samples=[2.0, 2.5], mode="hot", device="a GPU, größer 🚀"), HERE),
        (a_row(3, samples=[3.0], rung="later/kernel", shape={"Z": 3, "name": "x y"}), "anna.json"),
    )
}
REVISION_2 = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "2", "1"


def upgrade():
    op.add_column("rows", sa.Column("later", sa.Text))
    op.execute("UPDATE rows SET later = device")
"""


@pytest.fixture
def version_2(tmp_path, monkeypatch):
    """Returns a function that makes the app one of version 2. It takes the source of the migration."""

    def make(source: str = REVISION_2) -> None:
        scripts = tmp_path / "migrations"
        shutil.copytree(Path(schema.__file__).with_name("migrations"), scripts)
        (scripts / "versions" / "revision_2.py").write_text(source)
        monkeypatch.setattr(schema, "SCRIPTS", str(scripts))
        monkeypatch.setattr(schema, "SCHEMA", 2)

    return make


@pytest.fixture
def old_file(tmp_path):
    """Returns the store of a copy of the file of version 1."""
    path = tmp_path / "measurements.sqlite"
    shutil.copy(FILE_OF_VERSION_1, path)
    return Store(path)


def later(user_store: Store) -> list[tuple]:
    """Returns the column of version 2."""
    with user_store.database.opened(reading=True) as db:
        return [tuple(row) for row in db.execute(sa.text("SELECT later FROM rows ORDER BY later"))]


def contents(user_store: Store) -> dict[str, tuple]:
    return {entry.id: (entry.row, entry.origin) for entry in user_store.rows()}


# -- the newest version ----------------------------------------------------------------------------
def test_number_of_the_schema_is_the_newest_revision():
    config = Config()
    config.set_main_option("script_location", schema.SCRIPTS)
    assert ScriptDirectory.from_config(config).get_heads() == [str(schema.SCHEMA)]


def differences(user_store: Store) -> list:
    """Returns how the tables of a database differ from tables.py. Indexes are in the migrations only."""

    def is_compared(item, name, kind, *_) -> bool:
        return kind != "index" and name != schema.VERSIONS.name

    with user_store.database.opened() as db:
        options = {"compare_type": True, "include_object": is_compared}
        return compare_metadata(MigrationContext.configure(db, opts=options), METADATA)


def test_migrations_make_the_tables_that_queries_use(user_store):
    assert user_store.add([a_row()]) == 1
    assert differences(user_store) == []


# -- files from before Alembic -----------------------------------------------------------------------
def test_file_of_an_older_app_is_used_as_it_is(old_file):
    assert contents(old_file) == IN_IT
    assert old_file.add([a_row(1, samples=[1.0, 1.1, 1.2]), a_row(4)]) == 1
    ((difference,),) = differences(old_file)
    assert difference[:4] == ("modify_nullable", None, "rows", "id")  # a primary key: no row lacks it
    with sqlite3.connect(old_file.database.path) as db:  # what an older app looks at
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION,)


@pytest.mark.parametrize("reading", [True, False])
def test_file_of_an_older_app_is_migrated_without_loss(old_file, version_2, reading):
    version_2()
    if not reading:
        assert old_file.add([a_row(4)]) == 1
    assert {id_: entry for id_, entry in contents(old_file).items() if id_ in IN_IT} == IN_IT
    assert (None,) not in later(old_file) or not reading
    with sqlite3.connect(old_file.database.path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute(f"SELECT version_num FROM {schema.VERSIONS.name}").fetchall() == [("2",)]


# -- both kinds ------------------------------------------------------------------------------------
def test_schema_is_migrated_and_rows_stay(user_store, version_2):
    user_store.add([a_row(), a_row(1, device="another")])
    version_2()
    assert [e.row for e in user_store.rows()] == [a_row(1, device="another"), a_row()]
    assert later(user_store) == [("a processor",), ("another",)]


def test_failed_migration_changes_nothing(user_store, version_2, monkeypatch):
    user_store.add([a_row()])
    version_2(REVISION_2 + '    op.execute("NONSENSE")\n')
    for call in (user_store.count, lambda: user_store.add([a_row(2)])):
        with pytest.raises(StoreError, match="cannot be used"):
            call()
    assert "kept until the app stops" in user_store.save([a_row(3)])
    monkeypatch.undo()
    assert differences(user_store) == []
    assert user_store.count() == 2 and user_store.save([a_row(2)]) == "" and user_store.count() == 3


def test_newer_database_is_refused_and_not_changed(user_store, version_2, monkeypatch):
    user_store.add([a_row()])
    version_2()
    assert user_store.add([a_row(1)]) == 1
    monkeypatch.undo()
    for call in (user_store.rows, user_store.count, user_store.kinds, lambda: user_store.add([a_row(2)])):
        with pytest.raises(StoreError, match=r"newer version of this app .its schema is 2, this one knows 1"):
            call()
    assert user_store.notes() == []
    assert "newer version" in user_store.save([a_row(2)])
    assert user_store._pending
    version_2_again = Store(user_store._place)
    monkeypatch.setattr(schema, "SCHEMA", 2)
    assert version_2_again.count() == 2


def test_file_of_a_newer_app_stays_as_it_is(old_file):
    path = old_file.database.path
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer version of this app .its schema is 99, this one knows 1"):
        old_file.add([a_row(2)])
    assert path.read_bytes() == before


def test_apps_that_migrate_at_once_do_so_once(user_store, version_2):
    """Threads with a store each, as apps have: their databases exclude each other, not their locks in memory."""
    user_store.add([a_row(n) for n in range(20)])
    version_2()
    stores = [Store(user_store._place, patience_s=60) for _ in range(6)]
    barrier = Barrier(len(stores))

    def work(n: int) -> int:
        barrier.wait()
        return stores[n].add([a_row(100 + n)])

    with ThreadPoolExecutor(len(stores)) as threads:
        assert list(threads.map(work, range(len(stores)))) == [1] * len(stores)
    assert user_store.count() == 26 and len(later(user_store)) == 26


FIRST = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kernels.records.store import Store
from tests.helpers.rows_of import a_row
place, first = sys.argv[2], int(sys.argv[3])
kept = Store(place if "://" in place else Path(place), patience_s=60)
kept.database
print("ready", flush=True)
sys.stdin.readline()
print(kept.add([a_row(n) for n in range(first, first + 10)]), flush=True)
"""


def test_processes_that_create_the_database_at_once_lose_nothing(user_store):
    command = [sys.executable, "-c", FIRST, str(ROOT), str(user_store._place)]
    apps = [
        subprocess.Popen([*command, str(5 * n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    assert [app.stdout.readline() for app in apps] == ["ready\n"] * 3
    for app in apps:
        app.stdin.write("\n")
        app.stdin.flush()
    new = [int(app.communicate()[0]) for app in apps]
    assert sum(new) == 20 == user_store.count()  # 0 to 19: neighbours have five rows in common


# -- others' databases -----------------------------------------------------------------------------
@pytest.mark.parametrize("version", [0, 1, 99])
def test_file_of_another_program_is_not_changed(tmp_path, version):
    path = tmp_path / "measurements.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    before = path.read_bytes()
    for call in (Store(path).count, lambda: Store(path).add([a_row()])):
        with pytest.raises(StoreError, match="another program"):
            call()
    assert path.read_bytes() == before


def test_reading_writes_nothing(user_store):
    assert user_store.rows() == [] and user_store.count() == 0 and user_store.kinds() == set()
    assert user_store.groups() == {} and user_store.row("0" * 20) is None
    assert json.loads(user_store.export([]))["rows"] == []
    if isinstance(user_store._place, Path):
        assert not user_store._place.parent.exists()
    else:
        with user_store.database._begin(reading=True) as db:
            assert schema.stored_version(db) == 0 and not sa.inspect(db).get_table_names()
