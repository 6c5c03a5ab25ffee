"""A store of each kind, for the tests that hold for both."""

from __future__ import annotations

import pytest

from tests.helpers.stores import KINDS, new_store


@pytest.fixture(params=KINDS)
def user_store(request, tmp_path):
    return new_store(request.param, request, tmp_path)
