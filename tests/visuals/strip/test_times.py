"""The strip's sentences on time, for a kernel that the engine of Run does not run."""

from dataclasses import replace

from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from visuals.strip.evidence import Evidence
from visuals.strip.times import times

LADDER, SHAPE = LADDERS["gemm"], GemmShape(64, 64, 64)


def evidence(name: str, engine: str, **rows) -> Evidence:
    rung = LADDER.rung(f"gemm/{name}")
    return Evidence(
        LADDER, rung, SHAPE, "64³", rung.default_tiles, rows, "measured", not_here=rung.not_on(engine)
    )


def row(name: str, ms: float, engine: str = "cpu") -> dict:
    return {
        "rung": f"gemm/{name}", "engine": engine, "device": "a processor", "mode": "cold", "n": 9, "median_ms": ms,
        "p20_ms": ms, "p80_ms": ms,
    }  # fmt: skip


def test_kernel_that_a_processor_does_not_have_says_why_and_others_have_their_own_names():
    rows = {"gemm/naive": row("naive", 2.0), "gemm/cublas": row("cublas", 1.0)}
    found = times(evidence("bank-free", "cpu", **rows))
    assert found["value"] == "–" and found["name"] == "without bank conflicts"
    assert "Run does not measure this kernel here: a processor has no shared-memory banks" in found["text"]
    assert [bar["title"] for bar in found["bars"]] == ["naive loop (NumPy einsum)", "NumPy BLAS"]


def test_kernel_without_a_row_can_be_run_where_its_engine_is():
    found = times(evidence("bank-free", "cuda"))
    assert "Press Run to measure it here" in found["text"]
    assert times(replace(evidence("naive", "cpu"), rows={}))["text"].endswith("measure it here.")


def test_row_of_a_pool_names_its_machine():
    here, there = row("naive", 2.0), row("naive", 2.0) | {"machine": "lab-3"}
    texts = [times(evidence("naive", "cpu", **{"gemm/naive": one}))["badge"]["text"] for one in (here, there)]
    assert texts == [
        "measured here · a processor · cold · n = 9",
        "measured on lab-3 · a processor · cold · n = 9",
    ]
