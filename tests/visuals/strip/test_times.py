"""The strip's sentences on time, for a kernel that the engine of Run does not run."""

from dataclasses import replace

import pytest

from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from visuals.strip.evidence import Evidence
from visuals.strip.times import times

LADDER, SHAPE = LADDERS["gemm"], GemmShape(64, 64, 64)


def evidence(name: str, engine: str, **rows) -> Evidence:
    rung = LADDER.rung(f"gemm/{name}")
    return Evidence(LADDER, rung, SHAPE, "64³", rung.default_tiles, rows, "measured", not_here=rung.why_not_on(engine))


def row(name: str, ms: float, engine: str = "cpu") -> dict:
    return {
        "rung": f"gemm/{name}",
        "engine": engine,
        "device": "a processor",
        "mode": "cold",
        "n": 9,
        "median_ms": ms,
        "p20_ms": ms,
        "p80_ms": ms,
        "shape": SHAPE.params(),
    }


def test_kernel_that_a_processor_does_not_have_says_why_and_others_have_their_own_names():
    rows = {"gemm/naive": row("naive", 2.0), "gemm/cublas": row("cublas", 1.0)}
    found = times(evidence("bank-free", "cpu", **rows))
    assert found["value"] == "–" and found["name"] == "without bank conflicts"
    assert "Run does not measure this kernel here: a processor has no shared-memory banks" in found["text"]
    assert [bar["title"] for bar in found["bars"]] == ["naive loop (NumPy einsum)", "NumPy BLAS"]


def test_kernel_without_a_row_can_be_run_where_its_engine_is():
    found = times(evidence("bank-free", "cuda"))
    assert "Press Run to measure it here" in found["text"]
    assert "Press Run" not in times(evidence("bank-free", "cuda"), can_run=False)["text"]
    assert times(replace(evidence("naive", "cpu"), rows={}))["text"].endswith("measure it here.")


def test_row_of_a_pool_names_its_machine():
    here, there = row("naive", 2.0), row("naive", 2.0) | {"machine": "lab-3"}
    texts = [times(evidence("naive", "cpu", **{"gemm/naive": one}))["badge"]["text"] for one in (here, there)]
    assert texts == [
        "measured here with NumPy · a processor · cold · n = 9",
        "measured on lab-3 · a processor · cold · n = 9",
    ]


def recorded(ours: dict, library: dict):
    rows = {"gemm/naive": row("naive", 1.0, "cuda") | ours, "gemm/cublas": row("cublas", 4.0, "cuda") | library}
    return times(replace(evidence("naive", "cuda", **rows), kind="recorded"))


def test_bars_of_different_days_name_their_day():
    found = recorded({"date": "2026-11-28"}, {"date": "2026-11-02"})
    assert [(bar["text"], bar["day"]) for bar in found["bars"]] == [("1 ms", "28 Nov"), ("4 ms", "2 Nov")]
    assert [bar["hint"] for bar in found["bars"]] == ["Recorded on 2026-11-28.", "Recorded on 2026-11-02."]


def test_bars_of_one_day_do_not():
    found = recorded({"date": "2026-11-28"}, {"date": "2026-11-28"})
    assert [bar["text"] for bar in found["bars"]] == ["1 ms", "4 ms"] and "day" not in found["bars"][0]


@pytest.mark.parametrize(
    "ms, words",
    [(4.0, "4× as fast as NumPy BLAS."), (1.9, "190 % of the speed of NumPy BLAS."), (0.5, "50 % of the speed")],
)
def test_a_kernel_twice_as_fast_as_the_library_is_compared_by_a_factor(ms, words):
    rows = {
        "gemm/naive": row("naive", 1.0),
        "gemm/shared-tile": row("shared-tile", 2.0),
        "gemm/cublas": row("cublas", ms),
    }
    text = times(evidence("naive", "cuda", **rows))["text"]
    assert words in text
