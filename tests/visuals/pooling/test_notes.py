"""The sentences on the figures of pooling contain their numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels.ladders import LADDERS
from kernels.pooling.presets import AVG_PRESETS, MAX_PRESETS
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from tests.helpers.offenders import every
from tests.helpers.pooling import avg_shapes, max_shapes
from visuals.pooling import notes
from visuals.pooling.links import windows
from visuals.pooling.notes import POOLING

LARGE = MAX_PRESETS["maxpool-large"].shape


def row(rung: str, ms: float, shape=LARGE, **more):
    base = {"rung": rung, "engine": "cuda", "shape": shape.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms}
    return base | more


@given(s=st.one_of(max_shapes(), avg_shapes()))
def test_loads_of_windows_are_the_links(s):
    assert notes.links(s) == len(windows(s).cells)


def test_every_ladder_has_notes():
    assert set(POOLING) == {name for name in LADDERS if "pool" in name}
    for name, ladder in LADDERS.items():
        if name in POOLING:
            assert f"{name}/{notes.FIRST[name]}" == ladder.rungs[0].name


def test_cost_of_max_pooling():
    text = POOLING["max-pool"].cost(LARGE)
    assert "At least 308 MB are moved" in text and "y and the indices are written once" in text
    assert "loads each pixel 2.2 times on average" in text
    back = POOLING["max-pool-backward"].cost(LARGE)
    assert "12,845,056 atomic additions" in back and "up to 719 MB" in back and "dx is written once" in back


def test_cost_of_averages():
    s = AVG_PRESETS["avgpool-large"].shape
    assert "At least 257 MB" in POOLING["avg-pool"].cost(s)
    assert f"{notes.links(s):,} atomic additions" in POOLING["avg-pool-backward"].cost(s)
    whole = GlobalShape(64, 256, 56, 56)
    assert "x has 206 MB, and one float is written for each of 16,384 planes" in POOLING["global-avg-pool"].cost(whole)
    assert "dx has 206 MB and is only written" in POOLING["global-avg-pool-backward"].cost(whole)
    apart = AvgPoolShape(1, 1, 8, 8, 2, 2)
    assert "The windows do not overlap" in POOLING["avg-pool"].cost(apart)


def test_gain_compares_with_the_plainest_the_library_and_a_copy():
    ceilings = {"copy_bytes_per_s": 4.3e12, "launch_us": 2}
    rows = {
        r["rung"]: r
        for r in (
            row("max-pool/window", 0.15),
            row("max-pool/patch", 0.08, ceilings=ceilings),
            row("max-pool/library", 0.2),
        )
    }
    text = POOLING["max-pool"].gain(rows)
    assert "“one thread per patch” is 1.88× as fast as “one thread per window”." in text
    assert "“one thread per patch” is 2.5× as fast as PyTorch max pooling." in text
    assert "A copy of 308 MB takes 71.7 us. This is 90 % of the time of “one thread per patch”." in text.replace(
        "µs", "us"
    )
    rows["max-pool/library"]["median_ms"] = 0.04
    assert "reaches 50 % of the speed of PyTorch max pooling" in POOLING["max-pool"].gain(rows)
    rows["max-pool/patch"] |= {"median_ms": 0.3, "p20_ms": 0.3, "p80_ms": 0.3}
    assert "“one thread per window” is the fastest of our kernels" in POOLING["max-pool"].gain(rows)
    assert POOLING["max-pool"].gain({}) == ""


def test_overlapping_spreads_are_no_gain():
    slow = row("max-pool/window", 0.1) | {"p20_ms": 0.05, "p80_ms": 0.2}
    text = POOLING["max-pool"].gain({"max-pool/window": slow, "max-pool/patch": row("max-pool/patch", 0.09)})
    assert "take the same time: their spreads overlap" in text


def test_small_shapes_say_nothing_of_a_copy():
    """Launch overhead is longer than the copy."""
    ceilings = {"copy_bytes_per_s": 4.3e12, "launch_us": 2}
    toy = MaxPoolShape(1, 1, 5, 5, 3, 3, stride=2, pad=1)
    rows = {"max-pool/window": row("max-pool/window", 0.003, toy, ceilings=ceilings)}
    assert "copy" not in POOLING["max-pool"].gain(rows)


@every("ladder", POOLING)
def test_examples_are_of_recordings(ladder):
    for preset, text in POOLING[ladder].examples():
        assert preset.key in LADDERS[ladder].presets and "×" in text
