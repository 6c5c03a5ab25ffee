"""The charts of a comparison: every mark in them is a number of its row."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.rows_of import COPIES, TIMELINE, a_full_row, a_row
from visuals import palette
from visuals.charts import bars, units

T = palette.LIGHT
ROOT = Path(__file__).parents[3]


def traces_of(figure, kind):
    return [trace for trace in figure.data if trace.type == kind]


def annotation_text(figure):
    return " ".join(note.text for note in figure.layout.annotations)


def samples_by_bar(figure):
    """Return, for each bar, the samples drawn over it."""
    found = {}
    for trace in traces_of(figure, "scatter"):
        if trace.mode == "markers" and trace.marker.symbol is None:
            found[round(np.mean(trace.y))] = list(trace.x)
    return found


# -- times ---------------------------------------------------------------------------------------
def test_bars_are_medians_with_their_spread_and_their_samples():
    rows = [a_full_row(1), a_full_row(2)]
    figure = bars.times([("one", rows[0]), ("two", rows[1])], T)
    (trace,) = traces_of(figure, "bar")
    assert list(trace.x) == [r["median_ms"] for r in rows]
    assert list(trace.error_x.array) == [r["p80_ms"] - r["median_ms"] for r in rows]
    assert list(trace.error_x.arrayminus) == [r["median_ms"] - r["p20_ms"] for r in rows]
    assert list(figure.layout.yaxis.ticktext) == ["one", "two"]
    for i, row in enumerate(rows):
        np.testing.assert_allclose(
            samples_by_bar(figure)[i], row["samples_ms"], rtol=1e-3
        )  # none is left out
        assert units.time_(row["median_ms"]) in annotation_text(figure)
    assert figure.layout.height == bars.height(2)


def test_samples_beyond_the_axis_are_one_arrow_with_their_number():
    row = a_row(samples=[1.0] * 18 + [40.0, 50.0])
    figure = bars.times([("one", row)], T)
    (arrow,) = (t for t in traces_of(figure, "scatter") if t.marker.symbol == "triangle-right")
    assert arrow.hovertemplate.startswith("2 of 20 samples beyond, up to 50 ms")
    low, high = figure.layout.xaxis.range
    assert (low, high) == (0, 1.6) and arrow.x[0] < high
    assert samples_by_bar(figure)[0] == [1.0] * 18


def test_launch_overhead_is_a_line_under_the_bar():
    two = a_full_row(parts_ms={"im2col": 0.4, "gemm": 0.6}, engine="cuda")
    figure = bars.times([("one", a_full_row()), ("two", two), ("old", a_row())], T)
    lines = [t for t in traces_of(figure, "scatter") if getattr(t, "mode", "") == "lines"]
    assert [list(line.x) for line in lines] == [
        [0, 0.002],
        [0, 0.004],
    ]  # 2 us each; nothing was measured for the old row
    assert [line.hovertemplate.partition("<")[0] for line in lines] == [
        "calls of nothing (1): 2 µs",
        "launches of nothing (2): 4 µs",
    ]
    assert bars.launch_ms(a_row()) == 0 and bars.launch_count(two) == 2


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=700), st.integers(2, 120))
def test_thinning_keeps_the_spread(samples, max_samples):
    thinned = bars.thinned(samples, max_samples)
    assert len(thinned) == min(max_samples, len(samples)) and set(thinned) <= set(samples)
    if len(samples) <= max_samples:
        assert thinned == samples
        return
    ordered = sorted(samples)
    assert (thinned[0], thinned[-1]) == (ordered[0], ordered[-1])
    reach = 1 + (len(samples) - 1) / (max_samples - 1)  # ranks between two thinned samples
    for share in (0.2, 0.5, 0.8):
        rank = share * (len(samples) - 1)
        low, high = max(0, int(rank - reach)), min(len(samples) - 1, int(rank + reach) + 1)
        assert ordered[low] <= np.quantile(thinned, share) <= ordered[high]


# -- copies --------------------------------------------------------------------------------------
def test_copies_are_bars_with_their_bandwidth():
    figure = bars.copies(a_full_row(input_bytes=4_000_000, output_bytes=1_000_000), T)
    (trace,) = traces_of(figure, "bar")
    assert list(trace.x) == [COPIES[k] for k in ("h2d_pageable", "h2d_pinned", "d2h_pageable", "d2h_pinned")]
    assert list(trace.marker.color) == [T["input"]] * 2 + [T["output"]] * 2
    assert [list(texts[1:]) for texts in trace.customdata] == [
        ["4 ms", "4 MB", "1 GB/s", 11],
        ["1 ms", "4 MB", "4 GB/s", 11],
        ["2 ms", "1 MB", "500 MB/s", 11],
        ["500 µs", "1 MB", "2 GB/s", 11],
    ]
    assert bars.copies(a_row(), T) is None


def test_copies_sentence_compares_with_the_fastest_rung():
    rows = [a_full_row(samples=[4.0] * 3), a_full_row(samples=[2.0] * 3)]
    assert bars.copies_sentence(rows) == (
        "328 B in and 288 B back take 3 times as long as the fastest rung computes, from pinned memory 0.75 times."
    )
    assert bars.copies_sentence([a_row()]) == ""
    assert bars.copies_sentence([a_full_row(copies_ms={"h2d_pageable": 1.0})]) == ""


# -- memory --------------------------------------------------------------------------------------
def test_memory_is_stacked_by_role_and_ends_at_the_peak():
    row = a_row(workspace_bytes=900, peak_bytes=1516)
    figure = bars.memory([("one", row)], T)
    assert [(t.name, t.x[0], t.marker.color) for t in traces_of(figure, "bar")] == [
        ("input + filters", 328, T["input"]),
        ("output", 288, T["output"]),
        ("workspace", 900, T["workspace"]),
    ]
    assert "1.52 KB" in annotation_text(figure) and figure.layout.xaxis.range[1] == 1516


def test_timeline_has_a_panel_per_rung_with_every_stage_and_the_peak():
    stages = [*TIMELINE[:2], {"at": "workspace", "input": 328, "output": 288, "workspace": 1296},
            {"at": "im2col", "input": 328, "output": 288, "workspace": 2000}]  # fmt: skip
    rows = [("direct", a_full_row()), ("im2col + our GEMM", a_full_row(timeline=stages, peak_bytes=2616))]
    figure = bars.timeline([*rows, ("old", a_row())], T)  # the old row has no stages, so it has no panel
    traces = traces_of(figure, "bar")
    assert len(traces) == 6
    for n, (_, row) in enumerate(rows):
        for bar, role in zip(traces[3 * n : 3 * n + 3], ("input", "output", "workspace"), strict=True):
            assert list(bar.y) == [stage[role] for stage in row["timeline"]] and bar.marker.color == T[role]
    assert list(figure.layout.xaxis.ticktext) == ["inputs", "output", "direct"]
    assert list(figure.layout.xaxis2.ticktext) == ["inputs", "output", "workspace", "im2col"]
    assert [line.y0 for line in figure.layout.shapes] == [616, 2616]
    assert "peak 616 B" in annotation_text(figure) and "peak 2.62 KB" in annotation_text(figure)
    assert figure.layout.yaxis.range[1] > 2616 and figure.layout.height == bars.TIMELINE_PX
    assert bars.timeline([("old", a_row())], T) is None


def test_titles_of_many_panels_are_wrapped_and_fit():
    titled = [(f"flash attention, register tiles {n}", a_full_row()) for n in range(6)]
    few, many = bars.timeline(titled[:2], T), bars.timeline(titled, T)
    head = next(a.text for a in many.layout.annotations if a.text.startswith("flash"))
    assert head == "flash<br>attention,<br>register<br>tiles 0"
    assert many.layout.margin.t == 70 and few.layout.margin.t == 42
    assert "flash attention,<br>register tiles 0" in {a.text for a in few.layout.annotations}
    assert {bar.customdata[0][0] for bar in many.data} == {f"{title}, inputs" for title, _ in titled}


def test_rungs_that_allocate_the_same_share_a_bar_and_a_panel():
    other = [*TIMELINE[:2], TIMELINE[2] | {"at": "naive"}]
    same = [
        (t, a_full_row(rung="gemm/naive", timeline=stages))
        for t, stages in (("a", TIMELINE), ("b", other), ("d", TIMELINE))
    ]
    different = ("c", a_full_row(rung="gemm/naive", workspace_bytes=100, peak_bytes=716))
    groups = bars.group_by_memory([same[0], different, *same[1:]])
    assert [[title for title, _ in group] for group in groups] == [["a", "b", "d"], ["c"]]
    assert (
        bars.combine_group(groups[0], 4)[0] == "a and 2 others"
        and bars.combine_group(groups[1], 4) == different
    )
    title, row = bars.combine_group(same, 3)
    assert title == "all 3 rungs" and [s["at"] for s in row["timeline"]] == ["inputs", "output", "step"]
    assert [dict(s, at="") for s in row["timeline"]] == [dict(s, at="") for s in TIMELINE]
    assert len(bars.group_by_memory(same[:2])) == 2  # two are not grouped
    assert (
        len(bars.group_by_memory([*same[:2], ("b", a_full_row(rung="gemm/naive", timeline=TIMELINE[:2]))]))
        == 3
    )
    assert bars.roles(same[0][1])[0] == ("input", "inputs")


def test_times_far_apart_have_a_logarithmic_axis():
    close = [("a", a_full_row(samples=[1.0] * 3)), ("b", a_full_row(samples=[50.0] * 3))]
    far = [("a", a_full_row(samples=[0.35] * 3)), ("b", a_full_row(samples=[276.0] * 3))]
    assert (
        bars.log_axis_start([row for _, row in close]) == 0
        and bars.times(close, T).layout.xaxis.type != "log"
    )
    axis = bars.times(far, T).layout.xaxis
    assert axis.type == "log" and list(axis.tickvals) == [0.1, 1, 10, 100]
    assert axis.range[0] == -1 and 10 ** axis.range[1] >= 276
    lines = [t for t in bars.times(far, T).data if getattr(t, "mode", "") == "lines"]
    assert not lines  # the launch overhead, 2 us, is below the start of the axis
    assert len([t for t in bars.times(close, T).data if getattr(t, "mode", "") == "lines"]) == 2


@pytest.mark.parametrize("tokens", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_charts_use_the_theme(tokens):
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
    assert theme["font"] == bars.FONT
    titled = [("one", a_full_row())]
    for figure in (
        bars.times(titled, tokens),
        bars.memory(titled, tokens),
        bars.timeline(titled, tokens),
    ):
        assert figure.layout.font.family == bars.FONT and figure.layout.font.color == tokens["ink"]
        assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
