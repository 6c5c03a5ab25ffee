"""Is it more than noise? Known samples, and how often the interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.records import statistics
from tests.helpers.rows_of import SHAPE, a_row


def around(ms, n=100, spread=0.02, seed=0):
    return a_row(samples=np.random.default_rng(seed).normal(ms, spread * ms, n))


def test_a_clear_difference_has_its_factor_and_its_interval():
    found = statistics.compare(around(1.31, seed=1), around(1.0, seed=2))
    assert found.certain and found.low < 1.31 < found.high and found.high - found.low < 0.05
    assert found.words == f"B is {found.ratio:.2f} times as fast as A ({found.low:.2f} to {found.high:.2f})."


def test_the_other_way_round_it_says_the_inverse():
    a, b = around(1.31, seed=1), around(1.0, seed=2)
    there, back = statistics.compare(a, b), statistics.compare(b, a)
    assert back.words.startswith("A is 1.3") and back.ratio == pytest.approx(1 / there.ratio)
    assert back.low == pytest.approx(1 / there.high, rel=0.01)


def test_no_difference_is_told_as_none():
    found = statistics.compare(around(1.0, seed=1), around(1.0, seed=3))
    assert not found.certain and found.words.startswith("No difference beyond noise: A takes 0.99")


def test_the_same_run_twice_is_exactly_one():
    found = statistics.compare(a_row(), a_row())
    assert found.ratio == 1 and not found.certain


def test_a_tick_of_the_clock_apart_in_all_samples_is_a_difference_with_digits():
    found = statistics.compare(a_row(samples=[4.704] * 50), a_row(samples=[4.672] * 50))
    assert found.certain and found.words == "B is 1.0068 times as fast as A (1.0068 to 1.0068)."


def test_the_same_samples_give_the_same_words_always():
    a, b = around(1.0, seed=5), around(1.02, seed=6)
    assert statistics.compare(a, b) == statistics.compare(a, b)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_too_few_samples_make_no_claim(n):
    found = statistics.compare(a_row(samples=[2.0] * n), around(1.0))
    assert found.low is None and not found.certain
    assert f"{n} sample{'s' * (n != 1)} cannot tell a difference from noise" in found.words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "hot"}, "Times not compared: different cache modes (cold and hot)."),
        ({"shape": SHAPE | {"H": 56}}, "Times not compared: different shapes (H 8 and 56)."),
        (
            {"shape": SHAPE | {"H": 56}, "mode": "hot"},
            "Times not compared: different shapes (H 8 and 56) and different cache modes (cold and hot).",
        ),
    ],
)
def test_what_cannot_be_compared_is_not(changes, words):
    found = statistics.compare(a_row(), a_row(1, **changes))
    assert found.words == words and found.ratio is None and not found.certain


def test_what_else_differs_is_named():
    other = a_row(1, device="a GPU", engine="cuda", rung="conv/im2col-gemm", kernels="1" * 16)
    assert statistics.compare(a_row(), other).unlike == ("device", "engine", "rung")
    assert statistics.compare(a_row(), a_row(1, kernels="1" * 16)).unlike == ("the kernel's code",)
    assert statistics.compare(a_row(), a_row(1)).unlike == ()


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
def test_the_interval_holds_the_truth_about_as_often_as_it_says(n, draw):
    rng = np.random.default_rng(7)
    truth, times = 1.2, 300
    held = 0
    for seed in range(times):
        _, low, high = statistics.interval(truth * draw(rng, n), draw(rng, n), seed, resamples=400)
        held += low <= truth * (1 + 1e-9) and high >= truth * (1 - 1e-9)
    assert held / times > 0.92  # 95 % less what 300 trials scatter


def test_two_equal_runs_are_seldom_called_different():
    rng = np.random.default_rng(8)
    called = 0
    for seed in range(300):
        _, low, high = statistics.interval(rng.gamma(9, 0.1, 30), rng.gamma(9, 0.1, 30), seed, resamples=400)
        called += not low <= 1 <= high
    assert called / 300 < 0.08


def test_as_many_samples_as_an_import_may_have_are_quick():
    import time

    many = a_row(samples=np.random.default_rng(0).normal(1, 0.01, 10_000))
    start = time.process_time()  # whatever else the machine does
    found = statistics.compare(many, many | {"device": "another"})
    assert not found.certain and time.process_time() - start < 2.0
