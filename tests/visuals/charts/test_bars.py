"""The charts of a comparison: every mark in them is a number of its row."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.rows_of import COPIES, TIMELINE, a_full_row, a_row
from visuals import palette, units
from visuals.charts import bars

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
        np.testing.assert_allclose(samples_by_bar(figure)[i], row["samples_ms"], rtol=1e-3)  # none is left out
        assert units.time_(row["median_ms"]) in annotation_text(figure)
    assert figure.layout.height == bars.height(2)


def test_samples_beyond_the_axis_are_one_arrow_with_their_number():
    row = a_row(samples=[1.0] * 18 + [40.0, 50.0])
    figure = bars.times([("one", row)], T)
    (arrow,) = (t for t in traces_of(figure, "scatter") if t.marker.symbol == "triangle-right")
    assert arrow.hovertemplate.startswith("2 of 20 samples are beyond the axis, up to 50 ms")
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
        "1 empty call takes 2 µs",
        "2 launches of an empty kernel take 4 µs",
    ]
    assert bars.launch_ms(a_row()) == 0 and bars.launch_count(two) == 2


@settings(max_examples=25)
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
    html = bars.copies_table(a_full_row(input_bytes=4_000_000, output_bytes=1_000_000))
    longest = max(value for key, value in COPIES.items() if key != "n")
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", html)]
    keys = ("h2d_pageable", "h2d_pinned", "d2h_pageable", "d2h_pinned")
    assert widths == pytest.approx([100 * COPIES[k] / longest for k in keys], abs=0.06)
    assert re.findall(r"--kt-(\w+)", html) == ["input"] * 2 + ["output"] * 2
    assert re.findall(r"<dt>([^<]*)</dt>", html)[::2] == ["to GPU, pageable", "from GPU, pageable"]
    for texts in ("4 ms · 1 GB/s", "1 ms · 4 GB/s", "2 ms · 500 MB/s", "500 µs · 2 GB/s"):
        assert f"<dd>{texts}</dd>" in html
    assert bars.copies_table(a_row()) == ""


def test_copies_sentence_compares_with_the_fastest_rung():
    rows = [a_full_row(samples=[4.0] * 3), a_full_row(samples=[2.0] * 3)]
    assert bars.copies_sentence(rows) == (
        "Copying data to and from the GPU takes 3× the time of the fastest kernel (0.75× from pinned memory)."
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


def test_timeline_has_a_list_per_rung_with_every_stage():
    stages = [
        *TIMELINE[:2],
        {"at": "workspace", "input": 328, "output": 288, "workspace": 1296},
        {"at": "im2col", "input": 328, "output": 288, "workspace": 2000},
    ]
    rows = [("direct", a_full_row()), ("im2col + our GEMM", a_full_row(timeline=stages, peak_bytes=2616))]
    html = bars.timeline([*rows, ("old", a_row())])  # the old row has no stages, so it has no list
    first, second = html.split("grid-column:1/-1")[1:]
    assert "<b>direct</b>" in first and "<b>im2col + our GEMM</b>" in second
    assert re.findall(r"<dt>([^<]*)", first) == ["inputs", "output", "direct"]
    assert re.findall(r"<dt>([^<]*)", second) == ["inputs", "output", "workspace", "im2col"]
    assert "<dd>616 B</dd></div>" in first and second.endswith("<dd>2.62 KB</dd></div></dl>")
    widths = [float(x) for x in re.findall(r"width:([\d.]+)%", second)]
    expected = [100 * stage[role] / 2616 for stage in stages for role in ("input", "output", "workspace")]
    assert widths == pytest.approx(expected, abs=0.01)
    lefts = [float(x) for x in re.findall(r"left:([\d.]+)%", second)][-3:]
    assert lefts == pytest.approx([0, 100 * 328 / 2616, 100 * 616 / 2616], abs=0.01)
    assert re.findall(r"--kt-(\w+)", second)[:3] == ["input", "output", "workspace"]
    assert bars.timeline([("old", a_row())]) == ""
    assert "<img" not in bars.timeline([("<img>", a_full_row())])


def test_rungs_that_allocate_the_same_share_a_bar_and_a_panel():
    other = [*TIMELINE[:2], TIMELINE[2] | {"at": "naive"}]
    same = [
        (t, a_full_row(rung="gemm/naive", timeline=stages))
        for t, stages in (("a", TIMELINE), ("b", other), ("d", TIMELINE))
    ]
    different = ("c", a_full_row(rung="gemm/naive", workspace_bytes=100, peak_bytes=716))
    groups = bars.group_by_memory([same[0], different, *same[1:]])
    assert [[title for title, _ in group] for group in groups] == [["a", "b", "d"], ["c"]]
    assert bars.combine_group(groups[0], 4)[0] == "a and 2 others" and bars.combine_group(groups[1], 4) == different
    title, row = bars.combine_group(same, 3)
    assert title == "all 3 kernels" and [s["at"] for s in row["timeline"]] == ["inputs", "output", "step"]
    assert [dict(s, at="") for s in row["timeline"]] == [dict(s, at="") for s in TIMELINE]
    assert len(bars.group_by_memory(same[:2])) == 2  # two are not grouped
    assert len(bars.group_by_memory([*same[:2], ("b", a_full_row(rung="gemm/naive", timeline=TIMELINE[:2]))])) == 3
    assert bars.roles(same[0][1])[0] == ("input", "inputs")


def test_workspace_larger_than_predicted_is_explained_by_the_allocator():
    sizes = {"workspace_bytes": 1536, "predicted_workspace_bytes": 1296, "peak_bytes": 3072}
    row = a_full_row(engine="cuda", **sizes)
    assert bars.pieces_note([("direct", a_full_row()), ("im2col", row)]) == (
        "GPU memory is allocated in pieces of 512 B. The workspace of im2col needs 1,296 B and gets 1,536 B: 240 B more."
    )
    large = row | {"workspace_bytes": 512 * 10**6, "predicted_workspace_bytes": 512 * 10**6 - 240, "peak_bytes": 10**9}
    same = row | {"predicted_workspace_bytes": 1536}
    small = row | {"workspace_bytes": 0, "predicted_workspace_bytes": 0, "input_bytes": 1024, "output_bytes": 512}
    assert bars.pieces_note([("a", small)]) == "" and "Small tensors" in bars.small_pieces_note([("a", small)])
    assert bars.small_pieces_note([("a", small | {"input_bytes": 328})]) == ""
    assert bars.pieces_note([("a", large), ("b", same), ("c", row | {"engine": "cpu"})]) == ""


def test_a_title_has_two_lines_if_it_can():
    assert bars.wrap_title("shared-memory tile") == "shared-memory tile"
    assert bars.wrap_title("mma.sync, fed by ldmatrix and cp.async") == "mma.sync, fed by<br>ldmatrix and cp.async"
    assert bars.wrap_title("cuDNN IMPLICIT_PRECOMP_GEMM") == "cuDNN IMPLICIT_<br>PRECOMP_GEMM"
    assert bars.wrap_title("cuDNN WINOGRAD_NONFUSED") == "cuDNN<br>WINOGRAD_NONFUSED"


def test_times_far_apart_have_a_logarithmic_axis():
    close = [("a", a_full_row(samples=[1.0] * 3)), ("b", a_full_row(samples=[50.0] * 3))]
    far = [("a", a_full_row(samples=[0.35] * 3)), ("b", a_full_row(samples=[276.0] * 3))]
    assert bars.log_axis_start([row for _, row in close]) == 0 and bars.times(close, T).layout.xaxis.type != "log"
    axis = bars.times(far, T).layout.xaxis
    assert axis.type == "log" and list(axis.tickvals) == [0.1, 1, 10, 100]
    assert list(axis.ticktext) == ["100 µs", "", "", "100 ms"] and "logarithmic" in axis.title.text
    assert bars.times(far, T).layout.height == bars.times_px([row for _, row in far]) > bars.height(2)
    assert axis.range[0] == -1 and 10 ** axis.range[1] >= 276
    lines = [t for t in bars.times(far, T).data if getattr(t, "mode", "") == "lines"]
    assert not lines  # the launch overhead, 2 us, is below the start of the axis
    assert len([t for t in bars.times(close, T).data if getattr(t, "mode", "") == "lines"]) == 2


@pytest.mark.parametrize("tokens", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_charts_use_the_theme(tokens):
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
    assert theme["font"] == bars.FONT
    titled = [("one", a_full_row())]
    for figure in (bars.times(titled, tokens), bars.memory(titled, tokens)):
        assert figure.layout.font.family == bars.FONT and figure.layout.font.color == tokens["ink"]
        assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
