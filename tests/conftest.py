"""What tests may need: a GPU, a browser, a machine with another driver. Without a GPU or browser they are skipped; in CI
those of the browser never are."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil

import pytest

from kernels import engines
from kernels.engines import cuda
from kernels.libraries import wheels
from kernels.machine import driver as machine_driver
from kernels.records import folder
from tests.helpers import emulated_numbers

# Without Playwright (a machine with a GPU and no browser) the tests of the browser fail at their first fixture.
pytest_plugins = ["tests.helpers.browser"] if importlib.util.find_spec("playwright") else []

# A decoded kernel is 10^5 objects that live as long as its launch. At Python's own thresholds the collector visits them
# again and again: half of the time of the emulator's tests.
gc.set_threshold(200_000, 20, 100)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(items):
    gpu = engines.load("cuda").status()
    for item in items:
        if item.get_closest_marker("gpu") and not gpu.ready:
            item.add_marker(pytest.mark.skip(reason=gpu.why))
        if item.get_closest_marker("browser") and not CHROMIUM and not os.environ.get("CI"):
            reason = "no Chromium here: install it (Debian: apt-get install chromium) to run browser tests"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _reset_random_numbers():
    """The random numbers of the emulator's tests begin anew with each test, in whichever process."""
    emulated_numbers.rng.bit_generator.state = emulated_numbers.START


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
def temporary_store(tmp_path_factory):
    """Nothing a test runs, in this process or in one it starts, writes to the store of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(folder.VARIABLE, str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Makes this a machine with that driver (None: without one), and with or without an NVIDIA GPU on its PCI bus."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cached_functions = machine_driver.find, cuda.status, wheels.missing

    def make(driver, on_bus: bool = True):
        def library():
            if driver is None:
                raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")
            return driver

        for n, vendor in enumerate(("0x8086", "0x10de" if on_bus else "0x1af4")):
            device = tmp_path / f"0000:0{n}:00.0"
            device.mkdir(exist_ok=True)
            (device / "vendor").write_text(f"{vendor}\n")
            (device / "class").write_text("0x030200\n")
        monkeypatch.setattr(machine_driver, "PCI", tmp_path)
        monkeypatch.setattr(machine_driver, "library", library)
        for function in cached_functions:
            function.cache_clear()

    yield make
    for function in cached_functions:
        function.cache_clear()
