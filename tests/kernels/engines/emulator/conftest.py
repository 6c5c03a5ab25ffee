"""Fixtures of the emulator's tests."""

from __future__ import annotations

import pytest

from kernels.engines.emulator.native import engine


@pytest.fixture(scope="module", params=[True, False], ids=["machine code", "NumPy"])
def both_ways(request):
    """Runs a module's tests with machine code and by NumPy alone."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            patch.setattr(engine, "is_available", lambda: False)
        yield
