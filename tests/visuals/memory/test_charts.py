"""Slowdown over stride, measured and counted: the figure has the rows' numbers; tables and sentences have the counts."""

from __future__ import annotations

import pytest

from kernels.memory.shape import AddShape, LayoutShape
from visuals.memory import charts as memory_charts
from visuals.memory import count_tables
from visuals.memory.charts import Line
from visuals.palette import LIGHT


def row(stride, ms):
    return {"median_ms": ms, "p20_ms": 0.9 * ms, "p80_ms": 1.2 * ms, "n": 7, "shape": {"stride": stride}}


LINE = Line("copy", {8: row(8, 40.0), 1: row(1, 10.0), 2: row(2, 15.0)})


def test_slowdowns_are_relative_to_stride_1():
    assert LINE.slowdowns == {1: 1.0, 2: 1.5, 8: 4.0}
    assert Line("copy", {2: row(2, 1.0)}).slowdowns == {}  # nothing to compare with


def test_figure_has_measurements_counts_and_the_scenes_stride():
    figure = memory_charts.slowdown([LINE], {"sectors": {1: 1.0, 2: 1.5, 8: 4.5}}, 2, LIGHT)
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["copy"].x) == [1, 2, 8] and list(by_name["copy"].y) == [1.0, 1.5, 4.0]
    assert list(by_name["sectors"].y) == [1.0, 1.5, 4.5]
    assert by_name["copy"].error_y.array == pytest.approx([0.2, 0.3, 0.8])
    assert list(figure.layout.xaxis.tickvals) == [1, 2, 8]
    (line,) = figure.layout.shapes
    assert line.x0 == line.x1 == 2


def test_sentence_has_slowdown_and_count_if_measured():
    counts = {1: 1.0, 2: 1.5, 4: 2.5, 8: 4.5}
    sentence = memory_charts.slowdown_sentence(LINE, 8, counts, "sectors")
    assert (
        sentence == "copy: stride 8 takes 4× the time of stride 1 (40 ms instead of 10 ms). It needs 4.5× the sectors."
    )
    assert (
        memory_charts.slowdown_sentence(LINE, 4, counts, "sectors")
        == ""
        == memory_charts.slowdown_sentence(LINE, 1, counts, "sectors")
    )


def test_equal_times_and_counts_are_not_given_as_a_ratio_of_1():
    line = Line("rows padded to 33", {4: row(4, 0.0752), 1: row(1, 0.07521)})
    assert memory_charts.slowdown_sentence(line, 4, {1: 1.0, 4: 1.0}, "passes") == (
        "rows padded to 33: stride 4 takes as long as stride 1 (75.2 µs). The number of passes is the same."
    )


def test_counts_of_a_warp():
    assert {s: memory_charts.sectors(s) for s in (1, 2, 8, 32)} == {1: 8, 2: 12, 8: 36, 32: 36}
    assert [memory_charts.wavefronts(s, padded) for s in (1, 32) for padded in (False, True)] == [1, 1, 32, 1]
    assert memory_charts.relative({2: 3.0, 1: 2.0}) == {1: 1.0, 2: 1.5}


def test_sentence_says_whether_padding_helps():
    assert "8 passes without padding. With padding it takes 1 pass. Padding helps here." in " ".join(
        count_tables.banks(8).sentences
    )
    assert "1 pass without padding. With padding it takes 2 passes. Padding makes it worse here" in " ".join(
        count_tables.banks(3).sentences
    )
    assert "Padding changes nothing here." in count_tables.banks(1).sentences
    assert dict(count_tables.strides(7).lines)["stride 7"] == ["28", "896 B", "14.3 %"]


def test_sentence_names_the_mapping_with_most_sectors():
    table = count_tables.mappings("add", AddShape(64, 64), {"BLOCK": 256, "TILE": 32})
    assert dict(table.lines)["matrix add, x down the column"] == ["8,192", "4,096", "8 ×"]
    assert (
        "“matrix add, x down the column” requests 12,288 sectors" in " ".join(table.sentences)
        and "kt-badge-counted" in table.bars_html()
    )
    assert (
        "At this size each kernel requests 15 sectors."
        in count_tables.mappings("layout", LayoutShape(2, 3, 2, 4), {}).sentences
    )
