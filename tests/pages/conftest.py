"""Each file of these tests has a process that runs kernels, of its own. Browsers use an app with a job service."""

import pytest

from kernels.jobs import settings
from kernels.jobs.job import SECONDS
from pages.parts.worker import worker


@pytest.fixture(scope="session", autouse=True)
def run_in_this_process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(settings.VARIABLE, settings.HERE)
        yield


@pytest.fixture(autouse=True)
def short_runs(request, monkeypatch):
    """Without a browser nobody has to see a run while it goes on."""
    if not request.node.get_closest_marker("browser"):
        monkeypatch.setenv(SECONDS, "0.1")


@pytest.fixture(scope="module", autouse=True)
def stop_the_worker():
    yield
    worker().close()
    worker.clear()
