"""Deliberate faults in the child: each ends one run with a message, and the next one runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from kernels.jobs import faults
from kernels.jobs import worker as worker_module
from kernels.jobs.job import JobError, Request
from kernels.jobs.process import ROOT
from kernels.jobs.worker import Worker
from tests.children.acts import RAISED
from tests.children.helpers import act, begun, until
from tests.helpers.offenders import every

posix = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture(scope="module")
def worker():
    """One worker for all tests: after each fault the next test must still work."""
    worker = Worker(deadline_s=20, module="tests.children.acts")
    yield worker
    worker.close()


@pytest.fixture
def impatient():
    worker = Worker(deadline_s=1, module="tests.children.acts")
    worker.submit(act("sleep 0")).result(20)
    yield worker
    worker.close()


def error_text(worker, what, *rungs) -> str:
    with pytest.raises(JobError) as raised:
        worker.submit(Request((what, *rungs), "the shape")).result(30)
    assert worker.submit(act("sleep 0"), fresh=True).result(30), "the next one is served"
    return str(raised.value)


# -- hangs, crashes, rubbish -------------------------------------------------------------------------
def test_hang_ends_at_the_deadline_and_a_spare_is_ready(impatient):
    start = time.monotonic()
    hanging, queued = impatient.submit(act("hang")), impatient.submit(act("sleep 0.01"))
    until(lambda: impatient._spare is not None)
    spare = impatient._spare
    with pytest.raises(JobError, match=r"^stopped: not done after 1 s"):
        hanging.result(20)
    assert 0.9 < time.monotonic() - start < 5
    assert queued.result(20)[0]["pid"] == spare.pid == impatient._child.pid and impatient._spare is None


def test_a_short_run_starts_no_spare(impatient):
    impatient.submit(act("sleep 0.1")).result(20)
    assert impatient._spare is None


@posix
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("die SIGKILL", "SIGKILL, perhaps for want of memory"),
        ("die SIGSEGV", "SIGSEGV"),
        ("exit 3", "exit status 3"),
        ("exit 0", "exit status 0"),
    ],
)
def test_dead_child_costs_one_run(worker, what, reason):
    assert error_text(worker, what, "conv/b") == (
        f"the process that ran {what}, conv/b died ({reason}) while verifying conv/b; nothing else was touched, "
        "and the next run has a fresh one"
    )


@posix
def test_child_killed_from_outside_during_and_between_runs(worker):
    job = worker.submit(act("hang"))
    begun(job)
    os.kill(worker._child.pid, signal.SIGKILL)
    with pytest.raises(JobError, match=r"died \(SIGKILL"):
        job.result(20)
    first = worker.submit(act("sleep 0"), fresh=True).result(20)[0]["pid"]
    os.kill(first, signal.SIGKILL)  # it is idle: the next request must not notice, however soon it comes
    assert worker.submit(act("sleep 0"), fresh=True).result(20)[0]["pid"] != first


def test_output_of_a_library_is_not_a_message(worker):
    assert worker.submit(act("print hello")).result(20)[0]["rung"] == "print hello"


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="Linux")
def test_rubbish_between_messages_ends_the_child(worker):
    text = error_text(worker, "rubbish hello")
    assert "died (it answered nothing that makes sense: ProtocolError" in text


def test_rows_that_cannot_be_pickled_are_an_error_and_the_child_lives(worker):
    pid = worker.submit(act("sleep 0"), fresh=True).result(20)[0]["pid"]
    assert "Can't pickle" in error_text(worker, "unpicklable")
    assert worker._child.pid == pid


def test_child_that_cannot_start_is_an_error_and_is_not_restarted_in_a_loop(capfd):
    worker = Worker(module="tests.children.broken")
    for n in (1, 2):
        with pytest.raises(JobError, match=r"does not start \(exit status 1\); the terminal of the app or the log"):
            worker.submit(act("sleep 0")).result(20)
        time.sleep(0.3)  # time enough for a loop to show
        assert capfd.readouterr().err.count("ImportError: no such library here") == 1, n
    worker.close()


def test_child_that_is_never_ready(monkeypatch):
    monkeypatch.setattr(worker_module, "START_S", 0.2)
    worker = Worker(module="tests.children.mute")
    with pytest.raises(JobError, match=r"does not start within 0.2 s"):
        worker.submit(act("sleep 0")).result(20)
    worker.close()


def test_error_if_no_process_can_be_started(monkeypatch):
    def none(module):
        raise OSError("too many open files")

    monkeypatch.setattr(worker_module, "Process", none)
    worker = Worker()
    for _ in range(2):
        with pytest.raises(JobError, match="cannot be started: too many open files"):
            worker.submit(act("sleep 0")).result(20)
    worker.close()


@posix
@pytest.mark.parametrize("what", ["sleep 0", "hang"])
def test_no_child_outlives_the_app(what):
    app = subprocess.Popen(
        [sys.executable, "-m", "tests.children.owner", what], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    child = psutil.Process(int(app.stdout.readline()))
    assert child.is_running()
    app.kill()
    app.wait()
    app.stdout.close()
    child.wait(10)


def test_closing_leaves_no_process():
    worker = Worker(module="tests.children.acts")
    begun(worker.submit(act("hang")))
    child = worker._child
    worker.close()
    until(lambda: child._process.poll() is not None)


# -- errors of the GPU, and of memory ------------------------------------------------------------
RUNTIME = {
    "cudaErrorIllegalAddress: an illegal memory access was encountered": "memory that is not its own",
    "cudaErrorMemoryAllocation: out of memory": "the GPU's memory is full",
    "cudaErrorLaunchOutOfResources: too many resources requested for launch": "more registers or shared memory",
    "cudaErrorInvalidConfiguration: invalid configuration argument": "no launch of this grid and block",
    "cudaErrorNoKernelImageForDevice: no kernel image is available": "compiled for another GPU",
    "cudaErrorLaunchTimeout: the launch timed out and was terminated": "ran longer than a GPU that also draws",
    "cudaErrorLaunchFailure: unspecified launch failure": "a kernel failed on the GPU",
    "cudaErrorIllegalInstruction: an illegal instruction was encountered": "an instruction it does not know",
    "cudaErrorMisalignedAddress: misaligned address": "not aligned",
    "cudaErrorInsufficientDriver: CUDA driver version is insufficient": "driver is older than this CUDA",
    "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable": "cannot be used now",
    "cudaErrorSystemDriverMismatch: system has unsupported display driver": "different versions",
    "cudaErrorOfTomorrow: who knows": "the GPU reported an error",
}
DRIVER = {
    "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered": "memory that is not its own",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory": "the GPU's memory is full",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources": "more registers or shared memory",
    "CUDA_ERROR_INVALID_VALUE: invalid argument": "no launch of this grid and block",
    "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image": "compiled for another GPU",
    "CUDA_ERROR_LAUNCH_TIMEOUT: timed out": "ran longer",
    "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure": "a kernel failed on the GPU",
}
OTHERS = {
    "nvrtc NVRTC_ERROR_COMPILATION (6)": "the CUDA C++ does not compile",
    'compile kernel.cu(3): error: identifier "y" is undefined': "the CUDA C++ does not compile",
    "memory Out of memory allocating 300,000,000,000 bytes (allocated so far: 0 bytes).": "the GPU's memory is full",
}
RAISES = {
    **{f"runtime {message}": what for message, what in RUNTIME.items()},
    **{f"driver {message}": what for message, what in DRIVER.items()},
    **OTHERS,
}


@every("raised", RAISES)
def test_message_says_what_happened_where_and_what_to_try(raised):
    kind, _, message = raised.partition(" ")
    error = RAISED[kind](message)
    assert faults.is_gpu_error(error)
    text = faults.sentence(error, "while verifying im2col")
    assert RAISES[raised] in text.partition(", while verifying im2col; ")[0]
    advice, _, original = text.partition(", while verifying im2col; ")[2].partition(" (")
    assert len(advice) > 15 and original.endswith(")")
    for word in message.rstrip(".").split():
        assert word.strip(":") in original


def test_every_meaning_has_a_test():
    assert not [m.what for m in faults.MEANINGS if not any(what in m.what for what in RAISES.values())]


@pytest.mark.parametrize("raised", ["runtime cudaErrorIllegalAddress: an illegal memory access", *OTHERS])
def test_new_process_after_a_gpu_error(worker, raised):
    pid = worker.submit(act("sleep 0"), fresh=True).result(20)[0]["pid"]
    text = error_text(worker, f"raise {raised}", "conv/b")
    assert ", while verifying conv/b; " in text and RAISES.get(raised, "not its own") in text
    assert worker.submit(act("sleep 0"), fresh=True).result(20)[0]["pid"] != pid


def test_an_error_while_timing_names_every_rung_that_was_timed(worker):
    text = error_text(worker, "timing cudaErrorLaunchTimeout: late", "conv/b")
    assert "while timing 2 rungs, interleaved (timing cudaErrorLaunchTimeout: late, conv/b)" in text


def test_long_compiler_message_is_cut():
    text = faults.sentence(RAISED["compile"]("x" * 5000), "while verifying it")
    assert len(text) < 900 and text.endswith(" ...)")


def test_lack_of_memory_and_bugs_are_errors_and_the_child_lives(worker):
    pid = worker.submit(act("sleep 0"), fresh=True).result(20)[0]["pid"]
    text = error_text(worker, "raise host", "conv/b")
    assert text.startswith("the shape does not fit in this machine's memory, while verifying conv/b; take a smaller")
    assert error_text(worker, "raise bug no", "conv/b") == "ZeroDivisionError while verifying conv/b: no"
    assert "memory" in error_text(worker, f"allocate {10**15}")
    assert worker._child.pid == pid
