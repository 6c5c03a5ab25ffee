"""Fixtures of the emulator's tests."""

from __future__ import annotations

import pytest

from tests.helpers import emulated


@pytest.fixture(scope="module", params=[True, False], ids=["machine code", "NumPy"])
def both_ways(request):
    """Runs a module's tests with machine code and by NumPy alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(emulated.DEFAULTS, "machine_code", request.param)
        yield
