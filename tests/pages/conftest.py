"""Ends the process that ran kernels for the pages after each file of these tests."""

import pytest

from pages.parts.worker import worker


@pytest.fixture(scope="module", autouse=True)
def stop_the_worker():
    yield
    worker().close()
    worker.clear()
