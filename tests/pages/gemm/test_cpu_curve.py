"""Tests of the tile-size curve without a browser: measured by the worker, drawn, stopped, stale after a change."""

import pytest

from kernels.gemm import cpu_ladder
from kernels.gemm.shape import GemmShape
from pages.gemm import cpu_curve as curve_page
from tests.helpers.page_runner import finish, open_part, texts
from visuals.gemm import cpu_curve
from visuals.palette import LIGHT

SMALL = GemmShape(24, 20, 28)


def page():
    import streamlit as st

    from kernels.gemm.shape import GemmShape
    from pages.gemm import cpu_curve as curve_page

    M, beta = st.session_state["M"], st.session_state["beta"]
    curve_page.section(GemmShape(M, 20, 28, beta=beta))


@pytest.fixture(autouse=True)
def short_timing(monkeypatch):
    monkeypatch.setattr(curve_page, "SECONDS", 0.02)


def open_at(**state):
    return open_part(page, {"M": 24, "beta": 0.0, "curve": curve_page.PAGE_SHAPE} | state)


def keys(at):
    return [button.key for button in at.button]


def test_curve_is_measured_drawn_and_becomes_stale():
    at = open_at()
    assert keys(at) == ["measure_cpu_curve"] and "kt-badge-measured" not in texts(at)
    finish(at, "measure_cpu_curve", "cpu_curve")
    curve = at.session_state["cpu_curve"]
    assert not curve.failed and curve.tried == curve.total == 1 + len(cpu_ladder.BLOCKS)
    assert sorted(row["tiles"]["BLOCK"] for row in curve_page.blocked(curve)) == sorted(cpu_ladder.BLOCKS)
    assert [title for title, _ in curve_page.lines(curve)] == ["naive", "reordered", "NumPy BLAS"]
    assert all(row["engine"] == "cpu" and row["shape"]["M"] == 24 for row in curve.rows)
    assert "kt-badge-measured" in texts(at) and "kt-badge-predicted" in texts(at)
    assert "The fastest is BLOCK" in texts(at) and "kt-stale" not in texts(at)
    assert len(at.get("plotly_chart")) == 1
    at.session_state["M"] = 25
    at.run()
    assert "stale: measured at M24 N20 K28" in texts(at) and keys(at) == ["measure_cpu_curve"]


def test_stop_keeps_the_measured_rows():
    at = open_at(M=23)
    at.button(key="measure_cpu_curve").click().run()
    at.session_state["cpu_curve"].job.result(timeout=60)
    at.run()
    assert keys(at) == ["stop_cpu_curve"]
    at.button(key="stop_cpu_curve").click().run()
    curve = at.session_state["cpu_curve"]
    assert not at.exception and not curve.job and not curve.todo and 3 <= len(curve.rows) < 3 + len(cpu_ladder.BLOCKS)
    assert keys(at) == ["measure_cpu_curve"]


def test_unsupported_shape_is_reported():
    at = open_at(beta=1.0)
    assert keys(at) == [] and "alpha must be 1 and beta 0, got 1 and 1" in texts(at)


def test_requests_follow_the_rules():
    settings = curve_page.CpuSettings(SMALL, 1, "cold")
    first, *each = curve_page.requests(settings)
    assert first.rungs == ("loops/naive", "loops/reordered", "loops/blas") and first.tiles == {"THREADS": 1}
    assert [r.tiles["BLOCK"] for r in each] == sorted(cpu_ladder.BLOCKS)
    assert {r.engine for r in (first, *each)} == {"cpu"}
    large = curve_page.requests(curve_page.CpuSettings(GemmShape(2048, 2048, 2048), 1, "cold"))
    assert large[0].rungs == ("loops/reordered", "loops/blas")  # naive would take too long
    assert min(r.tiles["BLOCK"] for r in large[1:]) == cpu_ladder.SHORT_BLOCK


def row(rung, median, **tiles):
    spread = {"p20_ms": median * 0.9, "median_ms": median, "p80_ms": median * 1.2}
    return {"rung": rung, "tiles": tiles, "flops": 2 * 512**3, "n": 9, "device": "here", **spread}


def test_chart_shows_blocks_spread_best_and_caches():
    from kernels.machine.memory_levels import Level

    caches = [Level("L1 cache", 2**15, "each", "", "", 64), Level("L3 cache", 2**25, "all", "", "", 64)]
    rows = [row("loops/blocked", ms, BLOCK=b, THREADS=1) for b, ms in ((8, 60), (64, 10), (256, 20))]
    naive = row("loops/naive", 300, THREADS=1)
    tile = cpu_curve.block_tile(GemmShape(512, 512, 512))
    figure = cpu_curve.chart(rows[::-1], [("naive", naive)], caches, tile, LIGHT)
    curve, star, L1, L3 = figure.data
    assert list(curve.x) == [8, 64, 256] == list(L1.x)
    assert curve.y[1] == pytest.approx(2 * 512**3 / 10e-3 / 1e9) and star.x == (64,)
    assert curve.error_y.array[1] == pytest.approx(curve.y[1] / 0.9 - curve.y[1])
    assert list(L1.y) == [tile.share(block, caches[0]) for block in (8, 64, 256)]
    assert L1.y[0] < 0.1 < L3.y[0]
    annotations = [a.text for a in figure.layout.annotations]
    assert pytest.approx(naive["flops"] / 300e-3 / 1e9) in [shape.y0 for shape in figure.layout.shapes]
    assert "3 tiles fill L1" in annotations and "3 tiles fill L3" not in annotations and "naive" in annotations
    assert tile.largest_fitting(2**15) == 52 and 3 * 4 * 52**2 <= 2**15 < 3 * 4 * 53**2
    text = cpu_curve.summary(rows, [("naive", naive)], caches, tile)
    assert "BLOCK 64" in cpu_curve.conclusion(rows, tile)
    assert "BLOCK 64" in text and "BLOCK 64 is 30× as fast as naive." in text and "fit in the L3 cache" in text
    assert "does not report" in cpu_curve.caches_sentence([], tile)
