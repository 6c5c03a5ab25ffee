"""The hall on paper: jobs that share a core."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.hall import shared, table, waits


@pytest.mark.parametrize(
    ("arrivals", "work", "took"),
    [
        ([0.0], [2.0], [2.0]),
        ([0.0, 5.0], [2.0, 1.0], [2.0, 1.0]),  # one after the other
        ([0.0, 0.0], [1.0, 1.0], [2.0, 2.0]),  # together: each has half
        ([0.0, 1.0], [2.0, 0.5], [1.0, 2.5]),  # the short one comes into the long one
    ],
)
def test_jobs_share_a_core(arrivals, work, took):
    assert shared(arrivals, work) == pytest.approx(took)


def test_a_queue_of_two_random_jobs_is_as_theory_has_it():
    """Poisson arrivals, one core shared: a job of length s takes s / (1 - load) on average."""
    rng = np.random.default_rng(0)
    arrivals, work = np.cumsum(rng.exponential(1.0, 20_000)), np.full(20_000, 0.5)
    assert np.mean(shared(arrivals, work)) == pytest.approx(1.0, rel=0.05)


def test_more_processes_make_readers_wait_less():
    one, two = (np.median(waits(60, n, [0.03])) for n in (1, 2))
    assert 0.03 <= two < one
    assert "too few" in table([0.05], [100], [1])
