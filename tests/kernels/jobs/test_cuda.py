"""Real faults on a real GPU: each ends one run with a message, and the next kernel runs."""

from __future__ import annotations

import time

import pytest

from kernels.conv.shape import ConvShape
from kernels.jobs.job import JobError, Request
from kernels.jobs.worker import Worker
from tests.children.helpers import begun

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

TOY = Request(("conv/direct",), ConvShape(1, 1, 8, 8, 2, 3, 3), engine="cuda", seconds=0.05)
HUGE = Request(("conv/direct", "conv/im2col-gemm"), ConvShape(64, 1024, 512, 512, 1024, 3, 3), engine="cuda")


@pytest.fixture
def worker():
    worker = Worker(deadline_s=60, module="tests.children.cuda_faults")
    worker.submit(TOY).result(60)
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("act", "meaning", "name"),
    [
        ("out of bounds", "a kernel read or wrote memory that is not its own", "ErrorIllegalAddress"),
        ("block", "the GPU takes no launch of this grid and block", "CUDA_ERROR_INVALID_VALUE"),
        ("allocate", "the GPU's memory is full", "OutOfMemoryError: Out of memory allocating 300,000,000,"),
    ],
)
def test_fault_is_a_job_error_and_the_next_kernel_runs(worker, act, meaning, name):
    pid = worker._child.pid
    with pytest.raises(JobError) as raised:
        worker.submit(Request((act,), None)).result(60)
    text = str(raised.value)
    assert text.startswith(f"{meaning}, while verifying {act}; ") and name in text, text
    rows = worker.submit(TOY, fresh=True).result(60)
    assert rows[0]["engine"] == "cuda" and rows[0]["median_ms"] > 0
    assert worker._child.pid != pid


def test_endless_kernel_is_stopped_and_the_next_runs_within_a_second():
    worker = Worker(deadline_s=8, module="tests.children.cuda_faults")
    worker.submit(TOY).result(60)
    hanging = worker.submit(Request(("hang",), None))
    begun(hanging)
    queued = worker.submit(TOY, fresh=True)
    with pytest.raises(JobError, match="not done after 8 s"):
        hanging.result(60)
    stopped = time.monotonic()
    while queued.text in ("waiting", "starting") and not queued.done:
        time.sleep(0.001)
    waited = time.monotonic() - stopped
    assert queued.result(60)[0]["median_ms"] > 0
    print(f"ran {waited:.3f} s after the deadline, answered {time.monotonic() - stopped:.3f} s after it")
    assert waited < 1
    worker.close()


def test_error_for_300_gb_names_the_bytes(worker):
    start = time.monotonic()
    with pytest.raises(JobError, match=r"needs [\d,]{15,} bytes of memory for the cuda engine"):
        worker.submit(HUGE).result(60)
    assert time.monotonic() - start < 2
    assert worker.submit(TOY, fresh=True).result(60)
