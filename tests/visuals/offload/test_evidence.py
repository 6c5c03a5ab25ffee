"""CPU and GPU: times by size, crossings among the sizes that both have, what is left for Amdahl."""

from __future__ import annotations

import pytest

from kernels.offload import recorded
from kernels.offload.works import COPIES, NONE, PAGEABLE, PINNED, WORKS, live, points
from visuals.offload.evidence import OffloadEvidence


def run_here(key, factor):
    """Returns a run whose processor needs `factor` times as long as the GPU without copies."""
    rows = [{"size": point.size, "ms": factor * point.gpu_ms()} for point in points(key)]
    return {"work": key, "device": "a processor", "points": rows[::-1]}


@pytest.mark.parametrize("key", WORKS)
def test_the_recorded_sizes_are_sizes_that_a_processor_runs(key):
    found = OffloadEvidence(key, live(key)[0].size)
    sizes = list(found.cpu_by_size)
    assert len(sizes) > 2 and sizes == sorted(sizes)
    assert set(sizes) <= {point.size for point in live(key)}
    assert found.kind == "recorded" and found.cpu_device == recorded.newest()["device"]
    for row in recorded.newest()["works"][key]:
        assert 0 < row["p20_ms"] <= row["ms"] <= row["p80_ms"] and row["n"] >= 3


@pytest.mark.parametrize("key", WORKS)
def test_copies_never_make_the_gpu_faster_and_never_move_the_crossing_down(key):
    found = OffloadEvidence(key, points(key)[-1].size)
    assert found.point.gpu_ms(NONE) < found.point.gpu_ms(PINNED) <= found.point.gpu_ms(PAGEABLE)
    sizes = [one.size if (one := found.crossing(copies)) else float("inf") for copies in (NONE, PINNED)]
    assert sizes == sorted(sizes)


def test_a_run_here_replaces_the_recording_and_decides_the_crossing():
    slow, fast = (OffloadEvidence("gemm", 512, measured=run_here("gemm", factor)) for factor in (3, 0.5))
    assert slow.kind == "measured" and slow.cpu_device == "a processor"
    assert slow.cpu_ms == pytest.approx(3 * slow.gpu_ms)
    assert slow.crossing(NONE).first and fast.crossing(NONE) is None


def test_a_size_that_no_processor_ran_has_no_time():
    assert OffloadEvidence("gemm", 8192).cpu_ms is None


@pytest.mark.parametrize("copies", COPIES)
def test_a_kernel_without_time_leaves_call_and_copies(copies):
    found = OffloadEvidence("add", 16777216, copies)
    left = found.point.call_ms + found.point.copy_ms(copies)
    assert found.kernel_limit == pytest.approx(found.gpu_ms / left)
    assert found.copy_share == pytest.approx(left / found.gpu_ms)


def test_nothing_recorded_is_no_time_and_no_crossing(monkeypatch, tmp_path):
    monkeypatch.setattr(recorded, "records", lambda: ())
    found = OffloadEvidence("add", 112)
    assert (found.cpu_ms, found.cpu_device, found.crossing(NONE)) == (None, "", None)
