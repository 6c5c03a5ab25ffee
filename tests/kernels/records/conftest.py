"""A store of each kind, for the tests that hold for both."""

from __future__ import annotations

import pytest

from kernels.records.store import Store

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]  # a server starts in seconds


def new_store(kind: str, request, folder) -> Store:
    """Returns an empty store. A server has one database for all tests."""
    if kind == "sqlite":
        return Store(folder / "data" / "measurements.sqlite")
    server = request.getfixturevalue("postgres")
    server.execute("DROP TABLE IF EXISTS rows, kernel_theatre_schema")
    return Store(server.url())


@pytest.fixture(params=KINDS)
def user_store(request, tmp_path):
    return new_store(request.param, request, tmp_path)
