"""Figures of the FFT lesson: FLOPs over the filter's size, tilings, sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import records
from kernels.conv import fft
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from pages.conv import address
from pages.conv.fft import address as fft_address
from tests.helpers.rows_of import a_row
from tests.helpers.shapes import conv_shapes
from visuals import units
from visuals.conv.fft import charts, notes
from visuals.conv.fft import waves as fft_waves
from visuals.conv.fft.charts import Flops, crossing, curve, flops, tilings, with_taps
from visuals.palette import LIGHT

RUNG = fft.RUNGS[0]
WHOLE = RUNG.default_tiles
RES2 = CONV_PRESETS["resnet50-res2-3x3-n32"].shape
PARTS = {
    "fft_pad_input": 1.0,
    "fft_pad_filter": 2.0,
    "cufft_input": 3.0,
    "cufft_filter": 4.0,
    "fft_multiply": 5.0,
    "cufft_output": 1.5,
    "fft_pick": 0.5,
}


def row(rung: str, ms: float, **more):
    samples = [ms * f for f in (0.99, 1.0, 1.0, 1.0, 1.01)]
    return a_row(samples=samples, rung=rung, engine="cuda", device="a GPU", tiles={}, **more)


# -- over the filter's size ----------------------------------------------------------------------------
@settings(max_examples=25)
@given(conv_shapes(), st.integers(1, 31))
def test_padding_grows_with_the_filter_to_keep_the_output_size(s, taps):
    wider = with_taps(s, taps)
    assert wider.R == wider.S == taps
    padding = map(sum, s.pad_widths)
    for axis, before, zeros, stride in zip("PQ", (s.R, s.S), padding, s.stride, strict=True):
        grown = getattr(wider, axis) - getattr(s, axis)
        assert grown >= 0
        if taps >= before or zeros >= (before - taps) * max(s.dilation):
            assert grown * stride <= 1 + stride - 1  # half a pixel of padding if the parities differ
    square = with_taps(s, s.R)
    assert square == replace(s, S=s.R, pad_w=square.pad_w, extra_w=square.extra_w)


def test_a_causal_layer_stays_causal_as_the_filter_grows():
    wider = with_taps(ConvShape(1, 1, 1, 64, 1, 1, 5, pad=(0, 8), extra=(0, -8), dilation=(1, 2)), 7)
    assert (wider.pad_w, wider.after[1]) == (12, 0)


def test_same_padding_stays_same_padding():
    for taps in (1, 3, 5, 7, 9, 11):
        assert with_taps(RES2, taps) == ConvShape(32, 64, 56, 56, 64, taps, taps, pad=taps // 2)


@settings(max_examples=15)
@given(conv_shapes(), st.sampled_from(RUNG.tiles["FFT_TILE"]))
def test_curve_equals_the_flops_of_the_rung(s, tile):
    tiles = {"FFT_TILE": tile, "SPECTRA": 32}
    for counts in curve(s, tiles):
        wider = with_taps(s, counts.taps)
        assert counts.direct == 2 * s.N * s.K * s.C * wider.P * wider.Q * counts.taps**2 == wider.flops
        if any(RUNG.rules(wider, tiles)):
            assert counts.fft is None
        else:
            assert counts.fft == fft.executed_flops(wider, tiles)
            assert counts.transforms >= 0 and counts.products > 0


def test_products_are_eight_flops_a_frequency_pair_and_channel():
    s = ConvShape(2, 3, 62, 62, 5, 3, 3, pad=1)
    assert flops(s, WHOLE).products == 8 * 2 * 5 * 3 * 64 * 33


def test_curves_cross_where_the_fft_stays_below():
    def flops_at(*pairs):
        return [Flops(r, direct, 0, fft) if fft else Flops(r, direct, None, None) for r, direct, fft in pairs]

    assert crossing(flops_at((1, 5, 9), (2, 20, 9), (3, 45, 9))) == 2
    assert crossing(flops_at((1, 10, 9), (2, 8, 9), (3, 45, 9))) == 3  # above again at R = 2
    assert crossing(flops_at((1, 5, 9), (2, 6, 9))) is None
    assert crossing(flops_at((1, 5, 9), (2, 20, 9), (3, 45, None))) == 2
    assert crossing([]) is None


def test_caption_names_the_crossing_and_the_current_filter():
    counts = curve(RES2, WHOLE)
    current = next(f for f in counts if f.taps == 3)
    text = charts.caption(RES2, counts)
    assert f"From R = {crossing(counts)} on" in charts.flops_sentence(RES2, counts)
    assert f"At R = 3 the FFT executes {current.fft / current.direct:.3f}"[:32] in text
    text_16 = charts.caption(RES2, curve(RES2, {"FFT_TILE": 16, "SPECTRA": 32}))
    assert "The curve of the FFT ends at R = 15" in text_16
    grouped = RES2.with_(groups=2)
    assert "groups must be 1" in charts.flops_sentence(grouped, curve(grouped, WHOLE))
    assert charts.caption(grouped, curve(grouped, WHOLE)) == ""
    toy = CONV_PRESETS["toy"].shape
    assert charts.flops_sentence(toy, curve(toy, WHOLE)) == (
        "On images of 8 × 8, the FFT executes more FLOPs than direct convolution at every R."
    )


def test_times_come_from_rows_with_exactly_these_shapes(monkeypatch):
    def recorded(name, shape, tiles, mode):
        known = shape in (with_taps(RES2, 3), with_taps(RES2, 7)) or (name == "conv/direct" and shape.R == 5)
        return row(name, float(shape.R), shape=shape.params()) if known and name != "conv/cudnn-fft" else None

    monkeypatch.setattr(records, "recorded", recorded)
    lines = charts.recorded(address.ladder("fft"), RES2, lambda rung: rung.default_tiles, "cold")
    points = {title: [taps for taps, _ in line] for title, line in lines}
    assert points["FFT, whole"] == [3, 7] and points["direct"] == [3, 5, 7] and "cuDNN FFT" not in points
    assert {"FFT, 32", "FFT, 16"} <= points.keys()
    figure = charts.chart(RES2, curve(RES2, WHOLE), lines, LIGHT)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["FFT, whole"].y) == [3.0, 7.0] and list(traces["direct"].x) == [3, 5, 7]
    assert [s.x0 for s in figure.layout.shapes] == [3, 3]  # the reader's R, in both panels


def test_fastest_line_by_range_of_r():
    slow = [(r, row("conv/direct", float(r))) for r in (1, 3, 5, 7)]
    flat = [(r, row("conv/fft", 4.0)) for r in (3, 5, 7)]
    text = charts.fastest([("direct", slow), ("FFT, whole", flat)])
    assert text == "Fastest in the recordings: direct at R = 1 to 3; FFT, whole at R = 5 to 7."
    close = [(r, row("conv/winograd", 4.001)) for r in (5, 7)]
    text = charts.fastest([("direct", slow), ("FFT, whole", flat), ("another", close)])
    assert text.endswith("FFT, whole / another at R = 5 to 7.")


def test_without_recordings_there_are_no_times(monkeypatch):
    monkeypatch.setattr(records, "recorded", lambda *_: None)
    assert charts.recorded(address.ladder("fft"), RES2, lambda rung: rung.default_tiles, "cold") == []
    figure = charts.chart(RES2, curve(RES2, WHOLE), [], LIGHT)
    names = ["FLOPs of direct", "FLOPs of the FFT", "products of the FFT", "transforms of the FFT"]
    assert [trace.name for trace in figure.data] == names
    assert charts.fastest([]) == ""
    assert figure.layout.height == charts.HEIGHT
    rectangular = RES2.with_(S=5, pad_w=2)
    assert not charts.chart(rectangular, curve(rectangular, WHOLE), [], LIGHT).layout.shapes


# -- two waves -----------------------------------------------------------------------------------------
@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 31), st.floats(0.25, 4)), min_size=1, max_size=4, unique_by=lambda w: w[0]))
def test_each_wave_of_a_sum_is_one_spike(waves):
    heights = fft_waves.heights(sum(fft_waves.wave(*item) for item in waves) + 0.5)
    expected = np.zeros(fft_waves.SAMPLES // 2)
    expected[0] = 0.5
    for periods, height in waves:
        expected[periods] = height
    np.testing.assert_allclose(heights, expected, atol=1e-12)


def test_bars_equal_the_spectrum_of_the_sum():
    *_, total, bars = fft_waves.chart(LIGHT).data
    np.testing.assert_allclose(bars.y, fft_waves.heights(np.array(total.y)))
    assert [int(n) for n in np.flatnonzero(np.array(bars.y) > 1e-9)] == [periods for periods, _ in fft_waves.WAVES]


def test_the_sentence_says_from_which_filter_on_the_fft_wins():
    direct = [(R, row("conv/direct", float(R))) for R in (1, 3, 5, 7)]

    def sentence(*fft_ms):
        fft_points = [(R, row("conv/fft", ms)) for R, ms in zip((1, 3, 5, 7), fft_ms, strict=True)]
        library = [(R, row("conv/cudnn-fft", 0.01)) for R in (1, 3, 5, 7)]  # an FFT too: it does not count
        return charts.fft_sentence([("direct", direct), ("FFT, whole", fft_points), ("cuDNN FFT", library)])

    assert sentence(4, 4, 4, 3.5) == (
        "In the recordings of this lesson’s kernels, an FFT wins from R = 5 on. At R = 7 FFT is 2× as fast as direct."
    )
    assert sentence(4, 4, 4, 7) == "In the recordings FFT is 1.25× as fast as direct at R = 5."
    assert sentence(4, 6, 7.5, 14) == (
        "In the recordings no FFT wins: at best, at R = 5, FFT takes 1.5× the time of direct."
    )
    assert charts.fft_sentence([("direct", direct)]) == "" == charts.fft_sentence([])


def test_the_fft_wins_in_a_recording_that_is_a_preset():
    shape = fft_address.REAL.shape
    lines = charts.recorded(address.ladder("fft"), shape, lambda rung: rung.default_tiles, "cold")
    assert "an FFT wins from R = 3 on. At R = 11 FFT in tiles is 9.04× as fast" in charts.fft_sentence(lines)


# -- tilings -------------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(conv_shapes(max_extent=3))
def test_tiling_has_buffer_bytes_or_the_forbidding_rule(s):
    table = tilings(s, 32, {})
    assert list(table) == ["whole", "32", "16"]
    for tile, lines in zip(RUNG.tiles["FFT_TILE"], table.values(), strict=True):
        tiles = {"FFT_TILE": tile, "SPECTRA": 32}
        if rules := list(RUNG.rules(s, tiles)):
            assert lines == {charts.RULE: rules[0]}
            continue
        w, padded, spectra = notes.filter_bytes(s, tiles)
        buffers = {b.name: b.nbytes for b in RUNG.build(s, tiles).buffers}
        assert (w, padded, spectra) == (buffers["w"], buffers["w_padded"], buffers["w_spectra"])
        assert lines["workspace, measured"] == "–"


def test_measured_row_is_next_to_the_prediction():
    table = tilings(RES2, 32, {16: row("conv/fft", 0.37, workspace_bytes=152_000_000)})
    assert table["16"]["workspace, measured"] == "152 MB" and table["16"]["time, measured"] == "370 µs"
    assert table["whole"]["workspace, measured"] == "–"
    assert table["16"]["pixels of a transform that wrap around"] == "23 %"  # 1 - (14/16)²
    parts = tilings(RES2, 32, {16: row("conv/fft", 0.37, workspace_bytes=1, parts_ms=PARTS)})["16"]
    assert parts["share of the time: padding and transforming the filters"] == "35 %"


def test_tilings_are_compared_by_time_or_by_flops():
    rows = {0: row("conv/fft", 1.0), 16: row("conv/fft", 0.5)}
    assert charts.tiling_sentence(RES2, 32, rows).startswith("The FFT in tiles of 16 × 16 is fastest: 500 µs.")
    assert charts.tiling_bars(RES2, 32, rows) == [("whole", 1.0, "1 ms"), ("16 × 16", 0.5, "500 µs")]
    flops_by_tile = charts.tiling_flops(RES2, 32)
    text = charts.tiling_sentence(RES2, 32, {16: rows[16]})
    assert text.endswith(f"executes the fewest FLOPs: {units.count(min(flops_by_tile.values()))}.")
    assert [n for _, n, _ in charts.tiling_bars(RES2, 32, {})] == list(flops_by_tile.values())
    grouped = RES2.with_(groups=2)
    assert charts.tiling_sentence(grouped, 32, {}) == "The FFT cannot run this shape."
    assert charts.tiling_bars(grouped, 32, {}) == []


# -- sentences -----------------------------------------------------------------------------------------
def test_strides_discard_all_but_one_of_u_times_v():
    s = ConvShape(1, 1, 66, 66, 1, 3, 3)
    assert notes.discarded_share(s) == 0
    assert notes.discarded_share(s.with_(u=2, v=2)) == pytest.approx(1 - 1 / 4)
    assert notes.discarded_share(s.with_(u=4, v=2)) == pytest.approx(1 - 1 / 8)
    assert "the stride discards 75 % of the pixels" in notes.fft_cost(s.with_(u=2, v=2))
    assert "discards" not in notes.fft_cost(s)


def test_the_cost_names_bytes_or_the_rule():
    text = notes.fft_cost(RES2)
    assert (
        "each filter of 3 × 3 taps becomes an array of 60 × 60 numbers" in text and "147 KB" in text and "59 MB" in text
    )
    assert "groups must be 1" in notes.fft_cost(RES2.with_(groups=4))
    assert "workspace must not exceed" in notes.fft_cost(ConvShape(1, 512, 224, 224, 512, 3, 3))


def test_gain_is_empty_without_a_row_of_the_fft():
    assert notes.fft_gain({}) == ""
    assert notes.fft_gain({"conv/direct": row("conv/direct", 1.0)}) == ""


def test_the_gain_is_against_the_fastest_without_an_fft():
    rows = {
        "conv/direct": row("conv/direct", 5.0),
        "conv/implicit-gemm": row("conv/implicit-gemm", 1.0),
        "conv/fft": row("conv/fft", 3.0, parts_ms=PARTS),
        "conv/cudnn-fft": row("conv/cudnn-fft", 0.5),
        "conv/cudnn-fft-tiling": row("conv/cudnn-fft-tiling", 0.25),
    }
    text = notes.fft_gain(rows)
    assert "FFT takes 3× the time of implicit GEMM" in text
    assert "The largest part of FFT: padding and transforming the filters, 35 % of the time." in text
    assert "cuDNN FFT_TILING takes 8.3 % of the time of FFT" in text
    rows["conv/fft"] = row("conv/fft", 0.5)
    assert "2× as fast as implicit GEMM" in notes.fft_gain(rows)
    rows["conv/fft"] = row("conv/fft", 1.001)
    assert "No measurable difference" in notes.fft_gain(rows)


def test_the_gain_is_that_of_our_fastest_fft():
    rows = {
        "conv/implicit-gemm": row("conv/implicit-gemm", 1.0),
        "conv/fft": row("conv/fft", 3.0),
        "conv/fft-tiled": row("conv/fft-tiled", 0.5),
        "conv/cudnn-fft": row("conv/cudnn-fft", 0.4),
    }
    text = notes.fft_gain(rows)
    assert "FFT in tiles is 2× as fast as implicit GEMM" in text
    assert "cuDNN FFT takes 80 % of the time of FFT in tiles" in text


def test_parts_cover_all_steps_of_the_rung():
    step_names = [step for steps in notes.PARTS.values() for step in steps]
    program = RUNG.build(CONV_PRESETS["toy"].shape, WHOLE)
    assert sorted(step_names) == sorted(step.name_on_cpu for step in program.steps)
    shares = notes.part_shares(row("conv/fft", 1.0, parts_ms=PARTS))
    assert sum(shares.values()) == pytest.approx(1)
    assert notes.part_shares(row("conv/fft", 1.0)) == {}
    assert notes.largest_part(row("conv/fft", 1.0, parts_ms={"fft_multiply": 1.0})) == ""


def test_examples_are_presets_with_recordings_of_the_fft():
    examples = notes.fft_examples()
    assert examples
    for preset, caption in examples:
        rows = records.recorded("conv/fft", preset.shape, WHOLE)
        assert rows and caption.startswith(preset.label)
