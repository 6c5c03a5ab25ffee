"""An empty store of each kind, for tests that hold for both."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.records.store import Store

KINDS = ["sqlite", "postgresql"]


def new_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """Returns an empty store. A server has one database for all tests."""
    if kind == "sqlite":
        return Store(folder / "data" / "measurements.sqlite")
    server = request.getfixturevalue("postgres")
    server.execute("DROP TABLE IF EXISTS rows, kernel_theatre_schema")
    return Store(server.url())
