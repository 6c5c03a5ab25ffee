"""CPU and GPU: times by size, crossings among the sizes that both have, what is left for Amdahl."""

from __future__ import annotations

import pytest

from kernels.offload import recorded
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE, PAGEABLE, PINNED, WORKS, points
from visuals.offload.evidence import OffloadEvidence, crossing_text, facts, short


def run_here(key, factor, with_gpu=False):
    """Returns a run whose processor needs `factor` times as long as the recorded GPU without copies."""
    gpu = OffloadEvidence(key, 1).gpu_by_size(NONE)
    rows = [
        {
            "size": size,
            "ms": factor * one.ms,
            "p20_ms": factor * one.ms,
            "p80_ms": factor * one.ms,
            "n": 3,
            "passes": [factor * one.ms],
        }
        for size, one in gpu.items()
    ]
    works = {CPU: rows} | ({GPU: recorded.rows(key, GPU)} if with_gpu else {})
    return {"work": key, "device": "Some(R) Processor, 4 cores", "gpu": "NVIDIA Card", "works": works}


@pytest.mark.parametrize("key", WORKS)
def test_a_work_is_recorded_at_every_size_on_both_sides(key):
    for point in points(key):
        found = OffloadEvidence(key, point.size)
        assert found.cpu.ms > 0 and found.gpu.ms > 0 and found.gain == found.cpu.ms / found.gpu.ms
        assert found.side(CPU).kind == found.side(GPU).kind == "recorded"
    assert found.side(CPU).device == short(recorded.newest()["device"])


@pytest.mark.parametrize("key", WORKS)
def test_copies_never_make_the_gpu_faster_and_never_move_the_crossing_down(key):
    found = OffloadEvidence(key, points(key)[-1].size)
    alone, pinned = found.gpu_by_size(NONE), found.gpu_by_size(PINNED)
    assert all(alone[size].ms < pinned[size].ms for size in pinned)
    assert found.of_gpu(PINNED).ms <= found.of_gpu(PAGEABLE).ms
    sizes = [one.low if (one := found.crossing(copies)) else float("inf") for copies in (NONE, PINNED)]
    assert sizes == sorted(sizes)


def test_a_run_here_replaces_the_recording_and_decides_the_crossing():
    slow, fast = (OffloadEvidence("gemm", 512, measured=run_here("gemm", factor)) for factor in (3, 0.5))
    assert slow.side(CPU).kind == "measured" and slow.side(CPU).device == "Some, 4 cores"
    assert slow.side(GPU).kind == "recorded"
    assert slow.gain == pytest.approx(3)
    assert slow.crossing(NONE).first and fast.crossing(NONE) is None
    assert "measured (Some, 4 cores), recorded" in facts(slow)["source"]


def test_a_run_with_a_gpu_is_measured_on_both_sides():
    found = OffloadEvidence("gemm", 512, measured=run_here("gemm", 1.0, with_gpu=True))
    assert found.side(GPU).kind == "measured" and found.side(GPU).device == "Card"
    assert facts(found)["source"] == "measured (Some, 4 cores; Card)"


def test_the_words_of_a_crossing_fit_its_work():
    assert crossing_text("gemm", None) == ""
    gemm, add, conv = (OffloadEvidence(key, 1) for key in ("gemm", "add", "conv"))
    assert crossing_text("gemm", gemm.crossing(NONE)).startswith(("n = ", "about n = "))
    assert crossing_text("add", add.crossing(NONE)).endswith(" elements")
    assert crossing_text("conv", conv.crossing(NONE)).endswith("multiply-adds, the smallest one")


@pytest.mark.parametrize("copies", COPIES)
def test_a_kernel_without_time_leaves_call_and_copies(copies):
    found = OffloadEvidence("add", 16777216, copies)
    left = found.gpu.ms - found.gpu.parts["kernel"]
    assert found.kernel_limit == pytest.approx(found.gpu.ms / left)
    assert found.beside_kernel == pytest.approx(left / found.gpu.ms)


@pytest.mark.parametrize("left", [0, 0.05, 0.95])
def test_a_program_is_never_faster_than_its_limit(left):
    found = OffloadEvidence("gemm", 4096, PINNED, left)
    assert min(1, found.gain) <= found.speedup <= min(found.gain, found.limit) + 1e-9
    assert facts(found)["limit"] == {0: "∞", 0.05: "20", 0.95: "1.05"}[left]


def test_nothing_recorded_is_no_time_and_no_crossing(monkeypatch):
    monkeypatch.setattr(recorded, "records", lambda: ())
    found = OffloadEvidence("add", 112)
    assert (found.cpu, found.gpu, found.gain, found.repeats, found.crossing(NONE)) == (None,) * 5
    assert found.side(CPU).device == "" and facts(found)["cpu"] == facts(found)["gpu"] == ""
