"""Comparison of runs: known samples, and how often the interval contains the true ratio."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels import records
from kernels.records import statistics
from tests.helpers.offenders import every
from tests.helpers.rows_of import SHAPE, a_row


def around(ms, n=100, spread=0.02, seed=0):
    return a_row(samples=np.random.default_rng(seed).normal(ms, spread * ms, n))


def test_clear_difference_has_a_ratio_and_an_interval():
    difference = statistics.compare(around(1.31, seed=1), around(1.0, seed=2))
    assert difference.certain and difference.low < 1.31 < difference.high and difference.high - difference.low < 0.05
    assert (
        difference.sentence
        == f"B is {difference.ratio:.2f} times as fast as A ({difference.low:.2f} to {difference.high:.2f})."
    )


def test_swapped_runs_give_the_inverse_ratio():
    a, b = around(1.31, seed=1), around(1.0, seed=2)
    forward, backward = statistics.compare(a, b), statistics.compare(b, a)
    assert backward.sentence.startswith("A is 1.3") and backward.ratio == pytest.approx(1 / forward.ratio)
    assert backward.low == pytest.approx(1 / forward.high, rel=0.01)
    ratio, low, high = map(float, re.findall(r"\d+\.\d+", backward.sentence))
    assert low < ratio < high


def test_no_difference_is_reported_as_none():
    difference = statistics.compare(around(1.0, seed=1), around(1.0, seed=3))
    assert not difference.certain and difference.sentence.startswith("No difference beyond noise: A takes 0.99")


def test_same_run_twice_has_ratio_one():
    difference = statistics.compare(a_row(), a_row())
    assert difference.ratio == 1 and not difference.certain


def test_difference_of_one_clock_tick_is_shown_with_enough_digits():
    difference = statistics.compare(a_row(samples=[4.704] * 50), a_row(samples=[4.672] * 50))
    assert difference.certain and difference.sentence == "B is 1.0068 times as fast as A (1.0068 to 1.0068)."


def test_same_samples_give_the_same_result():
    a, b = around(1.0, seed=5), around(1.02, seed=6)
    assert statistics.compare(a, b) == statistics.compare(a, b)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_too_few_samples_give_no_interval(n):
    difference = statistics.compare(a_row(samples=[2.0] * n), around(1.0))
    assert difference.low is None and not difference.certain
    assert f"{n} sample{'s' * (n != 1)} cannot tell a difference from noise" in difference.sentence


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "hot"}, "Times not compared: different cache modes (cold and hot)."),
        ({"shape": SHAPE | {"H": 56}}, "Times not compared: different shapes (H 8 and 56)."),
        (
            {"shape": SHAPE | {"H": 56}, "mode": "hot"},
            "Times not compared: different shapes (H 8 and 56) and different cache modes (cold and hot).",
        ),
    ],
)
def test_incomparable_runs_are_not_compared(changes, message):
    difference = statistics.compare(a_row(), a_row(1, **changes))
    assert difference.sentence == message and difference.ratio is None and not difference.certain


def test_other_differences_are_named():
    other = a_row(1, device="a GPU", engine="cuda", rung="conv/im2col-gemm", kernels="1" * 16)
    assert statistics.compare(a_row(), other).other_differences == ("device", "engine", "rung")
    assert statistics.compare(a_row(), a_row(1, kernels="1" * 16)).other_differences == ("the kernel's code",)
    assert statistics.compare(a_row(), a_row(1)).other_differences == ()


@pytest.mark.parametrize(
    ("n", "draw"),
    [
        (20, lambda rng, n: rng.normal(1, 0.05, n)),
        (100, lambda rng, n: rng.normal(1, 0.05, n)),
        (50, lambda rng, n: 1 + rng.exponential(0.1, n)),  # a floor and a tail, as times have
        (100, lambda rng, n: np.round(rng.normal(1, 0.02, n) / 0.01) * 0.01),  # a coarse clock
    ],
    ids=["few", "normal", "tail", "ticks"],
)
def test_interval_covers_the_true_ratio_as_often_as_its_level(n, draw):
    rng = np.random.default_rng(7)
    truth, trials = 1.2, 300
    covered = 0
    for seed in range(trials):
        _, low, high = statistics.interval(truth * draw(rng, n), draw(rng, n), seed, resamples=400)
        covered += low <= truth * (1 + 1e-9) and high >= truth * (1 - 1e-9)
    assert covered / trials > 0.92  # 95 % less what 300 trials scatter


def test_equal_runs_are_rarely_reported_as_different():
    rng = np.random.default_rng(8)
    false_alarms = 0
    for seed in range(300):
        _, low, high = statistics.interval(rng.gamma(9, 0.1, 30), rng.gamma(9, 0.1, 30), seed, resamples=400)
        false_alarms += not low <= 1 <= high
    assert false_alarms / 300 < 0.08


def test_largest_import_is_compared_within_two_seconds():
    import time

    many = a_row(samples=np.random.default_rng(0).normal(1, 0.01, 10_000))
    start = time.process_time()  # independent of other load on the machine
    difference = statistics.compare(many, many | {"device": "another"})
    assert not difference.certain and time.process_time() - start < 2.0


# -- the same time -------------------------------------------------------------------------------
def timed(median: float, low: float | None = None, high: float | None = None, n: int = 20) -> dict:
    return {"median_ms": median, "p20_ms": low or median, "p80_ms": high or median, "n": n}


SAME, UNDECIDED, DIFFERENT = "same", "undecided", "different"


@every(
    ("a", "b", "what"),
    [
        (timed(1.51), timed(1.52), SAME),  # within 5 %, without an overlap
        (timed(1.0), timed(1.05), SAME),
        (timed(1.0), timed(1.06), DIFFERENT),
        (timed(1.0, 0.9, 1.2), timed(1.3, 1.1, 1.4), SAME),  # spreads overlap
        (timed(1.37, 1.3, 1.4, n=9), timed(19.4, 1.2, 30.0, n=3), DIFFERENT),  # the spread of 3 disturbed runs
        (timed(1.37, 1.3, 1.4), timed(19.4, 1.2, 30.0), DIFFERENT),
        (timed(1.0, 0.9, 1.2, n=3), timed(1.3, 1.1, 1.4), UNDECIDED),
        (timed(1.0, 0.9, 1.2, n=5), timed(1.3, 1.1, 1.4, n=5), SAME),
        (timed(1.0, 0.9, 1.1, n=3), timed(1.3, 1.2, 1.4, n=3), DIFFERENT),  # no overlap
        (timed(1.0, n=1), timed(1.01, n=1), SAME),
    ],
)
def test_times_are_the_same_within_five_percent_or_a_spread_of_enough_runs(a, b, what):
    for one, other in ((a, b), (b, a)):
        assert statistics.same_time(one, other) == (what == SAME)
        assert statistics.undecided(one, other) == (what == UNDECIDED)
        assert what == SAME or not statistics.within_spread(one, other)


def test_recordings_that_can_be_compared_have_one_shape_mode_and_device():
    for row in records.recordings("conv")[::100]:
        found = records.comparable(row)
        assert row in found
        assert {
            (r["mode"], r["device"], tuple(r["shape"].values()))
            for r in found
            if r["shape"].keys() == row["shape"].keys()
        } == {(row["mode"], row["device"], tuple(row["shape"].values()))}
