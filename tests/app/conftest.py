"""After each file of these tests the process that ran kernels for its pages ends."""

import pytest

from pages import _run


@pytest.fixture(scope="module", autouse=True)
def stop_the_worker():
    yield
    _run.worker().close()
    _run.worker.clear()
