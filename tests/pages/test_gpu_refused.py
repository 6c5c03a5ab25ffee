"""Pages on a machine whose GPU cannot be used, or not for everything: the page says why, and the rest of it works."""

import pytest
import streamlit as st

from kernels import engines, records
from kernels.jobs.worker import Worker
from kernels.ladders import LADDERS
from kernels.libraries import wheels
from pages.conv.choose import address as choose_address
from pages.gemm import address as gemm_address
from pages.parts import run as run_card
from tests.children.driver import H200, Driver
from tests.helpers.opened import finish, open_page, texts

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
def test_a_gpu_that_cannot_be_used_is_told_beside_run(old_driver, page, params):
    shown = texts(open_page(page, **params))
    assert OLD_DRIVER in shown and "kt-badge-recorded" in shown


def test_the_rest_of_the_page_works(old_driver):
    at = open_page("conv/im2col.py", engine="cuda")
    assert "This computer's GPU is not used: the NVIDIA driver supports CUDA 12.4." in captions(at)
    assert at.session_state["engine"] == "cpu"
    finish(at, "run", "job")
    assert "kt-badge-measured" in texts(at) and OLD_DRIVER in texts(at)
    assert "kt-badge-recorded" in texts(at)


def test_a_machine_without_a_gpu_says_so_in_the_options_alone(machine):
    machine(None, on_bus=False)
    at = open_page("conv/im2col.py")
    assert "No cuda: no NVIDIA GPU in this machine." in captions(at)
    assert "GPU is not used" not in texts(at) + captions(at)


def test_home_says_why_and_what_to_do(old_driver, fresh_home):
    shown = texts(open_page(None))
    assert "the NVIDIA driver supports CUDA 12.4. This app needs driver 580 or newer" in shown
    assert shown.count("kt-absent") == 1 and shown.count("kt-here") == 2


def test_home_and_options_say_which_of_two_gpus_is_used(machine, fresh_home):
    machine(Driver(count=2))
    assert "NVIDIA H200, GPU 0 of 2" in texts(open_page(None))
    at = open_page("conv/im2col.py")
    assert "cuda runs on GPU 0 of 2, NVIDIA H200. CUDA_VISIBLE_DEVICES chooses another." in captions(at)


# -- a GPU that cannot run every rung --------------------------------------------------------------------
def opened(machine, monkeypatch, **params):
    """The tiling page on an RTX 2080, at 64 x 64 x 64 as the address has it, and what a press on Run would send."""
    machine(RTX_2080)
    sent = []
    monkeypatch.setattr(
        run_card.worker(), "submit", lambda request, **how: sent.append(request) or finished(request)
    )
    at = open_page("gemm/page.py", engine="cuda", **params)
    return at, sent


def finished(request):
    from kernels.jobs.job import Job, Run

    job = Job(request, "", Run(request.key(), b""))
    job.finish(error="stopped here")
    return job


def test_rungs_that_this_gpu_cannot_run_are_named_and_left_out(machine, monkeypatch):
    monkeypatch.setattr(wheels, "refusal", lambda program: "")
    at, sent = opened(machine, monkeypatch)
    said = "(compute capability 8.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5)"
    assert f"not on this machine: double buffer, warp tile, cuBLAS TF32 {said}" in texts(at)
    at.button(key="run").click().run()
    (request,) = sent
    assert not {"gemm/double-buffer", "gemm/warp-tile", "gemm/cublas-tf32"} & set(request.rungs)
    assert {"gemm/naive", "gemm/bank-free", "gemm/cublas"} <= set(request.rungs)
    assert "stopped here" in texts(at) and not at.exception


def test_recordings_of_those_rungs_are_still_shown(machine, monkeypatch):
    shape = LADDERS["gemm"].presets["square-4096"].shape
    assert records.recorded("gemm/warp-tile", shape, LADDERS["gemm"].rung("gemm/warp-tile").default_tiles)
    at, _ = opened(machine, monkeypatch, **gemm_address.write(gemm_address.read(shape.params())[0]))
    assert "not on this machine: " in texts(at) and "kt-badge-recorded" in texts(at)


def test_a_missing_cublas_refuses_its_rungs_alone(machine, monkeypatch):
    missing = "cuBLAS was not found on this machine; pip install nvidia-cublas brings it"
    monkeypatch.setattr(wheels, "missing", lambda library: missing if library == "cublas" else "")
    at, sent = opened(machine, monkeypatch)
    assert f"cuBLAS FP32 ({missing})" in texts(at)
    at.button(key="run").click().run()
    assert "gemm/cublas" not in sent[0].rungs and "gemm/naive" in sent[0].rungs


def test_where_no_rung_can_run_nothing_is_sent(machine, monkeypatch):
    at, sent = opened(machine, monkeypatch)
    from pages.parts.run_settings import Asked

    monkeypatch.setattr(Asked, "runs", lambda self: [])
    at.button(key="run").click().run()
    assert not sent and not at.exception
    assert "No rung can run here on the cuda engine at this shape." in texts(at)


# -- a fault that only the child meets --------------------------------------------------------------------
@pytest.mark.skipif(engines.load("cuda").status().ready, reason="CuPy finds a driver here")
def test_what_the_child_meets_is_told_on_the_page(machine, monkeypatch):
    """On the processor the next run runs: tests/kernels/engines/cuda/test_session.py."""
    pytest.importorskip("cupy")
    machine(Driver())
    worker = Worker(module="tests.children.gpu_machine")
    monkeypatch.setattr(run_card, "worker", lambda: worker)
    try:
        at = open_page("conv/im2col.py", engine="cuda")
        finish(at, "run", "job")
        assert (
            "driver 580 or newer (cudaErrorInsufficientDriver" in texts(at) and "ran" not in at.session_state
        )
        assert "kt-badge-recorded" in texts(at) and at.button(key="run").label == "Run here"
    finally:
        worker.close()


def test_a_run_in_which_every_rung_is_refused_leaves_the_page_as_it_was(monkeypatch):
    at = open_page("conv/im2col.py", engine="cpu")
    finish(at, "run", "job")
    before = at.session_state["ran"]

    def refused(request, **how):
        job = finished(request)
        job.result = lambda timeout=None: [
            {"rung": r, "unsupported": "it has no room"} for r in request.rungs
        ]
        return job

    monkeypatch.setattr(run_card.worker(), "submit", refused)
    at.button(key="run").click().run()
    assert not at.exception and "direct: it has no room; im2col + our GEMM: it has no room" in texts(at)
    assert at.session_state["ran"] is before and "kt-badge-measured" in texts(at)


def test_the_race_says_why_this_gpu_ran_no_such_lane(machine, monkeypatch):
    monkeypatch.setattr(wheels, "refusal", lambda program: "")
    machine(RTX_2080)
    row = {"engine": "cuda", "mode": "cold"}
    shape = LADDERS["conv"].presets["toy"].shape
    found = {
        kind: choose_address.out(choose_address.Race({"conv/direct": row}, kind, shape))
        for kind in ("measured", "recorded")
    }
    why = "compute capability 8.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5"
    assert next(out.titles for out in found["measured"] if out.why == why)[:2] == (
        "implicit GEMM, plain divisions",
        "implicit GEMM",
    )
    assert why not in [out.why for out in found["recorded"]]


def test_after_a_refusal_the_next_press_measures_anew(monkeypatch):
    """Its answer is kept for equal requests, and the memory that was missing may be free by now."""
    fresh = []

    def refused(request, **how):
        fresh.append(how["fresh"])
        job = finished(request)
        job.result = lambda timeout=None: [{"rung": rung, "unsupported": "no room"} for rung in request.rungs]
        return job

    monkeypatch.setattr(run_card.worker(), "submit", refused)
    at = open_page("conv/im2col.py", engine="cpu")
    for _ in range(2):
        at.button(key="run").click().run()
        assert "no room" in texts(at)
    assert fresh == [False, True]
