"""The store: what goes in comes out, found by its filters, the same once however often it comes."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from kernels.records import folder, store
from kernels.records.jsontext import id_of
from kernels.records.store import HERE, Filter, Store, StoreError
from tests.helpers.rows_of import SHAPE, a_row


@pytest.fixture
def kept(tmp_path):
    return Store(tmp_path / "data" / "measurements.sqlite")


def test_a_row_comes_out_as_it_went_in_with_fields_nobody_knows(kept):
    row = a_row()
    assert kept.add([row]) == 1
    entry = kept.row(id_of(row))
    assert entry.row == row and entry.origin == HERE and entry.inserted.endswith("Z")
    assert kept.row("0" * 20) is None


def test_the_same_row_twice_adds_nothing_and_another_one_does(kept):
    assert kept.add([a_row(1), a_row(1), a_row(2)]) == 2
    assert kept.add([a_row(1), a_row(3)], "a colleague") == 1
    assert kept.count() == 3
    assert kept.row(id_of(a_row(1))).origin == HERE  # the first origin stands


def test_newest_first_a_page_at_a_time(kept):
    kept.add([a_row(n) for n in (3, 1, 2, 5, 4)])
    assert [e.row["time"][-3:-1] for e in kept.rows()] == ["05", "04", "03", "02", "01"]
    assert [e.row["time"][-3:-1] for e in kept.rows(most=2, skip=1)] == ["04", "03"]


@pytest.mark.parametrize("skip", range(0, 12, 3))
def test_a_page_is_right_with_rows_that_wait_among_those_in_the_file(kept, skip, monkeypatch):
    kept.add([a_row(n) for n in range(0, 12, 2)])

    def full(entries):
        raise StoreError("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(kept, "_insert", full)
        kept.keep([a_row(n) for n in range(1, 12, 2)])
    got = [e.row["time"] for e in kept.rows(most=3, skip=skip)]
    assert got == [a_row(n)["time"] for n in reversed(range(12))][skip : skip + 3]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Filter(), {1, 2, 3, 4}),
        (Filter(rung="conv/direct"), {1, 2, 4}),
        (Filter(mode="hot"), {2}),
        (Filter(engine="cuda", device="a GPU"), {3}),
        (Filter(origin="mail.json"), {4}),
        (Filter(shape="C=7"), {4}),
        (Filter(shape="c=7 h=8"), {4}),
        (Filter(shape="C=1"), {1, 2, 3}),
        (Filter(shape="8x8 k2"), {1, 2, 3, 4}),
        (Filter(shape="C=7, K=3"), set()),
        (Filter(shape="' OR 1=1 --"), set()),
        (Filter(rung="' OR 1=1 --"), set()),
    ],
)
def test_filters(kept, asked, expected):
    new = {
        1: a_row(1),
        2: a_row(2, mode="hot"),
        3: a_row(3, rung="conv/im2col-gemm", engine="cuda", device="a GPU"),
        4: a_row(4, shape=SHAPE | {"C": 7}),
    }
    kept.add([new[n] for n in (1, 2, 3)])
    kept.add([new[4]], "mail.json")
    assert {e.row["time"] for e in kept.rows(asked)} == {new[n]["time"] for n in expected}
    assert kept.count(asked) == len(expected)
    assert all(asked.takes(e.row, e.origin) == (e in kept.rows(asked)) for e in kept.rows())


def test_what_there_is_to_filter_by(kept):
    kept.add([a_row(1), a_row(2), a_row(3, mode="hot")])
    assert kept.kinds() == {("conv/direct", "cpu", "a processor", mode, HERE) for mode in ("cold", "hot")}


def test_an_export_is_an_import_once(kept, tmp_path):
    kept.add([a_row(n) for n in range(5)])
    text = kept.export([e.id for e in kept.rows()] + ["f" * 20])
    other = Store(tmp_path / "other.sqlite")
    assert other.import_(text, "kept.json") == (5, 5)
    assert other.import_(text, "again.json") == (5, 0)
    assert {e.row["time"]: e.row for e in other.rows()} == {e.row["time"]: e.row for e in kept.rows()}
    assert {e.origin for e in other.rows()} == {"kept.json"}


@pytest.mark.parametrize("origin", [HERE, "recorded", "", "   "])
def test_an_import_cannot_claim_to_be_ours(kept, origin):
    kept.import_(json.dumps([a_row()]), origin)
    (entry,) = kept.rows()
    assert entry.origin.startswith("import")


def test_many_threads_lose_nothing(kept):
    def work(n):
        for i in range(10):
            kept.add([a_row(100 * n + i)])
            assert kept.count() > 0

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert kept.count() == 60


def test_ten_thousand_rows_are_listed_at_once(kept):
    import time

    new = [a_row(samples=[1.0 + n / 1e4]) for n in range(10_000)]
    kept.add(new)
    start = time.process_time()  # whatever else the machine does
    assert kept.count(Filter(shape="K=2")) == 10_000
    assert len(kept.rows(Filter(shape="K=2"), most=20, skip=200)) == 20
    assert time.process_time() - start < 1.0


def test_the_schema_is_migrated_and_rows_stay(kept, monkeypatch):
    kept.add([a_row()])
    monkeypatch.setattr(store, "MIGRATIONS", (*store.MIGRATIONS, "ALTER TABLE rows ADD COLUMN later TEXT"))
    monkeypatch.setattr(store, "SCHEMA", 2)
    assert [e.row for e in kept.rows()] == [a_row()]
    with sqlite3.connect(kept.path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("SELECT later FROM rows").fetchall() == [(None,)]


def test_a_migration_that_fails_leaves_all_as_it_was(kept, monkeypatch):
    kept.add([a_row()])
    monkeypatch.setattr(store, "MIGRATIONS", (*store.MIGRATIONS, "CREATE TABLE t (x); NONSENSE"))
    monkeypatch.setattr(store, "SCHEMA", 2)
    with pytest.raises(StoreError, match="cannot be used"):
        kept.add([a_row(2)])
    monkeypatch.undo()
    assert kept.count() == 1 and kept.add([a_row(2)]) == 1


def test_a_newer_database_is_refused_and_not_touched(kept):
    kept.add([a_row()])
    with sqlite3.connect(kept.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = kept.path.read_bytes()
    newer = Store(kept.path)
    for act in (newer.rows, newer.count, newer.kinds, lambda: newer.add([a_row(2)])):
        with pytest.raises(
            StoreError, match=r"newer version of this app .its schema is 99, this one knows 1"
        ):
            act()
    assert kept.path.read_bytes() == before and newer.notes() == []
    assert "newer version" in newer.keep([a_row(2)])
    assert newer._held


def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "measurements.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path).add([a_row()])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({folder.VARIABLE: "/data/here"}, "linux", Path("/data/here")),
        ({"XDG_DATA_HOME": "/xdg"}, "linux", Path("/xdg/kernel-theatre")),
        ({"XDG_DATA_HOME": "not/absolute"}, "linux", Path.home() / ".local/share/kernel-theatre"),
        ({}, "linux", Path.home() / ".local/share/kernel-theatre"),
        ({}, "darwin", Path.home() / "Library/Application Support/kernel-theatre"),
        ({"LOCALAPPDATA": "/local"}, "win32", Path("/local/kernel-theatre")),
        ({}, "win32", Path.home() / "AppData/Local/kernel-theatre"),
    ],
)
def test_where_it_lies(environ, platform, expected):
    assert folder.folder(environ, platform) == expected


def test_the_tests_never_write_the_users_store():
    assert store.mine().path.parent != folder.folder({})
    assert store.mine() is store.mine()
