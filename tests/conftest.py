"""What every test may ask for: a GPU, a browser. Missing ones skip, but never in CI for the browser."""

from __future__ import annotations

import os
import shutil

import pytest

from kernels import engines
from kernels.records import place

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(items):
    gpu = engines.load("cuda").status()
    for item in items:
        if item.get_closest_marker("gpu") and not gpu.ready:
            item.add_marker(pytest.mark.skip(reason=gpu.text))
        if item.get_closest_marker("browser") and not CHROMIUM and not os.environ.get("CI"):
            reason = "no Chromium here: install it (Debian: apt-get install chromium) to run browser tests"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def chromium() -> str:
    assert CHROMIUM, "Chromium is missing: install it (Debian: apt-get install chromium)"
    return CHROMIUM


@pytest.fixture(scope="session")
def node() -> str:
    """Node.js, which reads and runs the player's modules. In CI it must be there."""
    found = shutil.which("node")
    if not found and not os.environ.get("CI"):
        pytest.skip("no Node.js here: install it (Debian: apt-get install nodejs)")
    assert found, "Node.js is missing: install it (Debian: apt-get install nodejs)"
    return found


@pytest.fixture(scope="session", autouse=True)
def store_of_tests(tmp_path_factory):
    """Nothing a test runs, in this process or in one it starts, writes to the store of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(place.VARIABLE, str(tmp_path_factory.mktemp("data")))
        yield
