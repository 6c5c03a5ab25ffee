"""Faults of the store's server, with a real one: the app continues, nothing stored is lost, the reason is reported."""

from __future__ import annotations

import os
import socket
import sys
import threading

import pytest

from kernels.jobs import place as jobs_place
from kernels.records import folder, store
from kernels.records.jsontext import id_of
from kernels.records.store import Filter, Store, StoreError
from tests.helpers.postgres import PASSWORD, USER
from tests.helpers.rows_of import a_row

PATIENCE_S = 0.2


@pytest.fixture
def server(postgres, request):
    """Returns the server and the name of a database for one test."""
    name = "test_" + "".join(c for c in request.node.name.lower() if c.isalnum())[:40]
    postgres.database(name)
    yield postgres, name
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def user_store(server):
    """A store with ten rows."""
    postgres, name = server
    user_store = Store(postgres.url(name), PATIENCE_S)
    user_store.add([a_row(n) for n in range(10)])
    return user_store


def reason(url: str) -> str:
    """Returns why a database cannot be used, after a check that the reason never holds a password."""
    user_store = Store(url, PATIENCE_S)
    with pytest.raises(StoreError) as read:
        user_store.rows()
    with pytest.raises(StoreError):
        user_store.add([a_row()])
    kept = user_store.save([a_row(1)])
    assert "The run is kept until the app stops" in kept and list(user_store._pending) == [id_of(a_row(1))]
    assert not any(secret in f"{read.value} {kept}" for secret in (PASSWORD, "a%20secret", "not it"))
    assert "\n" not in kept and len(kept) < 300
    return str(read.value)


# -- no connection ---------------------------------------------------------------------------------
def test_server_that_is_away_is_reported_and_rows_wait(server, user_store):
    postgres, name = server
    postgres.stop()
    try:
        for call in (user_store.count, user_store.kinds, lambda: user_store.add([a_row(11)])):
            with pytest.raises(StoreError, match=rf"The database 127.0.0.1:\d+/{name} cannot be reached: "):
                call()
        assert "cannot be reached: Connection refused. The run is kept" in user_store.save([a_row(12)])
        assert "cannot be reached" in user_store.save([a_row(13)])
        assert user_store.row(id_of(a_row(13))).row == a_row(13)
    finally:
        postgres.start()
    assert user_store.count() == 12  # the rows that wait are listed
    assert user_store.save([a_row(14)]) == ""
    assert Store(postgres.url(name)).count() == 13 == user_store.count()


def test_connection_that_was_lost_between_two_calls_is_opened_again(server, user_store):
    postgres, name = server
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    assert user_store.count() == 10 and user_store.add([a_row(11)]) == 1


def test_connection_lost_in_the_middle_changes_nothing_and_the_rows_wait(server, user_store, monkeypatch):
    postgres, name = server
    database, opened = user_store.database, user_store.database._current

    def lost(reading):
        connection = opened(reading)

        class Lost:
            def __enter__(self):
                db = connection.__enter__()
                pid = db.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                postgres.execute(f"SELECT pg_terminate_backend({pid})")
                return db

            def __exit__(self, *error):
                return connection.__exit__(*error)

        return Lost()

    with monkeypatch.context() as breaking:
        breaking.setattr(database, "_current", lost)
        with pytest.raises(StoreError, match="cannot be reached: "):
            user_store.rows()
        assert "The run is kept" in user_store.save([a_row(n) for n in range(20, 25)])
    assert Store(postgres.url(name)).count() == 10
    assert user_store.save([]) == "" and Store(postgres.url(name)).count() == 15


def test_server_that_never_answers_is_reported_after_some_seconds():
    pytest.importorskip("psycopg", reason="the driver is in requirements-pool.txt")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(StoreError, match=rf"127.0.0.1:{port}/theatre cannot be reached: .*timeout"):
            Store(f"postgresql://127.0.0.1:{port}/theatre").count()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("postgresql+psycopg:", "mysql:"), "KERNEL_THEATRE_STORE must be postgresql"),
        (("postgresql+psycopg:", "postgresql+psycopg2:"), "KERNEL_THEATRE_STORE must be postgresql"),
        (("postgresql+psycopg:", "sqlite:"), "KERNEL_THEATRE_STORE must be postgresql"),
        (("postgresql+psycopg://", ""), "KERNEL_THEATRE_STORE must be postgresql"),
        (("127.0.0.1", "127.0.0.1:x"), "KERNEL_THEATRE_STORE must be postgresql"),
        (("a%20secret", "not it"), f'password authentication failed for user "{USER}"'),
        ((f"{USER}:", "stranger:"), 'password authentication failed for user "stranger"'),
        (("/postgres", "/nothing"), 'database "nothing" does not exist'),
        (("127.0.0.1", "nowhere.invalid"), "nowhere.invalid"),
        (("/postgres", "/postgres?colour=red"), 'invalid connection option "colour"'),
    ],
    ids=lambda v: v if isinstance(v, str) else v[1],
)
def test_wrong_url_is_reported(postgres, change, expected):
    assert expected in reason(postgres.url().replace(*change))


def test_server_of_another_kind_is_reported():
    pytest.importorskip("psycopg", reason="the driver is in requirements-pool.txt")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def answer():
            for _ in range(3):
                connection, _ = other.accept()
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert "cannot be reached" in reason(f"postgresql://127.0.0.1:{other.getsockname()[1]}/theatre")


def test_missing_driver_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "needs psycopg: pip install -r requirements-pool.txt" in reason("postgresql://127.0.0.1/theatre")


def test_missing_sqlalchemy_is_reported(monkeypatch, tmp_path):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "sqlalchemy" or name.startswith("kernels.records.database."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for place in (tmp_path / "measurements.sqlite", "postgresql://127.0.0.1/theatre"):
        user_store = Store(place)
        with pytest.raises(StoreError, match=r"needs sqlalchemy: pip install -r requirements\.txt"):
            user_store.count()
        assert "The run is kept" in user_store.save([a_row()])


def test_missing_alembic_is_reported(monkeypatch, tmp_path):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "alembic":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "alembic", None)
    user_store = Store(tmp_path / "measurements.sqlite")
    assert user_store.count() == 0
    with pytest.raises(StoreError, match=r"needs alembic: pip install -r requirements\.txt"):
        user_store.add([a_row()])


# -- a server that refuses -------------------------------------------------------------------------
def test_reads_work_and_rows_wait_while_another_program_locks_the_table(server, user_store):
    postgres, name = server
    with postgres.connect(name) as other:
        other.autocommit = False
        other.execute("LOCK TABLE rows IN EXCLUSIVE MODE")
        assert user_store.count() == 10
        with pytest.raises(StoreError, match="is busy; try again in a moment"):
            user_store.add([a_row(11)])
        assert "is busy" in user_store.save([a_row(12)])
        other.execute("LOCK TABLE rows IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="is busy; try again in a moment"):
            user_store.count()
    assert user_store.count() == 11 and user_store.save([]) == ""
    assert Store(postgres.url(name)).count() == 11


FULL = """
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER fill BEFORE INSERT ON rows FOR EACH STATEMENT EXECUTE FUNCTION fill();
"""


def test_full_disk_is_reported_and_stored_rows_stay(server, user_store):
    """The server raises the error of a full disk; its disk is not."""
    postgres, name = server
    postgres.execute(FULL, database=name)
    with pytest.raises(
        StoreError, match=rf"The disk of the database .*/{name} is full; what was stored before is safe"
    ):
        user_store.add([a_row(11)])
    assert "is full" in user_store.save([a_row(12)]) and user_store.count() == 11
    postgres.execute("DROP TRIGGER fill ON rows", database=name)
    assert user_store.save([]) == "" and Store(postgres.url(name)).count() == 11


def test_too_many_calls_at_once_are_reported(user_store):
    from kernels.records.database.server import CONNECTIONS

    database = user_store.database
    held = [database.opened(reading=True) for _ in range(CONNECTIONS)]
    for connection in held:
        connection.__enter__()
    with pytest.raises(StoreError, match="is busy; try again in a moment"):
        user_store.count()
    for connection in held:
        connection.__exit__(None, None, None)
    assert user_store.count() == 10


def test_read_only_database_can_be_read_and_is_reported(server, user_store):
    postgres, name = server
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    kept = Store(postgres.url(name))
    assert kept.count() == 10
    with pytest.raises(StoreError, match="cannot be written: cannot execute INSERT in a read-only transaction"):
        kept.add([a_row(11)])
    assert "cannot be written" in kept.save([a_row(12)]) and kept.count() == 11


def test_user_who_may_only_read_can_read_and_is_reported(server, user_store):
    postgres, name = server
    postgres.execute(
        "CREATE ROLE student LOGIN PASSWORD 'student'",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO student",
        database=name,
    )
    try:
        kept = Store(postgres.url(name, "student:student"))
        assert kept.count() == 10
        with pytest.raises(StoreError, match="cannot be used: permission denied for table rows"):
            kept.add([a_row(11)])
    finally:
        postgres.execute("DROP OWNED BY student", "DROP ROLE student", database=name)


def test_user_who_may_not_create_tables_is_reported(server):
    postgres, name = server
    postgres.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    try:
        kept = Store(postgres.url(name, "guest:guest"))
        assert kept.count() == 0
        assert "cannot be used: permission denied for schema public" in kept.save([a_row()])
    finally:
        postgres.execute("DROP ROLE guest")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_database_with_another_encoding_is_reported(postgres, encoding):
    url = postgres.database("old", f"TEMPLATE template0 ENCODING {encoding} LOCALE 'C' LOCALE_PROVIDER libc")
    try:
        assert f"has the encoding {encoding}; create one with the encoding UTF8" in reason(url)
    finally:
        postgres.execute("DROP DATABASE old WITH (FORCE)")


def test_table_of_another_program_is_not_changed(server):
    postgres, name = server
    postgres.execute("CREATE TABLE rows (x int)", "INSERT INTO rows VALUES (7)", database=name)
    assert "has a table rows of another program; it was left as it is" in reason(postgres.url(name))
    assert postgres.execute("SELECT * FROM rows", database=name) == [(7,)]


def test_database_is_shared_with_other_tables_and_may_be_a_schema_of_its_own(server):
    postgres, name = server
    postgres.execute("CREATE TABLE theirs (x int)", "CREATE SCHEMA history", database=name)
    first = Store(postgres.url(name))
    second = Store(postgres.url(name, options="?options=-csearch_path%3Dhistory"))
    assert first.add([a_row(1)]) == 1 and second.add([a_row(2), a_row(3)]) == 2
    assert first.count() == 1 and second.count() == 2


# -- rows at the limits ----------------------------------------------------------------------------
def test_longest_texts_that_a_row_may_have_are_stored(user_store):
    """An entry of an index has at most 2,704 bytes."""
    noise = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(400))
    shape = {f"{n}{noise[n : n + 70]}": noise[: 400 - n] for n in range(32)}
    row = a_row(50, rung="later/" + "k" * 40, shape=shape, device=noise[:300], engine="e" * 40, time=noise[:300])
    user_store.import_(store.rows.to_json([row]), noise)
    assert user_store.row(id_of(row)).row == row
    assert [e.row for e in user_store.rows(Filter(device=noise[:300]))] == [row]


def test_apps_that_insert_the_same_rows_in_any_order_all_succeed(server, user_store):
    postgres, name = server
    new = [a_row(n) for n in range(100, 160)]
    results = []

    def work(n: int) -> None:
        kept = Store(postgres.url(name), 30)
        order = new if n % 2 else new[::-1]
        results.append(kept.add(order[: 40 + n]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(results) == 60 and user_store.count() == 70


# -- the setting -----------------------------------------------------------------------------------
def test_setting_names_the_users_store(server, monkeypatch):
    postgres, name = server
    monkeypatch.setenv(folder.STORE, postgres.url(name))
    assert store.user_store() is store.user_store()
    assert store.user_store().save([a_row()]) == ""
    assert postgres.execute("SELECT count(*) FROM rows", database=name) == [(1,)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+psycopg://theatre:a secret@db:5432/theatre?sslmode=require", "db:5432/theatre"),
        ("postgresql://user:p@ss/word?@db/x", "db/x"),
        ("postgresql://db/x?password=hidden", "db/x"),
        ("postgresql:///x?host=/run/postgresql", "x"),
        ("", ""),
    ],
)
def test_shown_name_of_a_database_has_no_password(url, expected, monkeypatch):
    assert folder.shown(url) == expected
    monkeypatch.setenv(folder.STORE, url)
    assert jobs_place.settings()[folder.STORE] == expected


def test_connections_name_the_app(server, user_store):
    postgres, name = server
    query = f"SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = '{name}' AND pid <> {os.getpid()}"
    assert user_store.count() == 10
    assert postgres.execute(query) == [("kernel-theatre",)]
