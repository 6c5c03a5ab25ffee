"""The shipped recordings are read once for all readers, with one object for equal values."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

from kernels.records import files
from kernels.records.gpus import Gpu


def test_readers_who_come_together_read_the_files_once(monkeypatch):
    reads = []

    def slow():
        reads.append(1)
        time.sleep(0.1)
        return iter([(Gpu("a GPU"), {"device": "a GPU"})])

    monkeypatch.setattr(files, "_shipped", slow)
    files.forget()
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: files.read(), range(8)))
        assert len(reads) == 1 and all(one is found[0] for one in found)
    finally:
        monkeypatch.undo()
        files.forget()


def test_rows_are_those_of_the_file_and_share_equal_values(tmp_path, monkeypatch):
    rows = [{"device": "a GPU", "ms": [0.25, 0.25], "n": 3, "at": {"text": "a\u2028b", "x": 0.25}}] * 2
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "gpu.jsonl").write_text(f"{lines}\n\n", encoding="utf-8")
    monkeypatch.setattr(files, "paths", lambda ending: iter([(tmp_path / "gpu.jsonl", False)]))
    (_, first), (_, second) = files._shipped()
    assert [first, second] == rows
    assert first["ms"][0] is second["ms"][1] and first["device"] is second["device"]
    assert next(iter(first)) is next(iter(second))
