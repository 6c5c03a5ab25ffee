"""Faults of the store with real files and processes: the app answers, nothing stored is lost, the reason is told."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kernels.records import rows, store
from kernels.records.jsontext import id_of
from kernels.records.store import Store, StoreError
from tests.helpers.rows_of import a_row

ROOT = Path(__file__).parents[3]
LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
db.execute("BEGIN EXCLUSIVE")
db.execute("UPDATE rows SET origin = origin")
print("locked", flush=True)
sys.stdin.readline()
db.execute("COMMIT")
"""


@pytest.fixture
def kept(tmp_path):
    """A store with ten rows."""
    made = Store(tmp_path / "data" / "measurements.sqlite", patience_s=0.2)
    made.add([a_row(n) for n in range(10)])
    return made


@pytest.fixture
def locker(kept):
    """Another process that holds a lock until it is let go."""
    processes = []

    def hold(pragma="SELECT 1"):
        process = subprocess.Popen(
            [sys.executable, "-c", LOCK, str(kept.path), pragma],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        assert process.stdout.readline() == "locked\n"

        def let_go():
            process.stdin.write("\n")
            process.stdin.close()
            assert process.wait(10) == 0

        return let_go

    yield hold
    for process in processes:
        process.kill()
        process.wait()


def test_while_another_process_writes_reading_works_and_a_run_waits_in_memory(kept, locker):
    let_go = locker()
    assert kept.count() == 10
    with pytest.raises(StoreError, match="locked by another process"):
        kept.add([a_row(11)])
    assert "locked by another process" in kept.keep([a_row(12)])
    assert "kept until the app stops" in kept.keep([a_row(13)])
    assert kept.count() == 12 and kept.rows(most=1)[0].row == a_row(13)
    assert kept.row(id_of(a_row(12))).row == a_row(12)
    let_go()
    assert kept.keep([a_row(14)]) == ""
    assert Store(kept.path).count() == 13  # those that waited are in the file
    assert kept.count() == 13


def test_a_process_that_locks_out_readers_is_told_and_waited_for(kept, locker):
    with sqlite3.connect(kept.path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    let_go = locker()
    with pytest.raises(StoreError, match="locked by another process"):
        kept.rows()
    let_go()
    assert kept.count() == 10


def test_killed_in_the_middle_of_writing_it_keeps_what_was_written(kept):
    code = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from kernels.records.store import Store
from tests.helpers.rows_of import a_row
kept = Store(Path(sys.argv[1]))
for n in itertools.count(100):
    kept.add([a_row(n)])
    print(n, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(kept.path), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    for _ in range(5):
        last = int(process.stdout.readline())
    process.kill()
    process.wait()
    again = Store(kept.path)
    assert again.notes() == []
    for n in (*range(10), *range(100, last + 1)):
        assert again.row(id_of(a_row(n))) is not None


def spoil_nothing_left(path):
    path.write_bytes(b"this was a database once " * 400)


def spoil_truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def spoil_head(path):
    with path.open("r+b") as file:
        file.truncate(100)


@pytest.mark.parametrize("spoil", [spoil_nothing_left, spoil_truncated, spoil_head])
@pytest.mark.parametrize("seen", [True, False], ids=["found later", "found at the start"])
def test_a_damaged_file_is_set_aside_and_the_app_goes_on(kept, spoil, seen):
    _at_rest(kept)
    spoil(kept.path)
    damaged = kept.path.read_bytes()
    now = kept if seen else Store(kept.path)
    for _ in range(2):
        try:
            now.add([a_row(77)])
        except StoreError as e:
            assert "damaged" in str(e)
    (note,) = now.notes()
    assert "set aside as measurements.damaged-" in note and "a new one was begun" in note
    (aside,) = kept.path.parent.glob("measurements.damaged-*.sqlite")
    assert aside.read_bytes() == damaged  # nothing is deleted
    assert now.row(id_of(a_row(77))).row == a_row(77)
    assert Store(kept.path).count() == now.count() >= 1


def test_rows_that_can_still_be_read_are_saved_and_only_as_they_were(tmp_path):
    made = Store(tmp_path / "measurements.sqlite")
    made.add([a_row(n) for n in range(200)])
    _at_rest(made)
    size = made.path.stat().st_size
    with made.path.open("r+b") as file:  # a hole in the middle, and a digit turned elsewhere
        file.seek(size // 2 // 4096 * 4096)
        file.write(random.Random(0).randbytes(8192))
    again = Store(made.path)
    known = {id_of(a_row(n)) for n in range(200)}
    got = {e.id for e in again.rows()}
    assert "rows were saved into it" in again.notes()[0]
    assert got <= known and len(got) > 50
    assert all(id_of(e.row) == e.id for e in again.rows())


def test_an_empty_file_is_a_new_store(tmp_path):
    path = tmp_path / "measurements.sqlite"
    path.touch()
    assert Store(path).add([a_row()]) == 1


def test_a_full_disk_is_told_and_what_was_stored_stays(kept):
    with sqlite3.connect(kept.path) as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    kept.pragmas = (*Store.pragmas, f"PRAGMA max_page_count = {pages}")
    many = [a_row(n) for n in range(1000, 1100)]
    with pytest.raises(StoreError, match=r"The disk of .* is full; what was stored before is safe"):
        kept.add(many)
    assert kept.count() == 10  # none of them, not some
    assert "is full" in kept.keep(many[:50])
    assert kept.count() == 60
    kept.pragmas = Store.pragmas
    assert kept.keep([]) == "" and Store(kept.path).count() == 60


def test_an_import_that_does_not_fit_takes_nothing(kept):
    kept.pragmas = (*Store.pragmas, "PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match="full"):
        kept.import_(rows.exported([a_row(n) for n in range(50, 90)]), "mail.json")
    kept.pragmas = Store.pragmas
    assert kept.count() == 10


READ_ONLY = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from kernels.records.store import Store, StoreError
from tests.helpers.rows_of import a_row
a_row(0)
if os.geteuid() == 0:  # root writes where it likes: from here on as nobody
    os.setuid(65534)
kept = Store(Path(sys.argv[1]))
print(kept.count(), len(kept.rows()))
try:
    kept.add([a_row(50)])
except StoreError as e:
    print(e)
print(kept.keep([a_row(51)]))
print(kept.count())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders are made read-only by their mode here")
@pytest.mark.parametrize("there", [True, False], ids=["a file", "no file"])
def test_a_read_only_folder_is_read_and_told(kept, there):
    _at_rest(kept)
    folder = kept.path.parent
    if there:
        kept.path.chmod(0o444)
    else:
        kept.path.unlink()
    within = Path(tempfile.gettempdir())
    above = {path: path.stat().st_mode for path in folder.parents if within in path.parents}
    try:
        for path, mode in above.items():
            path.chmod(mode | 0o055)
        folder.chmod(0o555)
        told = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(kept.path), str(ROOT)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        folder.chmod(0o755)
        for path, mode in above.items():
            path.chmod(mode)
    lines = told.stdout.splitlines()
    assert told.returncode == 0, told.stderr
    assert lines[0] == ("10 10" if there else "0 0")
    assert "measurements.sqlite cannot be" in lines[1] and "kept until the app stops" in lines[2]
    assert lines[3] == ("11" if there else "1")  # the run that waits is listed


def test_a_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    kept = Store(tmp_path / "file" / "data" / "measurements.sqlite")
    assert kept.count() == 0
    with pytest.raises(StoreError, match="cannot be used"):
        kept.add([a_row()])


def test_a_row_that_is_none_is_told_and_does_not_hold_up_the_others(kept):
    assert "cannot be stored" in kept.keep([a_row(samples_ms=[])])
    assert kept.keep([a_row(60)]) == "" and kept.count() == 11


def test_no_home_is_told(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(store.folder, "file", nowhere)
    with pytest.raises(StoreError, match=r"no place to keep measurements.*KERNEL_THEATRE_DATA"):
        store.mine()


def _at_rest(kept: Store) -> None:
    """All of it in the one file, as after a proper end."""
    with sqlite3.connect(kept.path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    for end in ("-wal", "-shm"):
        Path(f"{kept.path}{end}").unlink(missing_ok=True)
