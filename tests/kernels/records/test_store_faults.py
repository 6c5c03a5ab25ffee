"""Faults of the store's file, with real files and processes: the app continues, nothing stored is lost, the reason is
reported."""

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
from kernels.records.database.file import File
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
def user_store(tmp_path):
    """A store with ten rows."""
    user_store = Store(tmp_path / "data" / "measurements.sqlite", patience_s=0.2)
    user_store.add([a_row(n) for n in range(10)])
    return user_store


@pytest.fixture
def lock_file(user_store):
    """Another process that locks the file; each call returns the function that unlocks it."""
    processes = []

    def lock(pragma="SELECT 1"):
        process = subprocess.Popen(
            [sys.executable, "-c", LOCK, str(user_store.database.path), pragma],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout.readline() == "locked\n"

        def unlock():
            process.stdin.write("\n")
            process.stdin.close()
            assert process.wait(10) == 0

        return unlock

    yield lock
    for process in processes:
        process.kill()
        process.wait()


def test_reads_work_and_runs_wait_in_memory_while_another_process_writes(user_store, lock_file):
    unlock = lock_file()
    assert user_store.count() == 10
    with pytest.raises(StoreError, match="locked by another process"):
        user_store.add([a_row(11)])
    assert "locked by another process" in user_store.save([a_row(12)])
    assert "kept until the app stops" in user_store.save([a_row(13)])
    assert user_store.count() == 12 and user_store.rows(limit=1)[0].row == a_row(13)
    assert user_store.row(id_of(a_row(12))).row == a_row(12)
    unlock()
    assert user_store.save([a_row(14)]) == ""
    assert Store(user_store.database.path).count() == 13  # the pending rows are now in the file
    assert user_store.count() == 13


def test_exclusive_lock_of_another_process_is_reported(user_store, lock_file):
    with sqlite3.connect(user_store.database.path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    unlock = lock_file()
    with pytest.raises(StoreError, match="locked by another process"):
        user_store.rows()
    unlock()
    assert user_store.count() == 10


def test_rows_survive_a_kill_during_writing(user_store):
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
        [sys.executable, "-c", code, str(user_store.database.path), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    for _ in range(5):
        last = int(process.stdout.readline())
    process.kill()
    process.wait()
    again = Store(user_store.database.path)
    assert again.notes() == []
    for n in (*range(10), *range(100, last + 1)):
        assert again.row(id_of(a_row(n))) is not None


def damage_all(path):
    path.write_bytes(b"this was a database once " * 400)


def damage_by_truncation(path):
    os.truncate(path, path.stat().st_size // 2)


def damage_header(path):
    with path.open("r+b") as file:
        file.truncate(100)


@pytest.mark.parametrize("damage", [damage_all, damage_by_truncation, damage_header])
@pytest.mark.parametrize("already_open", [True, False], ids=["found later", "found at the start"])
def test_damaged_file_is_set_aside_and_a_new_one_is_used(user_store, damage, already_open):
    _checkpoint(user_store)
    damage(user_store.database.path)
    damaged = user_store.database.path.read_bytes()
    current = user_store if already_open else Store(user_store.database.path)
    for _ in range(2):
        try:
            current.add([a_row(77)])
        except StoreError as e:
            assert "damaged" in str(e)
    (note,) = current.notes()
    assert "set aside as measurements.damaged-" in note and "a new one was begun" in note
    (aside,) = user_store.database.path.parent.glob("measurements.damaged-*.sqlite")
    assert aside.read_bytes() == damaged  # nothing is deleted
    assert current.row(id_of(a_row(77))).row == a_row(77)
    assert Store(user_store.database.path).count() == current.count() >= 1


def test_readable_rows_of_a_damaged_file_are_saved_unchanged(tmp_path):
    user_store = Store(tmp_path / "measurements.sqlite")
    user_store.add([a_row(n) for n in range(200)])
    _checkpoint(user_store)
    size = user_store.database.path.stat().st_size
    with user_store.database.path.open("r+b") as file:  # overwrite two pages in the middle
        file.seek(size // 2 // 4096 * 4096)
        file.write(random.Random(0).randbytes(8192))
    again = Store(user_store.database.path)
    added = {id_of(a_row(n)) for n in range(200)}
    ids = {e.id for e in again.rows()}
    assert "rows were saved into it" in again.notes()[0]
    assert ids <= added and len(ids) > 50
    assert all(id_of(e.row) == e.id for e in again.rows())


def test_empty_file_is_a_new_store(tmp_path):
    path = tmp_path / "measurements.sqlite"
    path.touch()
    assert Store(path).add([a_row()]) == 1


def test_full_disk_is_reported_and_stored_rows_stay(user_store):
    with sqlite3.connect(user_store.database.path) as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    user_store.database.pragmas = (*File.pragmas, f"PRAGMA max_page_count = {pages}")
    many = [a_row(n) for n in range(1000, 1100)]
    with pytest.raises(StoreError, match=r"The disk of .* is full; what was stored before is safe"):
        user_store.add(many)
    assert user_store.count() == 10  # all or none
    assert "is full" in user_store.save(many[:50])
    assert user_store.count() == 60
    user_store.database.pragmas = File.pragmas
    assert user_store.save([]) == "" and Store(user_store.database.path).count() == 60


def test_import_that_does_not_fit_adds_no_row(user_store):
    user_store.database.pragmas = (*File.pragmas, "PRAGMA max_page_count = 1")
    with pytest.raises(StoreError, match="full"):
        user_store.import_(rows.to_json([a_row(n) for n in range(50, 90)]), "mail.json")
    user_store.database.pragmas = File.pragmas
    assert user_store.count() == 10


READ_ONLY = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from kernels.records.store import Store, StoreError
from tests.helpers.rows_of import a_row
Store(Path(sys.argv[3])).add([a_row(0)])  # imports everything: nobody may not read this installation
if os.geteuid() == 0:  # root writes where it likes: from here on as nobody
    os.setuid(65534)
kept = Store(Path(sys.argv[1]))
print(kept.count(), len(kept.rows()))
try:
    kept.add([a_row(50)])
except StoreError as e:
    print(e)
print(kept.save([a_row(51)]))
print(kept.count())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders are made read-only by their mode here")
@pytest.mark.parametrize("exists", [True, False], ids=["a file", "no file"])
def test_read_only_folder_can_be_read_and_is_reported(user_store, exists, tmp_path):
    _checkpoint(user_store)
    folder = user_store.database.path.parent
    if exists:
        user_store.database.path.chmod(0o444)
    else:
        user_store.database.path.unlink()
    within = Path(tempfile.gettempdir())
    above = {path: path.stat().st_mode for path in folder.parents if within in path.parents}
    try:
        for path, mode in above.items():
            path.chmod(mode | 0o055)
        folder.chmod(0o555)
        completed = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(user_store.database.path), str(ROOT), str(tmp_path / "other")],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        folder.chmod(0o755)
        for path, mode in above.items():
            path.chmod(mode)
    lines = completed.stdout.splitlines()
    assert completed.returncode == 0, completed.stderr
    assert lines[0] == ("10 10" if exists else "0 0")
    assert "measurements.sqlite cannot be" in lines[1] and "kept until the app stops" in lines[2]
    assert lines[3] == ("11" if exists else "1")  # the pending run is listed


def test_impossible_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    user_store = Store(tmp_path / "file" / "data" / "measurements.sqlite")
    assert user_store.count() == 0
    with pytest.raises(StoreError, match="cannot be used"):
        user_store.add([a_row()])


def test_malformed_row_is_reported_and_does_not_block_others(user_store):
    assert "cannot be stored" in user_store.save([a_row(samples_ms=[])])
    assert user_store.save([a_row(60)]) == "" and user_store.count() == 11


def test_missing_home_folder_is_reported(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(store.folder, "file", nowhere)
    with pytest.raises(StoreError, match=r"no place to keep measurements.*KERNEL_THEATRE_DATA"):
        store.user_store()


def _checkpoint(user_store: Store) -> None:
    """Write everything into the one file, as after a normal end."""
    with sqlite3.connect(user_store.database.path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    for end in ("-wal", "-shm"):
        Path(f"{user_store.database.path}{end}").unlink(missing_ok=True)
