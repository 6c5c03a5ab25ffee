"""Tables and shares of the benchmarks' reports."""

from __future__ import annotations

from benchmarks import report
from benchmarks.report import Column

FAST = {"rung": "a/fast", "median_ms": 1.0, "p20_ms": 0.9, "p80_ms": 1.1, "n": 50}
SLOW = {"rung": "a/slowest", "median_ms": 4.0, "p20_ms": 4.0, "p80_ms": 5.0, "n": 7}
FAILED = {"rung": "b", "said": "out of memory"}


def test_table_aligns_text_left_and_numbers_right_and_leaves_missing_values_empty():
    columns = (report.RUNG, report.MEDIAN_MS, report.SPREAD, report.SAMPLES, Column("", "", "said"))
    assert report.table([FAST, SLOW, FAILED], columns).splitlines() == [
        "              ms spread  n",
        "a/fast    1.0000  20.0% 50",
        "a/slowest 4.0000  25.0%  7",
        "b                          out of memory",
    ]


def test_line_below_a_row():
    text = report.table([FAST, SLOW], (report.RUNG,), lambda row: "  note" if row is FAST else "")
    assert text.splitlines() == ["", "a/fast", "  note", "a/slowest"]


def test_speed_relative_to_the_fastest_of_some_rungs():
    base = report.fastest_ms([SLOW, FAST, FAILED], ("a/fast", "a/slowest", "b"))
    assert base == 1.0
    assert [report.speed_relative_to(base, row) for row in (FAST, SLOW, FAILED)] == [1.0, 0.25, None]
    assert report.fastest_ms([FAST], ("b",)) is None
    assert report.speed_relative_to(None, FAST) is None


def test_nothing_begins_after_the_seconds(capsys):
    clock = iter((0, 5, 11, 12))
    items = report.in_time("abcd", lambda: next(clock), 10, str.upper)
    assert list(items) == ["a", "b"]
    assert capsys.readouterr().out == "left out for want of time: C\nleft out for want of time: D\n"
