"""The cost model: formulas against schedules, and fits against times made with a known link."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.collectives import cost, schedules
from kernels.collectives.cost import Link, Point, Regimes
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ITEM

PAIRS = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]
SIZES = [1024 << n for n in range(21)]  # 1 KiB to 1 GiB
LINK = Link(5e-6, 3.3e11, overlap=1.7)


@given(st.sampled_from(PAIRS), st.integers(1, 9), st.integers(1, 30))
def test_a_formula_is_the_count_of_its_schedule(pair, ranks, chunk):
    counted = cost.of_schedule(schedules.schedule(*pair, ranks, ranks * chunk))
    formula = cost.traffic(*pair, ranks, ITEM * ranks * chunk)
    assert [n for n, _ in counted] == [n for n, _ in formula]
    assert [b for _, b in counted] == pytest.approx([b for _, b in formula])


def test_a_round_takes_latency_and_transfer():
    plain = Link(1e-6, 1e9)
    assert plain.round_seconds(1000) == pytest.approx(2e-6)
    assert Link(1e-6, 1e9, overlap=2).round_seconds(1000) == pytest.approx(math.sqrt(2) * 1e-6)
    assert plain.round_seconds(0) == pytest.approx(1e-6)
    plan = schedules.schedule(ALL_REDUCE, "ring", 4, 1000)
    assert cost.seconds(plan, Link(1e-6, 1e9, start=7e-6)) == pytest.approx(7e-6 + 6 * (1e-6 + 1e-6))
    assert cost.seconds(schedules.schedule(ALL_REDUCE, "ring", 1, 1000), plain) == 0


def test_more_ranks_make_a_ring_slower_by_latency_alone():
    big = [cost.seconds(cost.traffic(ALL_REDUCE, "ring", r, 2**30), Link(0, 1e11)) for r in (2, 4, 10_000)]
    assert big == pytest.approx([2**30 / 1e11 * cost.bus_factor(ALL_REDUCE, r) for r in (2, 4, 10_000)])


@given(st.floats(1e-7, 1e-4), st.floats(1e9, 1e12), st.floats(0.6, 4), st.sampled_from(ALGORITHMS[ALL_REDUCE]))
def test_a_fit_finds_the_times_of_a_known_link(latency, bandwidth, overlap, algorithm):
    link = Link(latency, bandwidth, overlap=overlap)
    points = [_point(link, 2, n, algorithm) for n in SIZES]
    assert cost.fit(points).worst < 0.01


def _point(link: Link, ranks: int, nbytes: int, algorithm: str = "ring", noise: float = 0.0) -> Point:
    traffic = cost.traffic(ALL_REDUCE, algorithm, ranks, nbytes)
    return Point(traffic, cost.seconds(traffic, link) * (1 + noise))


def test_a_fit_predicts_sizes_between_its_points():
    rng = np.random.default_rng(0)
    fit = cost.fit([_point(LINK, 2, n, noise=rng.normal(0, 0.03)) for n in SIZES[::2]])
    errors = [cost.seconds(p.traffic, fit.link) / p.seconds - 1 for p in (_point(LINK, 2, n) for n in SIZES[1::2])]
    assert max(map(abs, errors)) < 0.1


def test_an_error_is_signed_and_of_its_point():
    points = [*(_point(LINK, 2, n) for n in SIZES), _point(LINK, 2, SIZES[9], noise=1.0)]
    fit = cost.fit(points)
    for point, error in zip(points, fit.errors, strict=True):
        assert cost.seconds(point.traffic, fit.link) == pytest.approx(point.seconds * (1 + error))
    assert fit.errors[-1] == min(fit.errors) < -0.2 and fit.worst == max(map(abs, fit.errors))


def test_a_change_of_protocol_gets_a_link_each():
    """Short arrays at a quarter of the bandwidth and of the latency, as NCCL's protocol for them has."""
    short, long = Link(2e-6, 2e10), Link(8e-6, 3.3e11, overlap=1.5)
    times = [(n, min(_point(short, 2, n).seconds, _point(long, 2, n).seconds)) for n in SIZES]
    points = [Point(cost.traffic(ALL_REDUCE, "ring", 2, n), s) for n, s in times]
    fit = cost.fit(points)
    assert isinstance(fit.link, Regimes) and fit.worst < 0.05
    assert fit.link.latency == pytest.approx(2e-6, rel=0.1) and fit.link.bandwidth == pytest.approx(3.3e11, rel=0.1)
    few = cost.fit(points[::3])
    assert isinstance(few.link, Link)  # too few for six numbers
    one = cost.fit([_point(LINK, 2, n) for n in SIZES])
    assert isinstance(one.link, Link)


def test_a_fit_needs_two_points():
    with pytest.raises(ValueError, match="two points"):
        cost.fit([_point(LINK, 2, 1024), Point((), 1.0)])
