"""The sentences about 8-bit products: names of shapes, bytes, and the share of the library's speed."""

from __future__ import annotations

from visuals.precision import products

SHAPE = products.LADDER.shape(4096, 4096, 4096, "fp8")


def row(rung: str, ms: float) -> dict:
    return {"rung": f"gemm-8bit/{rung}", "median_ms": ms, "engine": "cuda"}


def test_a_shape_in_words():
    assert products.name(SHAPE) == "4,096 × 4,096 × 4,096 FP8"
    assert "a result takes 4 bytes" in products.cost(SHAPE)


def test_the_share_is_that_of_the_fastest_kernel():
    rows = {r["rung"]: r for r in (row("wgmma-fp8", 0.2), row("wgmma-fp8-promoted", 0.25), row("torch-fp8", 0.18))}
    assert products.gain(rows) == "“wgmma: FP8” reaches 90 % of the speed of “torch._scaled_mm”."
    assert products.gain({name: r for name, r in rows.items() if "torch" not in name}) == ""
    assert isinstance(products.examples(), list)
