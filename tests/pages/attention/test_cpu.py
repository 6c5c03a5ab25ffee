"""Tests of attention's loops on the processor without a browser: measured by the worker, drawn, described, stale after
a control changes."""

import re

import pytest

from kernels.attention import cpu_ladder
from kernels.attention.cpu_traffic import traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.jobs.job import Request
from kernels.machine import processor
from kernels.machine.memory_levels import Level
from pages.attention import cpu
from tests.helpers.page_runner import finish, open_part, texts
from visuals.attention import cpu as cpu_figures
from visuals.gemm import cpu_curve
from visuals.palette import LIGHT

PAPER = ATTENTION_PRESETS["paper-cpu"].shape
SIDES = cpu_ladder.SIDES
RUNGS = [rung.name for rung in cpu_ladder.LADDER.rungs]


def page():
    import streamlit as st

    from kernels.attention.shape import AttentionShape
    from pages.attention import cpu

    cpu.section(AttentionShape(1, 2, st.session_state["N"], 8, dtype=st.session_state["dtype"]))


@pytest.fixture(autouse=True)
def short_timing(monkeypatch):
    monkeypatch.setattr(cpu, "SECONDS", 0.05)
    monkeypatch.setattr(cpu, "SECONDS_PER_TILE", 0.02)


def open_at(**state):
    return open_part(page, {"N": 24, "dtype": "fp32", "cpu_shape": cpu.PAGE_SHAPE} | state)


def keys(at):
    return [button.key for button in at.button]


def test_rungs_and_tiles_are_measured_drawn_and_become_stale():
    at = open_at(cpu_Br="16", cpu_Bc="8")
    assert keys(at) == ["measure_attention_cpu"] and "kt-badge-measured" not in texts(at)
    finish(at, "measure_attention_cpu", "attention_cpu")
    series = at.session_state["attention_cpu"]
    assert not series.failed and series.tried == series.total == 1 + 2 * (len(SIDES) - 1)
    assert [row["rung"] for row in cpu.compared(series)] == RUNGS
    for side, other in (("Br", {"Bc": 8}), ("Bc", {"Br": 16})):
        rows = cpu.varied(series, side)
        assert sorted(row["tiles"][side] for row in rows) == sorted(SIDES)
        assert all(row["tiles"].items() >= other.items() for row in rows)
    text = texts(at)
    assert "kt-badge-measured" in text and "kt-stale" not in text and len(at.get("plotly_chart")) == 4
    assert "Flash attention with Br 16 and Bc 8 takes" in text and "The fastest is Bc" in text
    assert "Why: S of a head" in text and "On a GPU at B1 H8 N8192 d64" in text
    at.selectbox(key="cpu_Bc").set_value("32").run()
    assert "stale: measured at B1 H2 N24 d8, THREADS 1, BLOCK 64, Br 16, Bc 8" in texts(at)


def test_stop_keeps_the_measured_rows():
    at = open_at()
    at.button(key="measure_attention_cpu").click().run()
    at.session_state["attention_cpu"].job.result(timeout=60)
    at.run()
    assert keys(at) == ["stop_attention_cpu"]
    at.button(key="stop_attention_cpu").click().run()
    series = at.session_state["attention_cpu"]
    assert not at.exception and not series.job and not series.todo and len(series.rows) >= len(RUNGS)
    assert keys(at) == ["measure_attention_cpu"]


def test_unsupported_shape_is_reported():
    at = open_at(dtype="fp16")
    assert keys(at) == [] and "dtype must be fp32, got fp16" in texts(at)
    at = open_at(dtype="fp16", cpu_shape="N=1,024")
    assert keys(at) == ["measure_attention_cpu"] and "B1 H4 N1024 d32, THREADS 1" in texts(at)


def test_requests_follow_the_rules():
    settings = cpu.CpuSettings(PAPER, 1, 64, 32, 16, "cold")
    first, *each = cpu.requests(settings)
    assert list(first.rungs) == RUNGS and first.tiles == settings.tiles and first.engine == "cpu"
    assert {(r.tiles["Br"], r.tiles["Bc"]) for r in each} == ({(b, 16) for b in SIDES} | {(32, b) for b in SIDES}) - {
        (32, 16)
    }
    long = cpu.CpuSettings(PAPER.with_(N=8192), 1, 64, 32, 16, "cold")
    assert cpu.requests(long)[0].rungs == tuple(RUNGS[1:])  # naive would take too long
    library_only = cpu.CpuSettings(PAPER.with_(N=11000), 1, 64, 32, 16, "cold")
    (library,) = cpu.requests(library_only)  # only the library: its only tile parameter is THREADS
    assert library == Request((RUNGS[-1],), library_only.shape, None, "cpu", {"THREADS": 1}, "cold", 0.05)
    assert cpu.requests(cpu.CpuSettings(PAPER, 512, 64, 32, 16, "cold")) == []


def test_thread_choices_are_limited_to_numba_threads(monkeypatch):
    monkeypatch.setattr(processor, "max_threads", lambda: (2, "said here"))
    assert list(open_at().selectbox(key="threads").options) == ["1", "2"]


# -- texts -----------------------------------------------------------------------------------------
CEILINGS = {"copy_bytes_per_s": 20e9, "fp32_flops_per_s": 60e9, "cache_bytes": 2**25}
L1, L3 = Level("L1 cache", 2**15, "each", "", "", 64), Level("L3 cache", 2**25, "all", "", "", 64)


def row(name, ms, shape=PAPER, threads=8, **tiles):
    rung = cpu_ladder.LADDER.rung(f"attention-loops/{name}")
    tiles = rung.default_tiles | tiles | {"THREADS": threads}
    return {
        "rung": rung.name,
        "tiles": tiles,
        "shape": shape.params(),
        "median_ms": ms,
        "p20_ms": ms * 0.98,
        "p80_ms": ms * 1.02,
        "n": 9,
        "flops": shape.flops,
        "device": "here",
        "engine": "cpu",
        "mode": "cold",
        "ceilings": CEILINGS,
        "output_bytes": shape.bytes // 4,
        "workspace_bytes": 7,
    }


def test_gain_names_faster_slower_and_equal_rungs():
    rows = [row("naive", 600), row("blocked", 51), row("fused", 90), row("flash", 50, Bc=16), row("blas", 15)]
    text = cpu_figures.gain(rows)
    assert text == (
        "Flash attention with Br 32 and Bc 16 takes 50 ms here. Flash attention is 12× as fast as naive (600 ms). Blocked (51 ms) does "
        "not differ measurably: the spreads overlap. Flash attention is 1.8× as fast as fused (90 ms). NumPy BLAS (15 ms) is 3.33× as fast."
    )
    assert cpu_figures.gain(rows[:3]) == cpu_figures.gain(rows[3:4]) == ""


def test_account_has_measured_and_predicted_bytes_per_rung():
    text = cpu_figures.memory_table([row("naive", 1), row("fused", 1), row("flash", 1, Br=64, Bc=128)])
    cells = [re.findall(r"<td>([\d,]+)</td>", line) for line in text.split("<tr>")[2:]]
    assert cells == [
        ["524,295", "4,718,592", "0"],
        ["524,295", "557,056", "0"],
        ["524,295", "524,288", f"{4 * (32 * 128 + 64 * 128 + 2 * 64):,}"],
    ]


def test_why_states_the_cost_of_s_beyond_the_last_cache():
    text = cpu_figures.explain_gain([row("blocked", 50), row("flash", 50)], [L1, L3])
    moved_bytes = [
        traffic(name, PAPER, 64, 2**25, of)
        for name, of in (("blocked", {"BLOCK": 64}), ("flash", {"Br": 32, "Bc": 32}))
    ]
    ms = (moved_bytes[0] - moved_bytes[1]) / 20e9 * 1e3
    assert "S of a head, 4.19 MB, fits in the L3 cache of 33.6 MB" in text and f"takes {1e3 * ms:.3g} µs" in text
    assert "explains little of the time" in text
    long = cpu_figures.explain_gain([row(name, 50, PAPER.with_(N=4096)) for name in ("blocked", "flash")], [L1, L3])
    assert "67.1 MB, does not fit in" in long and "explains part of the time" in long
    assert cpu_figures.explain_gain([row("flash", 50)], [L1, L3]) == ""
    assert cpu_figures.explain_gain([row("blocked", 50), row("flash", 50)], []) == ""


def test_gpu_is_memory_bound_and_this_processor_compute_bound():
    gpu_row = {"device": "a GPU", "ceilings": {"copy_bytes_per_s": 4e12, "fp32_flops_per_s": 60e12, "cache_bytes": 6e7}}
    text = cpu_figures.on_gpu(row("flash", 1), gpu_row)
    s = ATTENTION_PRESETS["attention-8192"].shape
    moved_bytes = s.bytes + 4 * 4 * s.heads * s.N**2  # S and P, each written and read
    for ceilings in (gpu_row["ceilings"], CEILINGS):
        ratio = s.flops / ceilings["fp32_flops_per_s"] / (moved_bytes / ceilings["copy_bytes_per_s"])
        assert f"take {ratio:.3g}× the time of moving" in text
    assert "They fit in the L2 cache of 60 MB" in text and cpu_figures.on_gpu(row("flash", 1), None) == ""
    assert cpu_figures.gpu_row()["engine"] == "cuda"


def test_gpu_recording_is_described_if_there_is_one(monkeypatch):
    def at(shape, rungs):
        if shape.N != 2048 or shape.dtype != "fp32":
            return {}
        return {name: {"rung": name, "median_ms": ms} for name, ms in zip(rungs, (9.0, 6.0, 3.0), strict=True)}

    monkeypatch.setattr(cpu_figures, "recorded_at", at)
    preset, text, flash = cpu_figures.longest_recording()
    assert preset.shape.N == 2048 and flash["rung"] == "attention/flash-registers"
    assert (
        "naive attention takes 9 ms. The kernel “flash attention, register tiles” takes 3 ms: it is 3× as fast." in text
    )
    monkeypatch.setattr(cpu_figures, "recorded_at", lambda shape, rungs: {})
    assert cpu_figures.longest_recording() is None


def test_curve_of_one_tile_side_keeps_the_other():
    s, tiles = PAPER, {"Br": 16, "Bc": 64}
    tile = cpu_figures.tile("Bc", s, tiles)
    assert tile.bytes_at(64) == cpu_figures.tile("Br", s, tiles).bytes_at(16)
    assert tile.bytes_at(8) == 4 * (2 * 16 * 32 + 2 * 8 * 32 + 32 * 8 + 16 * 8 + 2 * 16)
    cache_parameters = 64, 2**15
    assert tile.share(8, L1) == traffic("flash", s, *cache_parameters, {"Br": 16, "Bc": 8}) / traffic(
        "naive", s, *cache_parameters, {}
    )
    rows = [row("flash", ms, Br=16, Bc=Bc) for ms, Bc in ((90, 4), (60, 16), (50, 64), (55, 128))]
    others = [("naive", row("naive", 500)), ("NumPy BLAS", row("blas", 15))]
    figure = cpu_curve.chart(rows, others, [L1, L3], tile, LIGHT)
    curve, star, of_l1, _ = figure.data
    assert list(curve.x) == [4, 16, 64, 128] == list(of_l1.x) and star.x == (64,)
    assert list(of_l1.y) == [tile.share(value, L1) for value in (4, 16, 64, 128)]
    assert "tiles fill L1" in [a.text for a in figure.layout.annotations]
    text = cpu_curve.summary(rows, others, [L1, L3], tile)
    assert cpu_curve.conclusion(rows, tile).startswith("The fastest is Bc 64 with")
    assert "NumPy BLAS is 3.33× as fast as Bc 64." in text
    assert ", filled by tiles of Bc" in cpu_curve.caches_sentence([L1], tile)
    wide_tile = cpu_figures.tile("Bc", AttentionShape(1, 1, 64, 512), {"Br": 128, "Bc": 4})
    assert ", too small for tiles of Bc 1" in cpu_curve.caches_sentence([L1], wide_tile)
    assert cpu_curve.caches_sentence([L3], tile).startswith(
        "L3 cache: 33.6 MB (all). A"
    )  # none of the possible tiles fills it
