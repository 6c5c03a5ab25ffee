"""Fixtures for tests that need a GPU, a browser, Node.js or a machine with another driver.

Tests without their GPU or browser are skipped. In CI browser tests are never skipped.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
from pathlib import Path

import hypothesis
import pytest

from kernels import engines
from kernels.engines.cuda import device
from kernels.jobs import job
from kernels.libraries import wheels
from kernels.machine import driver as machine_driver
from kernels.records import folder
from tests.helpers import emulated_numbers, shared_recordings
from tests.helpers.postgres import PostgreSQL

# Packages that only tests import, with the words in a test file that import them. A machine with a GPU may lack them:
# it cannot collect such a file, and none of these files needs a GPU.
PACKAGES = {"playwright": "playwright.sync_api", "babel": "tests.helpers.untranslated", "textstat": "textstat"}
MISSING = [words for package, words in PACKAGES.items() if not importlib.util.find_spec(package)]

pytest_plugins = [] if PACKAGES["playwright"] in MISSING else ["tests.helpers.browser"]

# A decoded kernel is 10^5 objects that live as long as its launch. At Python's default thresholds the garbage collector
# visits them repeatedly: half of the time of the emulator's tests.
gc.set_threshold(200_000, 20, 100)

# On a busy machine an example takes any time. What never ends is ended by pytest's timeout. CI takes the same examples in each
# run, so that a change fails by what it changes.
hypothesis.settings.register_profile(
    "busy",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
hypothesis.settings.load_profile("busy")

# The files that take longest begin first: the last of them would otherwise run alone, beside a process that has nothing
# left. By processor seconds on two cores, `--durations=0` tells where a file belongs; the others follow by name.
TESTS = Path(__file__).parent
LONGEST_FIRST = """
    pages/test_chapters_browser.py kernels/engines/emulator/watch/test_same_bits.py
    kernels/engines/emulator/test_hardware_counters.py pages/test_accessibility.py
    hall/test_parity.py pages/parts/test_run_browser.py kernels/attention/backward/test_ladder.py
    pages/gemm/test_browser.py kernels/jobs/test_service.py visuals/site/test_hall_browser.py
    kernels/gemm/test_tensor_cores.py kernels/attention/test_hopper.py pages/conv/test_controls_browser.py
    pages/test_home_browser.py kernels/attention/test_variants.py pages/test_chapters.py pages/test_back.py
    visuals/stage/test_app.py pages/gemm/test_page.py pages/test_gpu.py pages/test_tiles_on_stage.py
    pages/train/test_page.py kernels/attention/test_ladder.py kernels/attention/test_cpu_ladder.py docs/test_deck.py
    kernels/jobs/test_faults.py kernels/conv/backward/test_rungs.py kernels/jobs/test_queue.py
    pages/conv/choose/test_page.py kernels/attention/test_tensor_cores.py pages/test_guess_browser.py
    kernels/norm/test_ladder.py kernels/jobs/test_episode.py visuals/stage/test_present.py
    pages/attention/test_page.py kernels/linear/test_ladder.py visuals/stage/test_mishaps.py hall/test_hall.py
    visuals/site/test_site_browser.py kernels/fusion/test_ladder.py pages/history/test_browser.py
    kernels/gemm/test_ladder.py kernels/gemm/test_hopper.py visuals/stage/test_takeaway.py wasm/test_wasm.py
""".split()
PLACES = {TESTS / name: place for place, name in enumerate(LONGEST_FIRST)}
assert all(path.exists() for path in PLACES), [path for path in PLACES if not path.exists()]

# The headless shell takes a quarter less time for the same pages.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


def pytest_ignore_collect(collection_path):
    if MISSING and not os.environ.get("CI") and collection_path.suffix == ".py":
        text = collection_path.read_text(encoding="utf-8")
        return any(f"from {words} import" in text or f"import {words}\n" in text for words in MISSING) or None
    return None


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # the modules and tests, 10^6 objects, stay until the end: they need no more visits


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: PLACES.get(item.path, len(PLACES)))
    gpu = engines.load("cuda").status()
    for item in items:
        if item.get_closest_marker("gpu") and not gpu.ready:
            item.add_marker(pytest.mark.skip(reason=gpu.why))
        if item.get_closest_marker("browser") and not CHROMIUM and not os.environ.get("CI"):
            reason = "no Chromium here: install it (Debian: apt-get install chromium) to run browser tests"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _reset_random_numbers():
    """Resets the random numbers of the emulator's tests before each test, in every process."""
    emulated_numbers.rng.bit_generator.state = emulated_numbers.START


@pytest.fixture(scope="session")
def chromium() -> str:
    assert CHROMIUM, "Chromium is missing: install it (Debian: apt-get install chromium)"
    return CHROMIUM


@pytest.fixture(scope="session")
def node() -> str:
    """Returns the path of Node.js, which runs the player's modules. In CI it must exist."""
    found = shutil.which("node")
    if not found and not os.environ.get("CI"):
        pytest.skip("no Node.js here: install it (Debian: apt-get install nodejs)")
    assert found, "Node.js is missing: install it (Debian: apt-get install nodejs)"
    return found


@pytest.fixture(scope="session")
def postgres():
    """Starts a PostgreSQL server for the tests of one process. Skips the test where none is installed."""
    server = PostgreSQL()
    yield server
    server.close()


@pytest.fixture(scope="session", autouse=True)
def temporary_store(tmp_path_factory):
    """Sets a temporary folder for the store, so that tests and their child processes never write to the user's store.

    The pages' runs take their samples in one second: three of each kernel at least, as in a run of any length.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(job.SECONDS, "1")
        patch.setenv(folder.VARIABLE, str(tmp_path_factory.mktemp("data")))
        patch.delenv(folder.STORE, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _recordings(tmp_path_factory):
    """Shares recordings of kernels between the tests and processes of this run."""
    own = tmp_path_factory.getbasetemp()
    folder_of_run = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "recordings"
    folder_of_run.mkdir(exist_ok=True)
    os.environ[shared_recordings.VARIABLE] = str(folder_of_run)
    shared_recordings.install()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Returns a function that simulates a machine: with a driver or None, with or without an NVIDIA GPU on the PCI bus."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cached_functions = machine_driver.find, device.status_here, wheels.missing

    def make(driver, on_bus: bool = True):
        def library():
            if driver is None:
                raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")
            return driver

        for n, vendor in enumerate(("0x8086", "0x10de" if on_bus else "0x1af4")):
            slot = tmp_path / f"0000:0{n}:00.0"
            slot.mkdir(exist_ok=True)
            (slot / "vendor").write_text(f"{vendor}\n")
            (slot / "class").write_text("0x030200\n")
        monkeypatch.setattr(machine_driver, "PCI", tmp_path)
        monkeypatch.setattr(machine_driver, "library", library)
        for function in cached_functions:
            function.cache_clear()

    yield make
    for function in cached_functions:
        function.cache_clear()
