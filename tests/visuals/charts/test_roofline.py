"""The roofline: its ridge, the positions of the rungs, and the sentences, on numbers worked out by hand."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.shape import ConvShape
from tests.helpers.recordings import recordings
from tests.helpers.rows_of import CEILINGS, SHAPE, a_full_row, a_row
from visuals import palette
from visuals.charts import roofline
from visuals.charts.roofline import Dot, Mark

T = palette.LIGHT
ROOF = roofline.roof_of(a_full_row(), "measured")  # 1e12 bytes/s, 1e13 FLOP/s


@pytest.fixture(autouse=True)
def no_recordings():
    """These tests do not use the recordings shipped with the app."""
    with recordings():
        yield


HUGE = ConvShape(N=10**6, C=512, H=224, W=224, K=64, R=3, S=3).params()  # so that a row's own bytes are fewer


def row_at(intensity: float, ms: float, flops: int = 10**9, **changes):
    changes = {"shape": HUGE} | changes
    return a_full_row(samples=[ms] * 3, flops=flops, predicted_bytes=round(flops / intensity), **changes)


def a_dot(intensity=5.0, ms=1.0, number=1, kind="measured", stale=False, moved=None, **changes):
    return Dot(number, f"rung {number}", row_at(intensity, ms, **changes), kind, stale, moved)


def validated_chart(*arguments):
    """Returns the chart as a go.Figure, which raises for an unknown property or an invalid value."""
    return go.Figure(roofline.chart(*arguments).to_dict())


# -- roofs ---------------------------------------------------------------------------------------
def test_ridge_is_where_both_ceilings_are_equal():
    assert ROOF.ridge == 10
    assert [ROOF.bound(i) for i in (1, 5, 10, 20, 1e6)] == [1e12, 5e12, 1e13, 1e13, 1e13]


@settings(max_examples=25)
@given(st.floats(1e9, 1e14), st.floats(1e9, 1e15), st.floats(1e-3, 1e5))
def test_roof_is_below_both_ceilings(copy, flops, intensity):
    ceilings = CEILINGS | {"copy_bytes_per_s": copy, "fp32_flops_per_s": flops}
    roof = roofline.roof_of(a_full_row(ceilings=ceilings), "measured")
    assert roof.bound(intensity) <= min(flops, copy * intensity)
    assert roof.bound(roof.ridge) == pytest.approx(flops)


def test_a_row_without_ceilings_has_no_roof_and_each_device_has_one():
    assert roofline.roof_of(a_row(), "measured") is roofline.roof_of(None, "measured") is None
    other = a_full_row(device="another", ceilings=CEILINGS | {"device": "another"})
    found = roofline.roofs(
        [(a_row(), "recorded"), (a_full_row(), "measured"), (a_full_row(1), "measured"), (other, "recorded")], "conv"
    )
    assert [(r.device, r.kind) for r in found] == [("a processor", "measured"), ("another", "recorded")]


def test_the_card_of_the_ladder_adds_its_roof():
    shipped = a_full_row(device="a GPU", ceilings=CEILINGS | {"device": "a GPU"})
    ladder = shipped["rung"].partition("/")[0]
    other = shipped | {"rung": "another/rung", "device": "another", "ceilings": CEILINGS | {"device": "another"}}
    with recordings(shipped, other):
        found = roofline.roofs([(a_full_row(), "measured")], ladder)
        without = roofline.roofs([], "a ladder that has no recordings")
    assert [(r.device, r.kind) for r in found] == [("a processor", "measured"), ("a GPU", "recorded")]
    assert [r.device for r in without] == ["a GPU"]


# -- text ----------------------------------------------------------------------------------------
def test_ceilings_text_has_measurement_and_ridge():
    assert roofline.ceilings_text(ROOF) == (
        "Peak bandwidth is 1 TB/s (copy device to device, 1.07 GB; best of 20). Peak FP32 rate is 10 TFLOP/s (FMA kernel; "
        "best of 19). Below 10 FLOP/byte bandwidth is the limit, above it arithmetic."
    )


def test_verdict_is_on_the_fastest_rung_and_names_its_limit():
    # 1e9 FLOPs in 1 ms are 1 TFLOP/s; the slope allows 5 at 5 FLOP per byte.
    assert roofline.verdict([a_dot(ms=4.0), a_dot(number=2)], [ROOF]) == [
        "Rung 2 does 1 TFLOP/s on a processor: 20 % of the 5 TFLOP/s that memory bandwidth allows at 5 FLOP/byte."
    ]
    assert roofline.verdict([a_dot(intensity=1250)], [ROOF]) == [
        "Rung 1 does 1 TFLOP/s on a processor: 10 % of the 10 TFLOP/s that the FP32 peak allows at 1,250 FLOP/byte."
    ]


def test_verdict_explains_a_rung_above_its_roof():
    (above_roof,) = roofline.verdict([a_dot(intensity=100, ms=0.05)], [ROOF])
    assert "above the limit: it executes fewer FLOPs than defined" in above_roof


def test_no_share_of_memory_bandwidth_is_above_one():
    (cold,) = roofline.verdict([a_dot(ms=0.1)], [ROOF])
    assert "100 % of the 5 TFLOP/s that memory bandwidth allows" in cold
    small = a_dot(ms=0.1, mode="hot", shape=SHAPE, flops=1296)
    assert small.intensity < ROOF.ridge and small.share_of(ROOF) is None
    (hot,) = roofline.verdict([small], [ROOF])
    assert "%" not in hot and "Caches held a part of its data" in hot


@pytest.mark.parametrize(("engine", "word"), [("cpu", "Call"), ("cuda", "Launch")])
def test_verdict_names_launch_overhead_as_the_limit(engine, word):
    small = a_dot(ms=0.005, engine=engine, parts_ms={"im2col": 0.002, "gemm": 0.003}, flops=10**6)
    (sentence,) = roofline.verdict([small], [ROOF])
    assert sentence == (
        f"{word} overhead alone is 80 % of the time of rung 1 on a processor. At this size the roofline says nothing."
    )
    hot = a_dot(
        ms=0.005, engine=engine, flops=10**6, mode="hot"
    )  # many runs in one graph, so there is no launch overhead
    assert "overhead" not in roofline.verdict([hot], [ROOF])[0]


def test_verdict_without_a_roof_and_of_stale_rows():
    assert roofline.verdict([a_dot()], []) == [
        "Rung 1 does 1 TFLOP/s on a processor. The peaks of this device were not measured, so it has no roof."
    ]
    assert roofline.verdict([a_dot(stale=True)], [ROOF]) == []
    sentences = roofline.verdict([a_dot(), a_dot(kind="recorded", device="a GPU")], [ROOF])
    assert len(sentences) == 2 and "on a GPU. The peaks of this device were not measured" in sentences[1]


def test_rungs_not_run_have_a_sentence_with_their_bound():
    marks = [Mark(1, "direct", 5.0), Mark(2, "im2col", 40.0), Mark(3, "library", 40.0)]
    assert roofline.bounds(marks, [ROOF]) == (
        "Without a time at these settings: the roof of a processor allows at most direct 5 TFLOP/s; im2col, library 10 TFLOP/s."
    )
    assert roofline.bounds([], [ROOF]) == roofline.bounds(marks, []) == ""


def test_a_peak_that_was_not_measured_is_no_bound():
    tensor_cores = [Mark(1, "mma", 5.0, "tensor cores"), Mark(2, "wgmma", 4000.0, "tensor cores")]
    assert roofline.bounds(tensor_cores, [ROOF]) == (
        "Without a time at these settings: the roof of a processor allows at most mma 5 TFLOP/s. "
        "The peak of tensor cores on a processor was not measured. It limits wgmma."
    )
    _, (_, highest) = roofline._ranges([ROOF], [], tensor_cores)
    assert highest < 14


def test_rows_without_flops_have_no_place_under_a_roof():
    assert roofline.has_intensity(a_full_row())
    assert not roofline.has_intensity(a_full_row(flops=0)) and not roofline.has_intensity(a_row())


# -- the chart -----------------------------------------------------------------------------------
def points(figure, symbol):
    return [t for t in figure.data if t.mode == "markers" and t.marker.symbol == symbol]


def lines(figure):
    return [t for t in figure.data if t.mode == "lines"]


def test_dots_are_at_predicted_and_rings_at_counted_intensity():
    dot = a_dot(moved=800_000_000, kind="recorded")
    figure = validated_chart([ROOF], [dot, a_dot(number=2, ms=4.0)], [], T)
    (recorded,) = points(figure, "diamond")
    ring, measured = points(figure, "circle")
    assert (recorded.x[0], recorded.y[0], recorded.marker.color) == (5, 1e12, T["workspace"])
    assert (measured.x[0], measured.y[0], measured.marker.color) == (5, 2.5e11, T["output"])
    assert (ring.x[0], ring.y[0]) == (1.25, 1e12)  # 1e9 FLOPs by 8e8 bytes
    assert ring.marker.color == T["ground"] and ring.marker.line.color == T["input"]  # hollow
    assert "1.25 FLOP/byte counted, 800 MB in sectors" in ring.hovertemplate
    assert "20 % of the roof" in recorded.hovertemplate


def test_roof_is_a_slope_and_a_flat_line_that_join():
    figure = validated_chart([ROOF], [a_dot()], [], T)
    (roof,) = lines(figure)
    low, ridge, high = roof.x
    assert ridge == 10 and low <= 1 and high > 10  # at least a decade of the slope is visible
    assert list(roof.y) == [low * 1e12, 1e13, 1e13]
    texts = {note.text for note in figure.layout.annotations}
    assert {"FP32 10 TFLOP/s", "copy 1 TB/s", "1"} <= texts


def test_stale_dots_are_faded_and_labelled():
    figure = validated_chart([ROOF], [a_dot(moved=8 * 10**8), a_dot(stale=True, number=2, ms=9.0, moved=10**9)], [], T)
    faded = [t for t in figure.data if t.opacity is not None and t.opacity < 1]
    assert len(faded) == 3  # the dot, its ring and the line between
    assert all(t.hovertemplate.startswith("stale: ") for t in faded if t.mode == "markers")


def test_a_rung_not_run_is_a_mark_up_to_each_roof():
    other = roofline.roof_of(a_full_row(ceilings=CEILINGS | {"copy_bytes_per_s": 2e11}), "recorded")
    figure = validated_chart([ROOF, other], [], [Mark(1, "direct", 5.0), Mark(2, "a", 5.0), Mark(3, "b", 50.0)], T)
    (top, *_) = points(figure, "line-ew-open")
    assert list(top.x) == [5, 5] and list(top.y) == [5e12, 1e12]
    dotted = [line for line in lines(figure) if line.line.dash == "dot"]
    assert [list(line.x) for line in dotted] == [[5, 5], [5, 5], [50, 50]]
    assert max(dotted[0].y) == 5e12
    assert roofline.mark_labels([Mark(1, "direct", 5.0), Mark(2, "a", 5.0), Mark(3, "b", 50.0)]) == [
        (0.7, "1, 2"),
        (1.7, "3"),
    ]


def test_overlapping_labels_are_merged():
    close = [a_dot(number=2, ms=1.0), a_dot(number=3, ms=1.01), a_dot(number=1, intensity=50)]
    merged = roofline.labels(close, 6)
    assert [text for _, _, text in merged] == ["2, 3", "1"]
    x, y, _ = merged[0]
    assert x == pytest.approx(math.log10(5)) and y == pytest.approx(12, abs=0.01)
    assert len(roofline.labels([a_dot(number=2), a_dot(number=3, ms=100.0)], 6)) == 2
    # A dot between two others in the order, but far below both, does not prevent a shared label.
    apart = [a_dot(number=1, intensity=4.0), a_dot(number=2, intensity=4.4, ms=100.0), a_dot(number=3, intensity=4.4)]
    assert sorted(text for *_, text in roofline.labels(apart, 6)) == ["1, 3", "2"]


finite = st.floats(1e-3, 1e5)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(8, 12)), min_size=1, max_size=8))
def test_each_dot_is_named_once_and_a_lone_label_is_beside_it(points):
    dots = [a_dot(10**x, 1e12 / 10**rate, number=n) for n, (x, rate) in enumerate(points, 1)]
    placed = roofline.placed_labels(dots, (-2, 3), (7, 13))
    assert sorted(label.text for label in placed) == sorted(text for *_, text in roofline.labels(dots, 6))
    if len(dots) == 1:
        assert placed[0].side == "right" and placed[0].x == pytest.approx(points[0][0], abs=1e-6)


def test_a_label_is_where_no_dot_is():
    left, right = a_dot(4.0, number=1), a_dot(5.6, number=2)
    sides = {label.text: label.side for label in roofline.placed_labels([left, right], (-2, 3), (7, 13))}
    assert sides == {"1": "left", "2": "right"}
    ringed = a_dot(4.0, number=1, moved=10**9 // 6)  # its ring is where its number would be
    (label,) = roofline.placed_labels([ringed], (-2, 3), (7, 13))
    assert label.side == "left"


@settings(max_examples=20)
@given(
    dots=st.lists(st.tuples(finite, st.floats(1e-4, 1e5), st.booleans()), max_size=6),
    marks=st.lists(finite, max_size=4),
    roofs=st.integers(0, 2),
)
def test_everything_drawn_is_within_the_axes(dots, marks, roofs):
    drawn_dots = [a_dot(i, ms, n, stale=stale) for n, (i, ms, stale) in enumerate(dots, 1)]
    figure = validated_chart([ROOF] * roofs, drawn_dots, [Mark(n, "m", i) for n, i in enumerate(marks, 1)], T)
    (x0, x1), (y0, y1) = figure.layout.xaxis.range, figure.layout.yaxis.range
    for trace in figure.data:
        for x, y in zip(trace.x, trace.y, strict=True):
            assert x0 - 1e-9 <= math.log10(x) <= x1 + 1e-9
            assert y0 - 1e-9 <= math.log10(y) <= y1 + 1e-9
    for note in figure.layout.annotations:
        assert x0 <= note.x <= x1 and y0 <= note.y <= y1


# -- many rungs, and rungs on other units ---------------------------------------------------------
def test_many_dots_of_one_kind_are_joined_in_ladder_order():
    dots = [a_dot(number=n, ms=ms) for n, ms in ((3, 1.0), (1, 8.0), (5, 4.0), (2, 2.0), (4, 0.5))]

    def paths(dots):
        width = 1  # a roof is drawn thicker
        return [
            list(t.y) for t in validated_chart([ROOF], dots, [], T).data if t.mode == "lines" and t.line.width == width
        ]

    assert paths(dots) == [[d.rate for d in sorted(dots, key=lambda d: d.number)]]
    assert paths(dots[:4]) == paths([*dots[:3], *(a_dot(kind="recorded", number=n) for n in (1, 2))]) == []


@settings(max_examples=25)
@given(st.lists(st.floats(8, 12), max_size=6))
def test_slope_label_is_beside_no_number_if_there_is_a_free_line(rates):
    dots = [a_dot(5.0, ms=1e12 / 10**rate, number=n) for n, rate in enumerate(rates, 1)]
    y0, y1 = 7.5, 13.5
    line = roofline.LINE_PX * (y1 - y0) / (roofline.HEIGHT - 60)
    height = roofline.copy_label_height(ROOF, dots, y0, y1)
    taken = [y for _, y, _ in roofline.labels(dots, y1 - y0)]
    assert all(abs(height - line / 2 - y) >= line for y in taken) or height == y0 + 0.35
    assert height == y0 + 0.35 or any(abs(y0 + 0.35 - line / 2 - y) < line for y in taken)


def test_consecutive_numbers_are_written_as_a_range():
    assert [text for *_, text in roofline.labels([a_dot(number=n) for n in (4, 1, 2, 6, 3)], 3)] == ["1–4, 6"]
    assert roofline.mark_labels([Mark(n, "m", 5.0) for n in (1, 2)])[0][1] == "1, 2"


def test_tensor_core_rungs_are_not_compared_with_the_fp32_roof():
    product = {"M": 64, "N": 64, "K": 64}
    fast = a_dot(20, 0.05, 11, rung="gemm/cublas-tf32", shape=product, engine="cuda", mode="cold")
    assert fast.rate == pytest.approx(2 * ROOF.flops_per_s)
    under, over = roofline.verdict([a_dot(20, 0.2), fast], [ROOF])
    assert "that the FP32 peak allows" in under and "Rung 1" in under
    assert over == (
        "Rung 11 does 20 TFLOP/s on a processor, 2× the FP32 peak. The peak of tensor cores was not measured."
    )
    (sentence,) = roofline.verdict([a_dot(20, 0.05, 11, rung="gemm/cublas-tf32")], [ROOF])
    assert "above the limit" in sentence  # the cpu engine runs it in FP32


def test_only_the_slope_bounds_a_mark_of_other_units():
    sentence = roofline.bounds([Mark(1, "fma", 100.0), Mark(2, "mma", 100.0, "tensor cores")], [ROOF])
    assert "fma 10 TFLOP/s" in sentence and sentence.endswith("was not measured. It limits mma.")


# -- which FLOPs -----------------------------------------------------------------------------------
def test_axis_title_says_effective_or_executed_flops():
    defined = a_dot(flops=roofline.defined_flops(row_at(5.0, 1.0)))
    fewer = a_dot(flops=defined.row["flops"] // 2)

    def axis(*dots):
        return validated_chart([ROOF], dots, [], T).layout.yaxis.title.text

    assert axis(defined) == "effective FLOP/s" and axis(defined, fewer) == axis(fewer) == "FLOP/s executed"
