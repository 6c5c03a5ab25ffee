"""The sentence at the head of each card has the numbers of its rows."""

from __future__ import annotations

from tests.helpers.rows_of import a_full_row
from visuals.charts import conclusions, roofline


def timed(title, ms, spread=0.01, **changes):
    row = a_full_row(samples=[ms] * 6, **changes)
    return title, row | {"p20_ms": ms * (1 - spread), "p80_ms": ms * (1 + spread)}


def test_the_fastest_kernel_is_named_with_its_lead():
    one, two, three = timed("naive", 4.0), timed("tile, 1-D", 1.0), timed("library", 2.0)
    assert conclusions.of_times([one]) == "Naive takes 4 ms."
    assert conclusions.of_times([one, two]) == "“tile, 1-D” is fastest: 1 ms. Naive takes 4× the time."
    assert conclusions.of_times([one, two, three]) == (
        "“tile, 1-D” is fastest: 1 ms. The next, library, takes 2× the time, the slowest, naive, 4×."
    )


def test_kernels_whose_spreads_overlap_are_both_fastest():
    close = [timed("a", 1.0, 0.2), timed("b", 1.1, 0.2)]
    assert conclusions.of_times(close) == "A and b take the same time, 1 ms: their spreads overlap."
    assert conclusions.of_times([*close, timed("c", 5.0)]) == (
        "A and b are fastest: 1 ms, their spreads overlap. The slowest, c, takes 5× the time."
    )


def test_memory_has_its_peak_and_its_largest_part():
    small = ("direct", a_full_row(peak_bytes=616))
    large = ("im2col", a_full_row(workspace_bytes=1232, peak_bytes=1848))
    assert conclusions.of_memory([small, large]) == (
        "Im2col allocates most: 1.85 KB, 3× as much as direct. The largest part: workspace, 1.23 KB."
    )
    assert conclusions.of_memory([small, small, small]) == (
        "All 3 kernels allocate 616 B. The largest part: input + filters, 328 B."
    )
    assert conclusions.of_memory([small]) == "Direct allocates 616 B. The largest part: input + filters, 328 B."


def test_rates_are_compared_with_the_library():
    own, library = timed("naive", 2.0, flops=10**9), timed("cuBLAS", 1.0, flops=10**9)
    assert conclusions.of_rates([own, library], None) == "cuBLAS is fastest: 1 TFLOP/s."
    assert conclusions.of_rates([own, library], library[1]) == (
        "cuBLAS is fastest: 1 TFLOP/s. The next, naive, reaches 50 % of that."
    )
    assert conclusions.of_rates([timed("a", 0.5, flops=10**9), library], library[1]) == (
        "A is fastest: 2 TFLOP/s, 200 % of the speed of cuBLAS."
    )


def test_sizes_are_compared_at_the_largest():
    def line(title, rung, *ms):
        return title, [(n, timed("", t, rung=rung, flops=10**9)[1]) for n, t in zip((64, 4096), ms, strict=True)]

    lines = [line("naive", "gemm/naive", 1.0, 4.0), line("cuBLAS", "gemm/cublas", 2.0, 1.0)]
    assert conclusions.of_sizes(lines) == (
        "At size 4,096, cuBLAS is fastest: 1 TFLOP/s. Our fastest kernel is naive: 250 GFLOP/s."
    )
    assert conclusions.of_sizes(lines[:1]) == "At size 4,096, naive is fastest: 250 GFLOP/s."


def test_traffic_names_the_most_and_the_least():
    assert conclusions.of_traffic([("naive", 6400), ("tile", 640)], conclusions.REQUESTED) == (
        "Naive requests 6.4 KB from global memory, 10× as much as tile (640 B)."
    )
    assert (
        conclusions.of_traffic([("a", 64), ("b", 64)], conclusions.REQUESTED)
        == "All 2 kernels request 64 B from global memory."
    )
    assert conclusions.of_traffic([("a", 64)], conclusions.REQUESTED) == "A requests 64 B from global memory."
    assert conclusions.of_traffic([("naive", 6400), ("tile", 640)], conclusions.MOVED) == (
        "Naive moves at least 6.4 KB through memory, 10× as much as tile (640 B)."
    )
    assert (
        conclusions.of_traffic([("a", 64), ("b", 64)], conclusions.MOVED)
        == "All 2 kernels move at least 64 B through memory."
    )


def test_the_limit_is_named_if_it_is_the_same_for_all():
    roof = roofline.roof_of(a_full_row(), "recorded")  # 10 FLOP/byte
    assert conclusions.of_limit([20.0, 30.0], roof) == (
        "The roof over them is arithmetic: 20 FLOP/byte or more, above 10 on a processor."
    )
    assert conclusions.of_limit([0.5, 2.0], roof) == (
        "The roof over them is memory bandwidth: 2 FLOP/byte or less, below 10 on a processor."
    )
    assert conclusions.of_limit([0.5, 20.0], roof) == ""


def test_the_fp32_peak_is_no_limit_of_other_units():
    roof = roofline.roof_of(a_full_row(), "recorded")  # 10 FLOP/byte
    assert conclusions.of_limit([20.0, 30.0], roof, fp32=False) == ""
    assert "memory bandwidth" in conclusions.of_limit([0.5, 2.0], roof, fp32=False)
