"""What a press on Run does without a GPU: said before the press, from what this machine reaches, and shown after it."""

from types import SimpleNamespace

import pytest
import streamlit as st

from kernels.engines import cpu
from kernels.gemm.presets import GEMM_PRESETS
from kernels.jobs.worker import DEADLINE_S
from kernels.ladders import LADDERS
from pages.memory.address import SIZES
from pages.parts import run_plan
from pages.parts.run_settings import RunSettings
from tests.helpers.page_runner import finish, heads, open_page, strip, texts

LARGE, SMALL = GEMM_PRESETS["square-4096"].shape, GEMM_PRESETS["square-64"].shape


def settings(shape, ladder="gemm", engine="cpu"):
    first = LADDERS[ladder].rungs[0]
    return RunSettings(
        LADDERS[ladder], shape, engine, "cold", tuple(first.default_tiles.items()), tiles_rung=first.name
    )


@pytest.fixture
def session(monkeypatch):
    state = {}
    monkeypatch.setattr(st, "session_state", state)
    return state


@pytest.fixture
def rate(monkeypatch):
    """Returns a function that sets the FLOP/s of a matrix product on this processor."""
    return lambda flops: monkeypatch.setattr(cpu, "product_rate", lambda: flops)


def test_the_least_time_is_that_of_every_run_of_every_kernel(rate, session):
    rate(1e11)
    chosen = settings(LARGE)
    assert run_plan.least_seconds(chosen) == pytest.approx(6 * len(chosen.runs()) * 2 * 4096**3 / 1e11)
    rate(2e11)
    assert run_plan.least_seconds(chosen) == pytest.approx(6 * len(chosen.runs()) * 2 * 4096**3 / 2e11)


def test_a_kernel_that_ran_here_has_its_own_rate(rate, session):
    rate(1e11)
    chosen = settings(LARGE)
    slow, *others = chosen.runs()
    rows = {slow.name: {"engine": "cpu", "flops": 2 * 64**3, "median_ms": 2 * 64**3 / 1e10 * 1e3}}
    session["ran"] = SimpleNamespace(rows=rows)
    assert run_plan.least_seconds(chosen) == pytest.approx(12 * 4096**3 * (1 / 1e10 + len(others) / 1e11))


def test_a_small_shape_needs_no_measured_rate(monkeypatch, session):
    monkeypatch.setattr(cpu, "product_rate", lambda: pytest.fail("measured"))
    assert run_plan.least_seconds(settings(SMALL)) == 0 and run_plan.refusal(settings(SMALL)) == ""


def test_a_run_that_would_be_ended_is_refused(rate, session):
    rate(1e15)
    assert run_plan.refusal(settings(LARGE)) == ""
    rate(1e9)
    refusal = run_plan.refusal(settings(LARGE))
    assert f"{DEADLINE_S:.0f} s" in refusal


def test_nothing_is_planned_on_a_gpu():
    assert run_plan.plan(settings(SMALL, engine="cuda"), "64³") == ""


def test_kernels_without_a_processor_s_form_are_refused_with_their_reason():
    chosen = settings(SIZES["cpu"]["branch"], "branch")
    (why, *_) = chosen.refusals().values()
    assert why and why in run_plan.refusal(chosen)


def test_the_probe_measures_a_rate_once():
    cpu.product_rate.cache_clear()
    assert cpu.product_rate() > 1e8 and cpu.product_rate() == cpu.product_rate()
    assert cpu.product_rate.cache_info().misses == 1


# -- on a page ---------------------------------------------------------------------------------------
def test_where_nothing_can_run_there_is_no_button_but_the_reason():
    run = strip(open_page("memory/page.py", view="story", chapter="3", engine="cpu"))["run"]
    (why, *_) = settings(SIZES["cpu"]["branch"], "branch").refusals().values()
    assert not run["can"] and why in run["text"]


def test_before_a_press_the_strip_names_the_shape_that_runs():
    run = strip(open_page("conv/im2col.py", view="story", chapter="8", engine="cpu"))["run"]
    assert run["can"] and "Toy 8×8" in run["text"] and "NumPy" in run["text"]


def test_after_a_run_in_a_chapter_of_a_real_size_its_size_is_shown_and_the_figures_of_the_text_stay():
    at = open_page("conv/im2col.py", view="story", chapter="8", engine="cpu")
    before = heads(at)[0]["chapter"]
    assert strip(at)["selected"] == "real"
    finish(at, "run", "job")
    shown = strip(at)
    sizes = {size["key"]: size for size in shown["sizes"]}
    assert shown["selected"] == "stage"
    assert sizes["stage"]["time"]["badge"]["kind"] == "measured"
    assert "NumPy" in sizes["stage"]["time"]["badge"]["text"] and "NumPy" in sizes["stage"]["choice"]
    assert sizes["real"]["time"]["badge"]["kind"] == "recorded" and "NumPy" not in sizes["real"]["choice"]
    after = heads(at)[0]["chapter"]
    assert (before["text"], before["question"]) == (after["text"], after["question"])
    at.query_params["chapter"] = "9"
    assert strip(at.run())["selected"] == "real"  # the next chapter speaks of the real size again


def test_the_kernels_say_what_run_does_with_them():
    with_numpy, without = (
        texts(open_page(page, **params))
        for page, params in (
            ("conv/im2col.py", {"view": "kernel"}),
            ("memory/page.py", {"topic": "divergence", "view": "kernel"}),
        )
    )
    assert "computes with NumPy" in with_numpy and "computes with NumPy" not in without
