"""Numbers as text: three digits, the unit that fits, and the badge with their kind."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.offenders import every
from tests.helpers.rows_of import a_full_row, a_row
from visuals import units
from visuals.charts import compare, roofline, sweeps
from visuals.charts.ladder_notes import device_comparison, fastest_library, shares


@every(
    ("actual", "expected"),
    [
        (units.bytes_(1536), "1.54 KB"),
        (units.bytes_(12), "12 B"),
        (units.bytes_(5e12), "5 TB"),
        (units.count(7.04e13), "70.4 T"),
        (units.time_(0.0047), "4.7 µs"),
        (units.time_(28.1), "28.1 ms"),
        (units.time_(61_000), "61 s"),
        (units.time_(900_000), "15 min"),
        (units.time_(65_000_000), "18.1 h"),
        (units.bandwidth(4.28e12), "4.28 TB/s"),
        (units.bandwidth(24.8e9), "24.8 GB/s"),
        (units.rate(6.51e10, 1.0), "65.1 TFLOP/s"),
        (units.share(0.4512), "45 %"),
        (units.share(0.00123), "0.12 %"),
        (units.share(1.634), "163 %"),
        (units.share(1e-6), "< 0.001 %"),
        (units.share(0), "0 %"),
        (units.ratio(0.4041), "0.404"),
        (units.ratio(12.34), "12.3"),
        (units.ratio(1253.7), "1,250"),
        (units.ratio(99_960), "100,000"),
        (units.whole(4_194_304), "4,194,304"),
        (units.exact_bytes(1536), "1,536 B"),
        (units.in_decimal_units("device to device, 1024 MiB, bytes"), "device to device, 1.07 GB, bytes"),
        (units.bandwidth(5e5), "500 KB/s"),
    ],
)
def test_numbers_are_formatted(actual, expected):
    assert actual == expected


@every(
    ("title", "inside", "first"),
    [
        ("naive", "naive", "Naive"),
        ("cuBLAS FP32", "cuBLAS FP32", "cuBLAS FP32"),
        ("mma.sync", "mma.sync", "mma.sync"),
        ("register tile, 1-D", "“register tile, 1-D”", "“register tile, 1-D”"),
        ("unsafe: no maximum", "“unsafe: no maximum”", "“unsafe: no maximum”"),
        ("a launch per tensor", "“a launch per tensor”", "“a launch per tensor”"),
    ],
)
def test_a_title_reads_as_one_name(title, inside, first):
    assert (units.named(title), units.named(title, first=True)) == (inside, first)


@given(st.floats(1e-3, 9.9e5))
def test_a_ratio_has_three_digits_and_no_power_of_ten(number):
    actual = units.ratio(number)
    assert "e" not in actual and float(actual.replace(",", "")) == pytest.approx(number, rel=0.0051)


@given(st.floats(1e-9, 10))
def test_a_share_is_never_a_power_of_ten(part):
    assert re.fullmatch(r"(< )?[\d.,]+ %", units.share(part))


def test_a_badge_has_a_known_kind_and_escapes_text():
    assert units.badge("measured", "<b>") == '<span class="kt-badge kt-badge-measured">measured &lt;b&gt;</span>'
    assert '<span class="kt-date">2026-11-28</span>' in units.badge("recorded", "H200, 2026-11-28")
    with pytest.raises(ValueError, match="kind must be one of measured, counted"):
        units.badge("guessed")
    assert units.provenance(a_row(samples=[1.0, 2.0])) == "a processor, cold, n = 2"


def test_times_that_include_waits_have_a_note():
    none = [("one", a_row()), ("two", a_row(queued="ahead"))]
    assert units.waits_note(none) == ""
    some = [*none, ("three", a_row(queued="3 of 20")), ("four", a_row(queued="3 of 20"))]
    text = units.waits_note(some)
    assert "waits for the CPU: three, four." in text and text.count("3 of 20") == 1


def test_times_that_other_programs_disturbed_say_so():
    quiet, cores, gpu = a_row(disturbed=""), a_row(disturbed="cores"), a_row(disturbed="gpu")
    assert units.disturbance(a_row(), quiet) == "" == units.disturbed_note([("one", quiet)])
    assert units.disturbance(quiet, cores) == "disturbed: other programs used the cores"
    assert units.provenance(gpu).endswith(", disturbed: other programs used the GPU")
    assert sweeps.provenance([quiet, cores]).endswith(", disturbed: other programs used the cores")
    assert units.disturbance(a_row(disturbed="network")) == "disturbed by other programs"
    assert units.disturbed_note([("one", quiet), ("two", cores)]).startswith(
        "Other programs ran while these were timed: two."
    )


# -- comparisons, side by side --------------------------------------------------------------------
FAST = a_full_row(rung="conv/im2col-cublas", samples=[0.5] * 3, tiles={}, parts_ms={"im2col": 0.1, "cublas_sgemm": 0.4})
SLOW = a_full_row(samples=[2.0] * 3)


def test_shares_of_library_roof_peak_and_launch_overhead():
    # 1296 FLOPs at 4 FLOP per byte: the roof is 4e12 of a peak of 1e13 FLOP/s.
    columns = shares([("direct", SLOW), ("library", FAST)])
    slow, fast = 1296 / 2e-3, 1296 / 0.5e-3
    assert columns == {
        "speed, relative to the fastest library": ["25 %", "100 %"],
        "rate, relative to the roof": [units.share(slow / 4e12), units.share(fast / 4e12)],
        "rate, relative to the FP32 peak": [units.share(slow / 1e13), units.share(fast / 1e13)],
        "call overhead": ["0.1 %", "0.8 %"],  # one of 2 us in 2 ms; two in 0.5 ms
    }
    assert "launch overhead" in shares([("direct", SLOW | {"engine": "cuda"})])


def test_rungs_on_other_units_have_no_share_of_the_roof():
    tensor = a_full_row(rung="gemm/cublas-tf32", engine="cuda", tiles={})
    columns = shares([("FP32", SLOW), ("TF32", tensor)])
    assert (
        columns["rate, relative to the roof"][1] == "–" != columns["rate, relative to the roof"][0]
        and columns["rate, relative to the FP32 peak"][1] != "–"
    )


@pytest.mark.parametrize(
    ("rung", "dtype", "expected"),
    [
        ("attention/flash-mma", "fp16", "tensor cores"),
        ("attention/cublas", "bf16", "tensor cores"),
        ("attention/cublas", "fp32", ""),
        ("attention/library", "fp32", "tensor cores"),  # three TF32 products
        ("attention/flash", "fp32", ""),
    ],
)
def test_16_bit_types_use_other_units(rung, dtype, expected):
    params = {"B": 1, "H": 1, "N": 8, "d": 4, "causal": 0, "scale": 0.0, "dtype": dtype}
    assert roofline.other_units(rung, params) == expected


def test_fastest_library_is_the_fastest_that_is_as_exact():
    cublas, tf32 = (
        a_full_row(rung=f"gemm/{name}", tiles={}, samples=[ms] * 3)
        for name, ms in (("cublas", 1.0), ("cublas-tf32", 0.1))
    )
    faster = a_full_row(rung="conv/im2col-cublas", tiles={}, samples=[0.5] * 3)
    assert fastest_library([tf32, cublas, SLOW]) is cublas
    assert fastest_library([cublas, faster, SLOW]) is faster
    assert fastest_library([SLOW]) is None


def test_unmeasured_values_have_no_share():
    assert shares([("direct", a_row())]) == {}
    assert list(shares([("direct", a_row()), ("library", a_row(rung="conv/im2col-cublas"))])) == [
        "speed, relative to the fastest library"
    ]
    assert list(shares([("direct", SLOW | {"flops": 0})])) == ["call overhead"]


def test_two_devices_are_compared_in_one_sentence():
    there = FAST | {"device": "a GPU", "median_ms": 0.001}
    assert device_comparison([("direct", SLOW), ("library", FAST)], [("cuBLAS", there)]) == (
        "Library is fastest on a processor: 500 µs. That is 500× the time of cuBLAS on a GPU (1 µs, recorded)."
    )
    assert "That is 0.002× the time of library on a processor" in device_comparison(
        [("cuBLAS", there)], [("library", FAST)]
    )


@pytest.mark.parametrize(
    "other", [{"device": "a processor"}, {"mode": "hot"}, {"shape": SLOW["shape"] | {"N": 2}}], ids=str
)
def test_rows_that_differ_in_settings_are_not_compared(other):
    assert device_comparison([("direct", SLOW)], [("direct", SLOW | {"device": "a GPU"} | other)]) == ""
    assert device_comparison([("direct", SLOW)], []) == device_comparison([], [("direct", SLOW)]) == ""


def test_history_formats_ceilings_and_copies_as_text():
    html = compare.fields_table({name: value for name, value in SLOW.items() if name != "a_field_of_later"})
    assert "copy 1 TB/s, FP32 10 TFLOP/s, an empty kernel 2 µs" in html
    assert "h2d pageable 4 ms, d2h pageable 2 ms, h2d pinned 1 ms, d2h pinned 500 µs" in html
    assert "{" not in html
    assert "peaks of the device" in compare.fields_table(a_row(), SLOW)  # "none" beside it


def test_a_fallen_clock_has_a_note_with_its_rungs():
    steady = ("one", a_row(clock_sm_mhz=1980, clock_sm_mhz_after=1950))
    fell = a_row(clock_sm_mhz=1980, clock_sm_mhz_after=1545)
    assert units.clock_note([steady, ("two", a_row())]) == ""
    text = units.clock_note([steady, ("three", fell), ("four", fell | {"parts_ms": {"a": 1.0, "b": 2.0}})])
    assert "from 1,980 to 1,545 MHz during the run of three, four. Steps" in text and "one" not in text
    assert units.clock_note([("three", fell)]).endswith("during the run of three.")


def test_times_of_another_sweep_have_a_note():
    day = "2026-01-02T0"
    rows = [("one", a_row(time=f"{day}3:00:00Z")), ("two", a_row(time=f"{day}3:50:00Z"))]
    assert units.sweeps_note(rows) == units.sweeps_note([]) == ""
    assert units.sweeps_note([("late", a_row(time=f"{day}5:00:01Z")), *rows]) == (
        "Measured in a separate run, at 2026-01-02 05:00 UTC: late."
    )


def test_days_of_rows_are_the_first_and_the_last():
    assert units.days([{"date": "2026-11-28"}] * 2) == "2026-11-28"
    rows = [{"date": f"2026-11-{day}"} for day in (25, 28, 21)]
    assert units.days(rows) == "2026-11-21 to 2026-11-28"


@every(
    ("title", "quoted"),
    [
        ("loss, then gradient", True),
        ("direct", True),
        ("P and dS in memory", True),
        ("im2col + our GEMM", True),
        ("FFT in tiles", True),
        ("Winograd 2×2, fused", True),
        ("cuBLAS FP32", False),
        ("cuDNN FFT_TILING", False),
        ("NumPy BLAS", False),
        ("torch._int_mm", False),
        ("FFT", False),
        ("Winograd 2×2", False),
        ("mma.sync", False),
    ],
)
def test_a_title_that_reads_as_words_is_quoted(title, quoted):
    assert units.quoted(title) == (f"“{title}”" if quoted else title)
