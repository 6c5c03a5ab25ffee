"""After each file of these tests the process that ran kernels for its pages ends."""

import pytest

from pages.parts.worker import worker


@pytest.fixture(scope="module", autouse=True)
def stop_the_worker():
    yield
    worker().close()
    worker.clear()
