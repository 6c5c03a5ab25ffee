"""The store: rows come out unchanged, are found by filters, and are stored once: in a file and on a server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kernels.records import folder, store
from kernels.records.jsontext import id_of
from kernels.records.store import HERE, Filter, Store, StoreError
from tests.helpers.rows_of import SHAPE, a_row


def test_row_is_stored_unchanged_with_unknown_fields(user_store):
    row = a_row()
    assert user_store.add([row]) == 1
    entry = user_store.row(id_of(row))
    assert entry.row == row and entry.origin == HERE and entry.inserted.endswith("Z")
    assert user_store.row("0" * 20) is None


def test_same_row_is_added_once(user_store):
    assert user_store.add([a_row(1), a_row(1), a_row(2)]) == 2
    assert user_store.add([a_row(1), a_row(3)], "a colleague") == 1
    assert user_store.count() == 3
    assert user_store.row(id_of(a_row(1))).origin == HERE  # the first origin stays


def test_rows_are_newest_first_with_limit_and_offset(user_store):
    user_store.add([a_row(n) for n in (3, 1, 2, 5, 4)])
    assert [e.row["time"][-3:-1] for e in user_store.rows()] == ["05", "04", "03", "02", "01"]
    assert [e.row["time"][-3:-1] for e in user_store.rows(limit=2, offset=1)] == ["04", "03"]


@pytest.mark.parametrize("offset", range(0, 12, 3))
def test_limit_and_offset_with_pending_rows_among_those_in_the_file(user_store, offset, monkeypatch):
    user_store.add([a_row(n) for n in range(0, 12, 2)])

    def full(entries):
        raise StoreError("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(user_store.database, "insert", full)
        user_store.save([a_row(n) for n in range(1, 12, 2)])
    times = [e.row["time"] for e in user_store.rows(limit=3, offset=offset)]
    assert times == [a_row(n)["time"] for n in reversed(range(12))][offset : offset + 3]


@pytest.mark.parametrize(
    ("query", "expected"),
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
def test_filters(user_store, query, expected):
    new = {
        1: a_row(1),
        2: a_row(2, mode="hot"),
        3: a_row(3, rung="conv/im2col-gemm", engine="cuda", device="a GPU"),
        4: a_row(4, shape=SHAPE | {"C": 7}),
    }
    user_store.add([new[n] for n in (1, 2, 3)])
    user_store.add([new[4]], "mail.json")
    assert {e.row["time"] for e in user_store.rows(query)} == {new[n]["time"] for n in expected}
    assert user_store.count(query) == len(expected)
    assert all(query.matches(e.row, e.origin) == (e in user_store.rows(query)) for e in user_store.rows())


def test_kinds_lists_the_values_to_filter_by(user_store):
    user_store.add([a_row(1), a_row(2), a_row(3, mode="hot")])
    assert user_store.kinds() == {
        ("conv/direct", "cpu", "a processor", mode, HERE) for mode in ("cold", "hot")
    }


def test_export_can_be_imported_once(user_store, tmp_path):
    user_store.add([a_row(n) for n in range(5)])
    text = user_store.export([e.id for e in user_store.rows()] + ["f" * 20])
    other = Store(tmp_path / "other.sqlite")
    assert other.import_(text, "kept.json") == (5, 5)
    assert other.import_(text, "again.json") == (5, 0)
    assert {e.row["time"]: e.row for e in other.rows()} == {e.row["time"]: e.row for e in user_store.rows()}
    assert {e.origin for e in other.rows()} == {"kept.json"}


@pytest.mark.parametrize("origin", [HERE, "recorded", "", "   "])
def test_import_cannot_use_the_apps_own_origin(user_store, origin):
    user_store.import_(json.dumps([a_row()]), origin)
    (entry,) = user_store.rows()
    assert entry.origin.startswith("import")


def test_many_threads_lose_no_row(user_store):
    def work(n):
        for i in range(10):
            user_store.add([a_row(100 * n + i)])
            assert user_store.count() > 0

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert user_store.count() == 60


@pytest.mark.slow
def test_ten_thousand_rows_are_listed_within_a_second(user_store):
    import time

    new = [a_row(samples=[1.0 + n / 1e4]) for n in range(10_000)]
    user_store.add(new)
    start = time.process_time()  # independent of other load on the machine
    assert user_store.count(Filter(shape="K=2")) == 10_000
    assert len(user_store.rows(Filter(shape="K=2"), limit=20, offset=200)) == 20
    assert time.process_time() - start < 1.0


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
def test_folder_by_platform(environ, platform, expected):
    assert folder.folder(environ, platform) == expected


def test_tests_never_write_the_users_store():
    assert store.user_store().database.path.parent != folder.folder({})
    assert store.user_store() is store.user_store()
