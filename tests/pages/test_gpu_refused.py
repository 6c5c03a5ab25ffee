"""Pages on a machine whose GPU cannot be used, or not for every rung: the page gives the reason and the rest works."""

import pytest
import streamlit as st

from kernels import engines, records
from kernels.jobs.worker import Worker
from kernels.ladders import LADDERS
from kernels.libraries import wheels
from pages.conv.choose import address as choose_address
from pages.gemm import address as gemm_address
from pages.parts import machine_choice, run
from tests.children.driver import H200, Driver
from tests.helpers.page_runner import finish, open_page, press, strip, texts

OLD_DRIVER = "This computer&#x27;s GPU is not used: the NVIDIA driver supports CUDA 12.4. This app needs driver 580 or newer. Then start the app again."
RTX_2080 = Driver(name=b"NVIDIA GeForce RTX 2080", attributes=H200 | {75: 7, 76: 5, 97: 65_536})


def captions(at) -> str:
    return " ".join(caption.value for caption in at.caption)


@pytest.fixture
def old_driver(machine):
    machine(Driver(version=12040))


@pytest.fixture
def fresh_home():
    st.cache_data.clear()
    yield
    st.cache_data.clear()


@pytest.mark.parametrize(
    ("page", "params"),
    [("conv/choose/page.py", {"predict": "show"}), ("memory/page.py", {}), ("attention/page.py", {})],
)
def test_unusable_gpu_is_explained_beside_run(old_driver, page, params):
    text = texts(open_page(page, **params))
    assert OLD_DRIVER in text and "kt-badge-recorded" in text


def test_rest_of_page_works_without_gpu(old_driver):
    at = open_page("conv/im2col.py", engine="cuda")
    assert "This computer's GPU is not used: the NVIDIA driver supports CUDA 12.4." in captions(at)
    assert at.session_state["engine"] == "cpu"
    finish(at, "run", "job")
    assert "kt-badge-measured" in texts(at) and OLD_DRIVER in texts(at)
    assert "kt-badge-recorded" in texts(at)


def test_machine_without_gpu_is_mentioned_only_in_options(machine):
    machine(None, on_bus=False)
    at = open_page("conv/im2col.py")
    assert "No cuda: no NVIDIA GPU in this machine." in captions(at)
    assert "GPU is not used" not in texts(at) + captions(at)


def test_home_explains_unusable_gpu(old_driver, fresh_home):
    text = texts(open_page(None))
    assert "the NVIDIA driver supports CUDA 12.4. This app needs driver 580 or newer" in text
    assert text.count("kt-absent") == 1 and text.count("kt-here") == 2


def test_home_and_options_name_the_gpu_in_use(machine, fresh_home):
    machine(Driver(count=2))
    assert "NVIDIA H200, GPU 0 of 2" in texts(open_page(None))
    at = open_page("conv/im2col.py")
    assert "cuda runs on GPU 0 of 2, NVIDIA H200. CUDA_VISIBLE_DEVICES chooses another." in captions(at)


# -- a GPU that cannot run every rung --------------------------------------------------------------------
def open_tiling_page(machine, monkeypatch, **params):
    """Returns the tiling page on an RTX 2080, at 64 x 64 x 64, and the list of requests that Run submits."""
    machine(RTX_2080)
    submitted = []
    monkeypatch.setattr(
        run.worker(), "submit", lambda request, **options: submitted.append(request) or failed_job(request)
    )
    at = open_page("gemm/page.py", engine="cuda", **params)
    return at, submitted


def failed_job(request):
    from kernels.jobs.job import Job, Run

    job = Job(request, "", Run(request.key(), b""))
    job.finish(error="stopped here")
    return job


def test_rungs_that_gpu_cannot_run_are_named_and_left_out(machine, monkeypatch):
    monkeypatch.setattr(wheels, "refusal", lambda program: "")
    at, submitted = open_tiling_page(machine, monkeypatch)
    reason = "compute capability 8.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5"
    assert "7 kernels cannot run on this machine</summary>" in texts(at)
    newer = "double buffer, warp tile, operands loaded ahead, grouped order of blocks, cuBLAS TF32"
    assert f"{newer}: {reason}" in texts(at)
    assert f"producer that transposes, 3xTF32 on wgmma: {reason.replace('8.0', '9.0')}" in texts(at)
    press(at, "run", size="stage")
    (request,) = submitted
    assert not {"gemm/double-buffer", "gemm/warp-tile", "gemm/cublas-tf32"} & set(request.rungs)
    assert {"gemm/naive", "gemm/bank-free", "gemm/cublas"} <= set(request.rungs)
    assert "stopped here" in texts(at) and not at.exception


def test_recordings_of_refused_rungs_are_shown(machine, monkeypatch):
    shape = LADDERS["gemm"].presets["square-4096"].shape
    assert records.recorded("gemm/warp-tile", shape, LADDERS["gemm"].rung("gemm/warp-tile").default_tiles)
    at, _ = open_tiling_page(machine, monkeypatch, **gemm_address.write(gemm_address.read(shape.params())[0]))
    assert "cannot run on this machine</summary>" in texts(at) and "kt-badge-recorded" in texts(at)


def test_missing_cublas_refuses_only_its_rungs(machine, monkeypatch):
    missing = "cuBLAS was not found on this machine; pip install nvidia-cublas installs it"
    monkeypatch.setattr(wheels, "missing", lambda library: missing if library == "cublas" else "")
    at, submitted = open_tiling_page(machine, monkeypatch)
    assert f"cuBLAS FP32: {missing}" in texts(at)
    press(at, "run", size="stage")
    assert "gemm/cublas" not in submitted[0].rungs and "gemm/naive" in submitted[0].rungs


def test_nothing_is_submitted_if_no_rung_can_run(machine, monkeypatch):
    at, submitted = open_tiling_page(machine, monkeypatch)
    from pages.parts.run_settings import RunSettings

    monkeypatch.setattr(RunSettings, "runs", lambda self: [])
    press(at, "run", size="stage")
    assert not submitted and not at.exception
    assert "No kernel can run here on the cuda engine at this shape." in texts(at)


# -- an error only in the child process -------------------------------------------------------------------
@pytest.mark.skipif(engines.load("cuda").status().ready, reason="CuPy finds a driver here")
def test_error_in_child_process_is_shown_on_page(machine, monkeypatch):
    """The next run on the processor is tested in tests/kernels/engines/cuda/test_session.py."""
    pytest.importorskip("cupy")
    machine(Driver())
    worker = Worker(module="tests.children.gpu_machine")
    for module in (run, machine_choice):
        monkeypatch.setattr(module, "worker", lambda: worker)
    try:
        at = open_page("conv/im2col.py", engine="cuda")
        finish(at, "run", "job")
        assert "driver 580 or newer (cudaErrorInsufficientDriver" in texts(at) and "ran" not in at.session_state
        assert "kt-badge-recorded" in texts(at) and strip(at)["run"]["label"] == "Run here"
    finally:
        worker.close()


def test_run_with_all_rungs_refused_keeps_previous_result(monkeypatch):
    at = open_page("conv/im2col.py", engine="cpu")
    finish(at, "run", "job")
    previous = at.session_state["ran"]

    def refused(request, **options):
        job = failed_job(request)
        job.result = lambda timeout=None: [{"rung": r, "unsupported": "it has no room"} for r in request.rungs]
        return job

    monkeypatch.setattr(run.worker(), "submit", refused)
    press(at, "run", size="stage")
    assert not at.exception and "direct: it has no room; im2col + our GEMM: it has no room" in texts(at)
    assert at.session_state["ran"] is previous and "kt-badge-measured" in texts(at)


def test_race_explains_rungs_missing_on_this_gpu(machine, monkeypatch):
    monkeypatch.setattr(wheels, "refusal", lambda program: "")
    machine(RTX_2080)
    row = {"engine": "cuda", "mode": "cold"}
    shape = LADDERS["conv"].presets["toy"].shape
    found = {
        kind: choose_address.without_lane(choose_address.Race({"conv/direct": row}, kind, shape))
        for kind in ("measured", "recorded")
    }
    reason = "compute capability 8.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5"
    assert next(out.titles for out in found["measured"] if out.reason == reason)[:2] == (
        "implicit GEMM, plain divisions",
        "implicit GEMM",
    )
    assert reason not in [out.reason for out in found["recorded"]]


def test_next_run_after_refusal_is_measured_again(monkeypatch):
    """The worker caches results of equal requests, but the missing memory may be free by now."""
    fresh = []

    def refused(request, **options):
        fresh.append(options["fresh"])
        job = failed_job(request)
        job.result = lambda timeout=None: [{"rung": rung, "unsupported": "no room"} for rung in request.rungs]
        return job

    monkeypatch.setattr(run.worker(), "submit", refused)
    at = open_page("conv/im2col.py", engine="cpu")
    for _ in range(2):
        press(at, "run", size="stage")
        assert "no room" in texts(at)
    assert fresh == [False, True]
