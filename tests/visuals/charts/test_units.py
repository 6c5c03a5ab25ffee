"""Figures as a reader says them: three digits, the unit that fits, and the badge that tells their kind."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.rows_of import a_full_row, a_row
from visuals.charts import compare, roofline
from visuals.charts import units as charts_units
from visuals.charts.story import factor, fastest_library, shares


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (charts_units.bytes_(1536), "1.54 KB"),
        (charts_units.bytes_(12), "12 B"),
        (charts_units.bytes_(5e12), "5 TB"),
        (charts_units.count(7.04e13), "70.4 T"),
        (charts_units.time_(0.0047), "4.7 µs"),
        (charts_units.time_(28.1), "28.1 ms"),
        (charts_units.time_(61_000), "61 s"),
        (charts_units.bandwidth(4.28e12), "4.28 TB/s"),
        (charts_units.bandwidth(24.8e9), "24.8 GB/s"),
        (charts_units.rate(6.51e10, 1.0), "65.1 TFLOP/s"),
        (charts_units.share(0.4512), "45 %"),
        (charts_units.share(0.00123), "0.12 %"),
        (charts_units.share(1.634), "163 %"),
        (charts_units.share(1e-6), "< 0.001 %"),
        (charts_units.share(0), "0 %"),
        (charts_units.ratio(0.4041), "0.404"),
        (charts_units.ratio(12.34), "12.3"),
        (charts_units.ratio(1253.7), "1,250"),
        (charts_units.ratio(99_960), "100,000"),
    ],
)
def test_a_figure_is_said(said, words):
    assert said == words


@given(st.floats(1e-3, 9.9e5))
def test_a_ratio_keeps_three_digits_and_no_power_of_ten(number):
    said = charts_units.ratio(number)
    assert "e" not in said and float(said.replace(",", "")) == pytest.approx(number, rel=0.0051)


@given(st.floats(1e-9, 10))
def test_a_share_is_never_a_power_of_ten(part):
    assert re.fullmatch(r"(< )?[\d.,]+ %", charts_units.share(part))


def test_a_badge_has_a_kind_and_no_markup_of_others():
    assert (
        charts_units.badge("measured", "<b>")
        == '<span class="kt-badge kt-badge-measured">measured &lt;b&gt;</span>'
    )
    with pytest.raises(ValueError, match="kind must be one of measured, counted"):
        charts_units.badge("guessed")
    assert charts_units.provenance(a_row(samples=[1.0, 2.0])) == "a processor, cold, n = 2"


def test_a_time_that_holds_waits_says_so():
    none = [("one", a_row()), ("two", a_row(queued="ahead"))]
    assert charts_units.waits(none) == ""
    some = [*none, ("three", a_row(queued="3 of 20")), ("four", a_row(queued="3 of 20"))]
    told = charts_units.waits(some)
    assert "time of three, four:" in told and told.count("3 of 20") == 1


# -- what they come to, side by side -------------------------------------------------------------
FAST = a_full_row(
    rung="conv/im2col-cublas", samples=[0.5] * 3, tiles={}, parts_ms={"im2col": 0.1, "cublas_sgemm": 0.4}
)
SLOW = a_full_row(samples=[2.0] * 3)


def test_shares_are_of_the_library_the_roof_the_peak_and_the_launches():
    # 1296 FLOPs at 4 FLOP per byte: the roof is 4e12 of a peak of 1e13 FLOP/s.
    told = shares([("direct", SLOW), ("library", FAST)])
    slow, fast = 1296 / 2e-3, 1296 / 0.5e-3
    assert told == {
        "of the fastest library's speed": ["25 %", "100 %"],
        "of its roof": [charts_units.share(slow / 4e12), charts_units.share(fast / 4e12)],
        "of the FP32 peak": [charts_units.share(slow / 1e13), charts_units.share(fast / 1e13)],
        "calls of nothing": ["0.1 %", "0.8 %"],  # one of 2 us in 2 ms; two in 0.5 ms
    }
    assert "launches of nothing" in shares([("direct", SLOW | {"engine": "cuda"})])


def test_of_another_roof_there_is_no_share():
    tensor = a_full_row(rung="gemm/cublas-tf32", engine="cuda", tiles={})
    told = shares([("FP32", SLOW), ("TF32", tensor)])
    assert told["of its roof"][1] == "–" != told["of its roof"][0] and told["of the FP32 peak"][1] != "–"


@pytest.mark.parametrize(
    ("rung", "dtype", "units"),
    [
        ("attention/flash-mma", "fp16", "tensor cores"),
        ("attention/cublas", "bf16", "tensor cores"),
        ("attention/cublas", "fp32", ""),
        ("attention/library", "fp32", "tensor cores"),  # three TF32 products
        ("attention/flash", "fp32", ""),
    ],
)
def test_16_bit_types_are_not_under_the_fp32_roof(rung, dtype, units):
    params = {"B": 1, "H": 1, "N": 8, "d": 4, "causal": 0, "scale": 0.0, "dtype": dtype}
    assert roofline.other_units(rung, params) == units


def test_the_share_is_of_the_fastest_library_that_is_as_exact():
    cublas, tf32 = (
        a_full_row(rung=f"gemm/{name}", tiles={}, samples=[ms] * 3)
        for name, ms in (("cublas", 1.0), ("cublas-tf32", 0.1))
    )
    faster = a_full_row(rung="conv/im2col-cublas", tiles={}, samples=[0.5] * 3)
    assert fastest_library([tf32, cublas, SLOW]) is cublas
    assert fastest_library([cublas, faster, SLOW]) is faster
    assert fastest_library([SLOW]) is None


def test_what_was_not_measured_has_no_share():
    assert shares([("direct", a_row())]) == {}
    assert list(shares([("direct", a_row()), ("library", a_row(rung="conv/im2col-cublas"))])) == [
        "of the fastest library's speed"
    ]
    assert list(shares([("direct", SLOW | {"flops": 0})])) == ["calls of nothing"]


def test_two_devices_are_set_against_each_other_in_one_sentence():
    there = FAST | {"device": "a GPU", "median_ms": 0.001}
    assert factor([("direct", SLOW), ("library", FAST)], [("cuBLAS", there)]) == (
        "The fastest here, library (500 µs on a processor), takes 500 times as long as the fastest recorded on a GPU, "
        "cuBLAS (1 µs)."
    )
    assert "takes 0.002 of the time of the fastest" in factor([("cuBLAS", there)], [("library", FAST)])


@pytest.mark.parametrize(
    "other", [{"device": "a processor"}, {"mode": "hot"}, {"shape": SLOW["shape"] | {"N": 2}}], ids=str
)
def test_what_cannot_be_compared_is_not(other):
    assert factor([("direct", SLOW)], [("direct", SLOW | {"device": "a GPU"} | other)]) == ""
    assert factor([("direct", SLOW)], []) == factor([], [("direct", SLOW)]) == ""


def test_the_history_says_ceilings_and_copies_in_words():
    said = compare.explained({name: value for name, value in SLOW.items() if name != "a_field_of_later"})
    assert "copy 1 TB/s, FP32 10 TFLOP/s, a launch of nothing 2 µs" in said
    assert "h2d pageable 4 ms, d2h pageable 2 ms, h2d pinned 1 ms, d2h pinned 500 µs" in said
    assert "{" not in said
    assert "device at most" in compare.explained(a_row(), SLOW)  # "none" beside it


def test_a_clock_that_fell_is_told_of_with_the_times_it_was_under():
    steady = ("one", a_row(clock_sm_mhz=1980, clock_sm_mhz_after=1950))
    fell = a_row(clock_sm_mhz=1980, clock_sm_mhz_after=1545)
    assert charts_units.slowed([steady, ("two", a_row())]) == ""
    told = charts_units.slowed([steady, ("three", fell), ("four", fell | {"parts_ms": {"a": 1.0, "b": 2.0}})])
    assert "from 1,980 to 1,545 MHz (three, four): steps" in told and "one" not in told
    assert charts_units.slowed([("three", fell)]).endswith("(three).")


def test_times_of_another_sweep_are_named():
    day = "2026-01-02T0"
    rows = [("one", a_row(time=f"{day}3:00:00Z")), ("two", a_row(time=f"{day}3:50:00Z"))]
    assert charts_units.apart(rows) == charts_units.apart([]) == ""
    assert charts_units.apart([("late", a_row(time=f"{day}5:00:01Z")), *rows]) == (
        "Measured in another run than the rest: late (2026-01-02 05:00 UTC)."
    )
