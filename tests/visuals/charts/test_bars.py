"""The charts of a comparison: every mark in them is a figure of its row."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.rows_of import COPIES, TIMELINE, a_full_row, a_row
from visuals import palette
from visuals.charts import bars as charts_bars
from visuals.charts import units

T = palette.LIGHT
ROOT = Path(__file__).parents[3]


def drawn(figure, kind):
    return [trace for trace in figure.data if trace.type == kind]


def written(figure):
    return " ".join(note.text for note in figure.layout.annotations)


def strips(figure):
    """Of each bar, the samples drawn over it."""
    found = {}
    for trace in drawn(figure, "scatter"):
        if trace.mode == "markers" and trace.marker.symbol is None:
            found[round(np.mean(trace.y))] = list(trace.x)
    return found


# -- times ---------------------------------------------------------------------------------------
def test_bars_are_medians_with_their_spread_and_their_samples():
    rows = [a_full_row(1), a_full_row(2)]
    figure = charts_bars.times([("one", rows[0]), ("two", rows[1])], T)
    (bars,) = drawn(figure, "bar")
    assert list(bars.x) == [r["median_ms"] for r in rows]
    assert list(bars.error_x.array) == [r["p80_ms"] - r["median_ms"] for r in rows]
    assert list(bars.error_x.arrayminus) == [r["median_ms"] - r["p20_ms"] for r in rows]
    assert list(figure.layout.yaxis.ticktext) == ["one", "two"]
    for i, row in enumerate(rows):
        np.testing.assert_allclose(strips(figure)[i], row["samples_ms"], rtol=1e-3)  # none is left out
        assert units.time_(row["median_ms"]) in written(figure)
    assert figure.layout.height == charts_bars.height(2)


def test_samples_far_out_are_one_arrow_that_tells_of_them():
    row = a_row(samples=[1.0] * 18 + [40.0, 50.0])
    figure = charts_bars.times([("one", row)], T)
    (arrow,) = (t for t in drawn(figure, "scatter") if t.marker.symbol == "triangle-right")
    assert arrow.hovertemplate.startswith("2 of 20 samples beyond, up to 50 ms")
    low, high = figure.layout.xaxis.range
    assert (low, high) == (0, 1.6) and arrow.x[0] < high
    assert strips(figure)[0] == [1.0] * 18


def test_launches_of_nothing_are_a_line_under_the_bar_as_long_as_they_take():
    two = a_full_row(parts_ms={"im2col": 0.4, "gemm": 0.6}, engine="cuda")
    figure = charts_bars.times([("one", a_full_row()), ("two", two), ("old", a_row())], T)
    lines = [t for t in drawn(figure, "scatter") if getattr(t, "mode", "") == "lines"]
    assert [list(line.x) for line in lines] == [
        [0, 0.002],
        [0, 0.004],
    ]  # 2 us each; nothing was measured of the old
    assert [line.hovertemplate.partition("<")[0] for line in lines] == [
        "calls of nothing (1): 2 µs",
        "launches of nothing (2): 4 µs",
    ]
    assert charts_bars.launch_ms(a_row()) == 0 and charts_bars.launches_of(two) == 2


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=700), st.integers(2, 120))
def test_thinning_keeps_the_spread(samples, most):
    kept = charts_bars.thinned(samples, most)
    assert len(kept) == min(most, len(samples)) and set(kept) <= set(samples)
    if len(samples) <= most:
        assert kept == samples
        return
    ordered = sorted(samples)
    assert (kept[0], kept[-1]) == (ordered[0], ordered[-1])
    reach = 1 + (len(samples) - 1) / (most - 1)  # ranks between two that are kept
    for share in (0.2, 0.5, 0.8):
        rank = share * (len(samples) - 1)
        low, high = max(0, int(rank - reach)), min(len(samples) - 1, int(rank + reach) + 1)
        assert ordered[low] <= np.quantile(kept, share) <= ordered[high]


# -- copies --------------------------------------------------------------------------------------
def test_copies_are_bars_with_the_bandwidth_they_come_to():
    figure = charts_bars.copies(a_full_row(input_bytes=4_000_000, output_bytes=1_000_000), T)
    (bars,) = drawn(figure, "bar")
    assert list(bars.x) == [COPIES[k] for k in ("h2d_pageable", "h2d_pinned", "d2h_pageable", "d2h_pinned")]
    assert list(bars.marker.color) == [T["input"]] * 2 + [T["output"]] * 2
    assert [list(told[1:]) for told in bars.customdata] == [
        ["4 ms", "4 MB", "1 GB/s", 11],
        ["1 ms", "4 MB", "4 GB/s", 11],
        ["2 ms", "1 MB", "500 MB/s", 11],
        ["500 µs", "1 MB", "2 GB/s", 11],
    ]
    assert charts_bars.copies(a_row(), T) is None


def test_copies_are_said_beside_the_fastest_rung():
    rows = [a_full_row(samples=[4.0] * 3), a_full_row(samples=[2.0] * 3)]
    assert charts_bars.copies_words(rows) == (
        "328 B in and 288 B back take 3 times as long as the fastest rung computes, from pinned memory 0.75 times."
    )
    assert charts_bars.copies_words([a_row()]) == ""
    assert charts_bars.copies_words([a_full_row(copies_ms={"h2d_pageable": 1.0})]) == ""


# -- memory --------------------------------------------------------------------------------------
def test_memory_is_stacked_by_role_and_ends_at_the_peak():
    row = a_row(workspace_bytes=900, peak_bytes=1516)
    figure = charts_bars.memory([("one", row)], T)
    assert [(t.name, t.x[0], t.marker.color) for t in drawn(figure, "bar")] == [
        ("input + filters", 328, T["input"]),
        ("output", 288, T["output"]),
        ("workspace", 900, T["workspace"]),
    ]
    assert "1.52 KB" in written(figure) and figure.layout.xaxis.range[1] == 1516


def test_the_timeline_is_a_panel_a_rung_with_every_stage_and_the_peak():
    more = [*TIMELINE[:2], {"at": "workspace", "input": 328, "output": 288, "workspace": 1296},
            {"at": "im2col", "input": 328, "output": 288, "workspace": 2000}]  # fmt: skip
    rows = [("direct", a_full_row()), ("im2col + our GEMM", a_full_row(timeline=more, peak_bytes=2616))]
    figure = charts_bars.timeline([*rows, ("old", a_row())], T)  # the old one tells of none: it has no panel
    bars = drawn(figure, "bar")
    assert len(bars) == 6
    for n, (_, row) in enumerate(rows):
        for bar, role in zip(bars[3 * n : 3 * n + 3], ("input", "output", "workspace"), strict=True):
            assert list(bar.y) == [stage[role] for stage in row["timeline"]] and bar.marker.color == T[role]
    assert list(figure.layout.xaxis.ticktext) == ["inputs", "output", "direct"]
    assert list(figure.layout.xaxis2.ticktext) == ["inputs", "output", "workspace", "im2col"]
    assert [line.y0 for line in figure.layout.shapes] == [616, 2616]
    assert "peak 616 B" in written(figure) and "peak 2.62 KB" in written(figure)
    assert figure.layout.yaxis.range[1] > 2616 and figure.layout.height == charts_bars.TIMELINE_PX
    assert charts_bars.timeline([("old", a_row())], T) is None


def test_titles_of_many_panels_are_narrow_and_have_room():
    told = [(f"flash attention, register tiles {n}", a_full_row()) for n in range(6)]
    few, many = charts_bars.timeline(told[:2], T), charts_bars.timeline(told, T)
    head = next(a.text for a in many.layout.annotations if a.text.startswith("flash"))
    assert head == "flash<br>attention,<br>register<br>tiles 0"
    assert many.layout.margin.t == 70 and few.layout.margin.t == 42
    assert "flash attention,<br>register tiles 0" in {a.text for a in few.layout.annotations}
    assert {bar.customdata[0][0] for bar in many.data} == {f"{title}, inputs" for title, _ in told}


def test_rungs_that_allocate_alike_share_a_bar_and_a_panel():
    other = [*TIMELINE[:2], TIMELINE[2] | {"at": "naive"}]
    same = [
        (t, a_full_row(rung="gemm/naive", timeline=told))
        for t, told in (("a", TIMELINE), ("b", other), ("d", TIMELINE))
    ]
    more = ("c", a_full_row(rung="gemm/naive", workspace_bytes=100, peak_bytes=716))
    groups = charts_bars.alike([same[0], more, *same[1:]])
    assert [[title for title, _ in group] for group in groups] == [["a", "b", "d"], ["c"]]
    assert (
        charts_bars.together(groups[0], 4)[0] == "a and 2 others"
        and charts_bars.together(groups[1], 4) == more
    )
    title, row = charts_bars.together(same, 3)
    assert title == "all 3 rungs" and [s["at"] for s in row["timeline"]] == ["inputs", "output", "step"]
    assert [dict(s, at="") for s in row["timeline"]] == [dict(s, at="") for s in TIMELINE]
    assert len(charts_bars.alike(same[:2])) == 2  # two have room to stand apart
    assert (
        len(charts_bars.alike([*same[:2], ("b", a_full_row(rung="gemm/naive", timeline=TIMELINE[:2]))])) == 3
    )
    assert charts_bars.roles(same[0][1])[0] == ("input", "inputs")


def test_times_far_apart_stand_on_a_logarithmic_axis_that_holds_them_all():
    near = [("a", a_full_row(samples=[1.0] * 3)), ("b", a_full_row(samples=[50.0] * 3))]
    far = [("a", a_full_row(samples=[0.35] * 3)), ("b", a_full_row(samples=[276.0] * 3))]
    assert (
        charts_bars.decade_under([row for _, row in near]) == 0
        and charts_bars.times(near, T).layout.xaxis.type != "log"
    )
    axis = charts_bars.times(far, T).layout.xaxis
    assert axis.type == "log" and list(axis.tickvals) == [0.1, 1, 10, 100]
    assert axis.range[0] == -1 and 10 ** axis.range[1] >= 276
    lines = [t for t in charts_bars.times(far, T).data if getattr(t, "mode", "") == "lines"]
    assert not lines  # launches of nothing, 2 us, lie before the axis begins
    assert len([t for t in charts_bars.times(near, T).data if getattr(t, "mode", "") == "lines"]) == 2


@pytest.mark.parametrize("tokens", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_charts_wear_the_theme(tokens):
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
    assert theme["font"] == charts_bars.FONT
    told = [("one", a_full_row())]
    for figure in (
        charts_bars.times(told, tokens),
        charts_bars.memory(told, tokens),
        charts_bars.timeline(told, tokens),
    ):
        assert figure.layout.font.family == charts_bars.FONT and figure.layout.font.color == tokens["ink"]
        assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
