"""The race: bar lengths proportional to speed, ranks, verdicts, and the FLOPs that each rung executes."""

from __future__ import annotations

import html.parser
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import LADDERS
from tests.helpers.race_rows import LADDER, timed
from visuals.conv.choose import families, race

SHAPE = CONV_PRESETS["resnet50-res3-3x3-n32"].shape
NAMES = [rung.name for rung in LADDER.rungs]
times = st.dictionaries(st.sampled_from(NAMES), st.floats(1e-3, 1e4), min_size=1)


def lanes_of(ms: dict[str, float], spread: float = 0.001) -> list[race.Lane]:
    return race.lanes(LADDER.rungs, SHAPE, {name: timed(name, SHAPE, t, spread) for name, t in ms.items()})


class Bars(html.parser.HTMLParser):
    """Parser of the page's HTML: the per cent of a lane that each bar reaches, by rung."""

    def __init__(self, text: str):
        super().__init__()
        self.bar_ends: dict[str, float] = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "data-rung" in attributes:
            self.bar_ends[attributes["data-rung"]] = float(re.search(r"--kt-to:([\d.]+)%", attributes["style"])[1])


def proportional(bar_ends: dict[str, float], ms: dict[str, float]) -> bool:
    """Returns whether each bar's length is its rung's speed divided by the winner's."""
    best = min(ms.values())
    return bar_ends.keys() == ms.keys() and all(
        math.isclose(bar_ends[name], race.LINE * best / t, abs_tol=0.006) for name, t in ms.items()
    )


@settings(max_examples=20)
@given(times)
def test_bar_lengths_are_proportional_to_speed(ms):
    assert proportional(Bars(race.html(lanes_of(ms))).bar_ends, ms)


def test_bar_lengths_proportional_to_time_are_detected():
    ms = {"conv/direct": 4.0, "conv/fft": 1.0}
    bar_ends = Bars(race.html(lanes_of(ms))).bar_ends
    assert proportional(bar_ends, ms) and bar_ends["conv/direct"] == pytest.approx(race.LINE / 4, abs=0.01)
    assert not proportional({"conv/direct": bar_ends["conv/fft"], "conv/fft": bar_ends["conv/direct"]}, ms)
    assert not proportional(bar_ends | {"conv/direct": bar_ends["conv/direct"] * 1.01}, ms)


@settings(max_examples=20)
@given(times)
def test_ranks_and_ratios_equal_those_of_the_sorted_times(ms):
    lanes = lanes_of(ms)
    assert [lane.rung for lane in lanes] == [name for name in NAMES if name in ms]  # the ladder's order
    for lane in lanes:
        assert lane.rank == 1 + sum(other < ms[lane.rung] for other in ms.values())
        assert lane.ratio == ms[lane.rung] / min(ms.values())
    assert race.slowdown(lanes) * race.winner(lanes).row["median_ms"] == pytest.approx(race.SECONDS * 1e3)


@settings(max_examples=20)
@given(st.floats(1e-5, 1e6))
def test_clock_is_a_whole_number_close_to_the_time(ms):
    count, unit = race.clock(ms)
    assert count == pytest.approx(ms * {"ms": 1, "µs": 1e3, "ns": 1e6}[unit], rel=0.051)
    assert count >= 10 and (unit == "ms" or count < 10_001)


# -- sentences -------------------------------------------------------------------------------------
THREE = {"conv/direct": 3.2, "conv/winograd-4x4": 1.6, "conv/fft": 2.56}


@pytest.mark.parametrize(
    ("guess", "text"),
    [
        ("conv/winograd-4x4", "Your guess, X, is the fastest of 3."),
        ("conv/fft", "Your guess, X, is number 2 of 3: 1.6× the time of the fastest, Winograd 4×4, fused."),
        ("conv/direct", "Your guess, X, is number 3 of 3: 2× the time of the fastest, Winograd 4×4, fused."),
        ("conv/cudnn-fft", "Your guess, X, did not run here: no GPU. The fastest is Winograd 4×4, fused."),
    ],
)
def test_verdict_on_a_guess(guess, text):
    assert race.verdict(lanes_of(THREE), guess, "X", "no GPU") == text


def test_a_spread_reaches_from_the_slow_to_the_fast_samples():
    ms, spread = {"conv/direct": 4.0, "conv/fft": 1.0}, 0.1
    found = re.findall(r'<u style="left:([\d.]+)%;width:([\d.]+)%"', race.html(lanes_of(ms, spread)))
    for lane, drawn in zip(lanes_of(ms, spread), found, strict=True):
        slow, fast = (race.LINE / lane.row[name] for name in ("p80_ms", "p20_ms"))
        assert tuple(map(float, drawn)) == pytest.approx((slow, min(fast, 100) - slow), abs=0.01) and slow < fast


def test_overlapping_spreads_are_mentioned():
    lanes = lanes_of({"conv/direct": 1.0, "conv/fft": 1.01}, spread=0.02)
    assert race.verdict(lanes, "conv/fft", "FFT").endswith("Their spreads overlap: no measurable difference.")
    assert "No measurable difference from FFT" in race.finish(lanes)
    assert "difference" not in race.verdict(lanes_of(THREE), "conv/fft", "FFT") + race.finish(lanes_of(THREE))


@settings(max_examples=20)
@given(st.text(max_size=40))
def test_foreign_text_is_escaped(text):
    out = [race.NotStarted((text,), text)]
    rendered = race.html(lanes_of(THREE), out, "conv/fft", text)
    assert "<script" not in rendered.lower() and rendered.count("<tr") == 1 + len(THREE) + 1


def test_css_contains_no_tag():
    """The HTML sanitizer of a page discards a style that contains a tag."""
    assert not re.search(r"<[a-z/!]", race.css())


# -- what an algorithm executes ----------------------------------------------------------------------
def executed(name: str, s: ConvShape) -> int | None:
    rung = LADDERS["conv"].rung(f"conv/{name}")
    return race.executed_flops(rung, s, rung.default_tiles)


def test_executed_flops_by_algorithm():
    s = ConvShape(32, 512, 16, 16, 512, 3, 3, pad=1)
    for name in ("direct", "direct-tiled", "im2col-gemm", "im2col-cublas", "implicit-gemm"):
        assert executed(name, s) == s.flops
    # With many maps the products are nearly all: 16 for 4 outputs of 9 taps, and 36 for 16.
    assert executed("winograd-2x2", s) / s.flops == pytest.approx(16 / 36, rel=0.06)
    assert executed("winograd-nonfused", s) / s.flops == pytest.approx(36 / 144, rel=0.06)
    # FFT: 18 x 18 rows and columns, 2.5 n log2 n for each transform; 18 x 10 frequencies, 8 for a complex multiply-add.
    products = 8 * s.N * s.C * s.K * 18 * 10
    per_transform = 2.5 * 18 * 18 * math.log2(18 * 18)
    assert executed("fft", s) == pytest.approx(products + per_transform * (s.N * s.C + s.K * s.C + s.N * s.K), rel=1e-6)
    assert executed("cudnn-winograd", s) is None


def test_effective_and_actual_rates():
    lanes = lanes_of({"conv/winograd-4x4": 1.0, "conv/cudnn-winograd": 2.0})
    ours, library = lanes
    assert ours.effective == SHAPE.flops and ours.executed < SHAPE.flops and library.executed is None
    cells = re.findall(r'data-column="(effective|actual)" data-name="[^"]*"><span>([^<]*)<', race.html(lanes))
    assert [name for name, _ in cells] == ["effective", "actual"] * 2
    assert cells[0][1] == "7.4 TFLOP/s" and cells[3][1] == "–"
    assert float(cells[1][1].split()[0]) < 3


def test_every_rung_has_a_family_and_a_short_name():
    assert {families.family(name).key for name in NAMES} == set(families.FAMILIES)
    assert len({each.token for each in families.FAMILIES.values()}) == len(families.FAMILIES)
    rows = [timed(name, SHAPE, 1.0) for name in NAMES]
    assert len({families.short(row) for row in rows}) == len(NAMES)
    blas = timed("conv/im2col-cublas", SHAPE, 1.0, engine="cpu")
    assert families.short(blas) == "im2col BLAS"  # the cpu engine has no cuBLAS


def test_caption_names_rungs_that_waited_for_the_processor():
    rows = {name: timed(name, SHAPE, ms) for name, ms in (("conv/fft", 1.0), ("conv/cudnn-winograd", 2.0))}
    assert "Waits" not in race.finish(race.lanes(LADDER.rungs, SHAPE, rows))
    rows["conv/cudnn-winograd"]["queued"] = "0 of 5"
    text = race.finish(race.lanes(LADDER.rungs, SHAPE, rows))
    assert text.count("waits for the CPU") == 1 and "0 of 5" in text
