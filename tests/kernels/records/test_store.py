"""The store: rows come out unchanged, are found by filters, and are stored once: in a file and on a server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.records import folder, store
from kernels.records.entry import newest_first
from kernels.records.jsontext import canonical, id_of
from kernels.records.store import HERE, Entry, Filter, Store, StoreError
from tests.helpers.offenders import every
from tests.helpers.rows_of import SHAPE, a_row
from tests.helpers.stores import KINDS, new_store


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


def test_times_are_sorted_by_code_points(user_store):
    user_store.add([a_row(n, time=time) for n, time in enumerate(TIMES)])
    assert [e.row["time"] for e in user_store.rows()] == sorted(TIMES, reverse=True)


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
        (Filter(ladder="conv"), {1, 2, 3, 4}),
        (Filter(ladder="con_"), set()),
        (Filter(ladder="CONV"), set()),
        (Filter(device="A processor"), set()),
        (Filter(shape="c=7\0"), set()),
        (Filter(origin="\ud800"), set()),
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


# -- any rows, any filter --------------------------------------------------------------------------
# Few values, so that filters find something; such as sort differently by the rules of a language; hostile ones.
RUNGS = ["conv/direct", "conv/im2col-gemm", "conv-dinput/direct", "later/kernel"]
SHAPES = [SHAPE, SHAPE | {"C": 7}, SHAPE | {"H": 9, "W": 10}]
OTHER_SHAPES = [{"C": 1.5, "chain": "relu C=7"}, {"Ä": "1e16", "c": 7, "C": 7}, {"%": "_", "a=b": 1e16}]
TIMES = ["2026-01-02T03:00:01Z", "2026-01-02", "2026-01-02 a", "2026-01-02-B", "2026-01-02 Ä", "2026-01-02_b"]
NAMES = ["a GPU", "A GPU", "a-GPU", "größer 🚀", "%", "_", "' OR 1=1 --", "\\", "a", "ß"]
HOSTILE = ["\0", "\ud800", "conv", "conv/", "CONV", "x" * 3000, "null", "{}", "[]", '"', "?", ":name", "%s"]
WORDS = ["C=7", "c=7", "c=1.5", "h=8", "8x8", "k2", "relu", "c=7,", "ä=1e16", "=", "a=b=1e16", "%", "_=", " ", ","]


@st.composite
def any_row(draw):
    rung = draw(st.sampled_from(RUNGS))
    return a_row(
        draw(st.integers(0, 99)),
        rung=rung,
        shape=draw(
            st.sampled_from(OTHER_SHAPES if rung.startswith("later") else SHAPES[:1] if "-d" in rung else SHAPES)
        ),
        engine=draw(st.sampled_from(["cpu", "cuda"])),
        device=draw(st.sampled_from(NAMES)),
        mode=draw(st.sampled_from(["cold", "hot"])),
        time=draw(st.sampled_from(TIMES)),
    )


FIELDS = {
    "rung": RUNGS,
    "engine": ["cpu", "cuda"],
    "device": NAMES,
    "mode": ["cold", "hot"],
    "origin": [HERE, *NAMES],
    "shape": [*WORDS, "c=7 8x8", "relu c=7"],
    "ladder": ["conv", "later", "conv-dinput", "co_v", "con%", "CONV"],
    "exact_shape": [canonical(shape) for shape in [*SHAPES, *OTHER_SHAPES]],
}


@st.composite
def any_filter(draw):
    """Draws a filter with at most two fields: more would rarely find a row."""
    names = draw(st.lists(st.sampled_from(list(FIELDS)), min_size=1, max_size=2, unique=True))
    return Filter(**{name: draw(st.sampled_from(FIELDS[name]) | st.sampled_from(HOSTILE)) for name in names})


@pytest.fixture(scope="module", params=KINDS)
def store_of_all(request, tmp_path_factory):
    return new_store(request.param, request, tmp_path_factory.mktemp("all"))


@settings(max_examples=20)
@given(
    imports=st.lists(st.tuples(st.sampled_from([HERE, *NAMES]), st.lists(any_row(), max_size=12)), max_size=3),
    waiting=st.lists(any_row(), max_size=4),
    queries=st.lists(any_filter(), min_size=1, max_size=4),
    limit=st.sampled_from([-1, 0, 1, 3, 20]),
    offset=st.integers(0, 12),
)
def test_filter_and_page_are_those_of_a_plain_list(store_of_all, imports, waiting, queries, limit, offset):
    with store_of_all.database.opened() as db:
        db.execute(sa.text("DELETE FROM rows"))
    known = {}
    for origin, new in imports:
        assert store_of_all.add(new, origin) == len({id_of(row) for row in new} - known.keys())
        known |= {id_of(row): Entry(id_of(row), row, origin) for row in new if id_of(row) not in known}
    pending = {id_of(row): Entry(id_of(row), row, HERE) for row in waiting if id_of(row) not in known}
    store_of_all._pending = pending
    ordered = newest_first([*known.values(), *pending.values()])
    for query in (Filter(), *queries):
        expected = [(e.id, e.row, e.origin) for e in ordered if query.matches(e.row, e.origin)]
        end = offset + limit if limit >= 0 else None
        found = store_of_all.rows(query, limit, offset)
        assert [(e.id, e.row, e.origin) for e in found] == expected[offset:end]
        assert store_of_all.count(query) == len(expected)
    by_kind = [(e.row["rung"], canonical(e.row["shape"])) for e in ordered]
    newest = {key: e.row["time"] for key, e in zip(reversed(by_kind), reversed(ordered), strict=True)}
    assert store_of_all.groups() == {key: (by_kind.count(key), newest[key]) for key in by_kind}
    fields = ("rung", "engine", "device", "mode")
    assert store_of_all.kinds() == {(*(e.row[n] for n in fields), e.origin) for e in ordered}


def test_kinds_lists_the_values_to_filter_by(user_store):
    user_store.add([a_row(1), a_row(2), a_row(3, mode="hot")])
    assert user_store.kinds() == {("conv/direct", "cpu", "a processor", mode, HERE) for mode in ("cold", "hot")}


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


def test_ten_thousand_rows_are_listed_within_a_second(user_store):
    import time

    new = [a_row(samples=[1.0 + n / 1e4]) for n in range(10_000)]
    user_store.add(new)
    start = time.process_time()  # independent of other load on the machine
    assert user_store.count(Filter(shape="K=2")) == 10_000
    assert len(user_store.rows(Filter(shape="K=2"), limit=20, offset=200)) == 20
    assert time.process_time() - start < 1.0


@every(
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
