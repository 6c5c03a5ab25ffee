"""The time of a copy by its bytes: between two rows, never beyond them."""

from __future__ import annotations

import json

import pytest

from kernels.records import copies

ROWS = [{"device": "GPU", "bytes": n, "median_ms": ms} for n, ms in ((400, 0.5), (100, 0.1), (200, 0.3))]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "FILE", tmp_path / "copies.json")
    copies.FILE.write_text(json.dumps([*ROWS, {"device": "other", "bytes": 300, "median_ms": 9.0}]), "utf-8")
    copies.rows.cache_clear()
    yield
    copies.rows.cache_clear()


@pytest.mark.parametrize(("nbytes", "ms"), [(100, 0.1), (150, 0.2), (200, 0.3), (300, 0.4), (400, 0.5)])
def test_a_copy_takes_a_time_between_its_neighbours(recorded, nbytes, ms):
    assert copies.copy_ms(nbytes, "GPU") == pytest.approx(ms)


@pytest.mark.parametrize("nbytes", [99, 401])
def test_no_time_is_invented_beyond_the_rows(recorded, nbytes):
    assert copies.copy_ms(nbytes, "GPU") is None


def test_a_device_without_rows_has_no_times(recorded):
    assert copies.rows("none") == () and copies.copy_ms(150, "none") is None


def test_nothing_is_recorded_without_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "FILE", tmp_path / "none.json")
    copies.rows.cache_clear()
    assert copies.rows("GPU") == ()
    copies.rows.cache_clear()
