"""Every page on a machine with a GPU: the tests of the simulated GPU, and those that need a real one."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

pytest.importorskip("streamlit", reason="the pages need Streamlit; python -m tests.helpers.wheels fetches it")

from kernels.conv.presets import CONV_PRESETS
from kernels.engines import cuda
from pages.parts.worker import worker
from tests.children.helpers import begun
from tests.helpers.gpu_scenarios import *  # noqa: F403  the tests themselves
from tests.helpers.gpu_scenarios import LESSONS
from tests.helpers.openings import openings
from tests.helpers.page_runner import finish, open_page, press, texts

pytestmark = pytest.mark.gpu

# Limits of the shapes that are run: the float64 reference of a larger shape takes the processor many seconds.
MAX_FLOPS, MAX_BYTES = 3e9, 1e8
LARGE = CONV_PRESETS["vgg-conv1_2"].shape.params()
HUGE = {"N": 64, "C": 1024, "H": 512, "W": 512, "K": 1024}


@pytest.fixture(autouse=True, scope="module")
def device():
    """Yields the name of this machine's GPU, with a worker for this module."""
    worker.clear()
    yield cuda.status().text
    worker().close()
    worker.clear()


SMALL = [
    opening
    for opening in openings()
    if opening.page in LESSONS and opening.shape.flops <= MAX_FLOPS and opening.shape.bytes <= MAX_BYTES
]


@pytest.mark.parametrize("opening", SMALL, ids=str)
def test_every_preset_runs(device, opening):
    at = open_page(opening.page, **opening.params)
    finish(at, "run", "job")
    assert at.session_state["ran"].rows, texts(at)
    assert f"measured {device}" in texts(at)


def test_shape_too_large_for_gpu_is_refused_and_next_run_works(device):
    at = open_page("conv/im2col.py", **HUGE)
    finish(at, "run", "job")
    assert "ran" not in at.session_state
    assert "bytes of memory for the cuda engine" in texts(at)
    assert "take a smaller shape or batch" in texts(at)
    _assert_next_run_works(device)


def test_stop_ends_run_and_next_run_works(device):
    at = _start_run()
    press(at, "stop")
    _rerun_until_done(at)
    assert "cancelled" in texts(at) and "ran" not in at.session_state
    _assert_next_run_works(device)


def test_killed_process_is_reported_and_next_run_works(device):
    at = _start_run()
    os.kill(worker()._child.pid, signal.SIGKILL)
    _rerun_until_done(at)
    assert "died (SIGKILL" in texts(at) and "ran" not in at.session_state
    _assert_next_run_works(device)


def _start_run():
    """Returns a page whose run takes many seconds, after the run has begun to compute."""
    at = open_page("conv/im2col.py", **LARGE)
    press(at, "run", size="stage")
    begun(at.session_state["job"][0], "computing")
    return at


def _rerun_until_done(at) -> None:
    """Waits for the job and reruns the page as its polling does; then the page has no job."""
    if "job" in at.session_state:
        with contextlib.suppress(Exception):
            at.session_state["job"][0].result(60)
        at.run()
    assert not at.exception and "job" not in at.session_state


def _assert_next_run_works(device) -> None:
    at = open_page("conv/direct.py")
    finish(at, "run", "job")
    assert f"measured {device}" in texts(at)
