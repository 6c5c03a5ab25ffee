"""Schedules, run by the NumPy executor, against the float64 reference; lost moves; links; the order of sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.collectives import executor, schedules
from kernels.collectives.executor import CollectiveError
from kernels.collectives.schedules import Schedule
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ALL_TO_ALL, BROADCAST, CollectiveShape
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError

PAIRS = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]
collectives = st.sampled_from(PAIRS)


@given(collectives, st.integers(1, 9), st.integers(1, 40), st.integers(0, 3))
def test_every_algorithm_is_right(pair, ranks, elements, seed):
    plan = schedules.schedule(*pair, ranks, elements)
    arrays = executor.inputs(plan.shape, seed)
    before = [a.copy() for a in arrays]
    executor.verify(plan.shape, arrays, executor.execute(plan, arrays))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


@given(collectives, st.integers(2, 9), st.integers(1, 40), st.data())
def test_a_lost_move_is_noticed(pair, ranks, elements, data):
    plan = schedules.schedule(*pair, ranks, elements)
    n = data.draw(st.integers(0, len(plan.rounds) - 1)) if plan.rounds else None
    if n is None:  # an all-to-all of one element: it stays where it is
        assert pair[0] == ALL_TO_ALL or elements < ranks
        return
    lost = data.draw(st.sampled_from(plan.rounds[n]))
    rounds = list(plan.rounds)
    rounds[n] = tuple(move for move in plan.rounds[n] if move != lost)
    faulty = Schedule(plan.shape, tuple(rounds))
    arrays = executor.inputs(plan.shape)
    same = [a.tobytes() for a in executor.execute(faulty, arrays)] == [
        a.tobytes() for a in executor.execute(plan, arrays)
    ]
    if lost.source == lost.destination and not lost.adds:  # it copies an array onto itself
        assert same
        return
    with pytest.raises(CollectiveError):
        executor.verify(plan.shape, arrays, executor.execute(faulty, arrays))


@given(st.sampled_from(ALGORITHMS[ALL_REDUCE]), st.integers(1, 9), st.integers(1, 30))
def test_all_ranks_hold_equal_bits(algorithm, ranks, elements):
    plan = schedules.schedule(ALL_REDUCE, algorithm, ranks, elements)
    rng = np.random.default_rng(elements)
    arrays = [
        (rng.standard_normal(elements) * 10.0 ** rng.integers(-6, 6, elements)).astype(np.float32) for _ in range(ranks)
    ]
    executor.verify(plan.shape, arrays, executor.execute(plan, arrays))  # it compares the bits


@given(st.sampled_from(("one-shot", "two-shot")), st.integers(1, 9), st.integers(1, 30))
def test_reads_of_all_peers_add_in_the_order_of_the_ranks(algorithm, ranks, elements):
    plan = schedules.schedule(ALL_REDUCE, algorithm, ranks, elements)
    arrays = executor.inputs(plan.shape)
    total = arrays[0].copy()
    for other in arrays[1:]:
        total = total + other
    assert executor.execute(plan, arrays)[-1].tobytes() == total.tobytes()


def test_a_result_off_by_more_than_the_bound_is_refused():
    shape = CollectiveShape(ranks=4, elements=8)
    arrays = executor.inputs(shape)
    right = executor.execute(schedules.of_shape(shape), arrays)
    for rank, at in ((0, 0), (3, 7)):
        wrong = [a.copy() for a in right]
        for a in wrong:
            a[at] *= np.float32(1 + 2.0**-19)
        with pytest.raises(CollectiveError, match=f"element {at} of rank 0"):
            executor.verify(shape, arrays, wrong)
        wrong = [a.copy() for a in right]
        wrong[rank][at] = np.nan
        with pytest.raises(CollectiveError, match=f"element {at} of rank {rank}"):
            executor.verify(shape, arrays, wrong)
    other = [a.copy() for a in right]
    other[2][5] = np.nextafter(other[2][5], np.float32(0))
    with pytest.raises(CollectiveError, match="element 5 of rank 2 differs from that of rank 0"):
        executor.check_equal(other)


@given(collectives, st.integers(2, 9), st.integers(1, 40))
def test_a_rank_sends_to_few_peers_in_a_round(pair, ranks, elements):
    """A ring has one peer a round in each direction, and so has every algorithm but those that read all peers."""
    plan = schedules.schedule(*pair, ranks, elements)
    for moves in plan.rounds:
        for side in ("source", "destination"):
            peers = [getattr(m, side) for m in moves if m.source != m.destination]
            most = max(map(peers.count, peers), default=0)
            assert most <= (ranks - 1 if pair[1] in ("one-shot", "two-shot", "direct") else 1)


@given(st.integers(2, 9), st.integers(1, 60))
def test_a_ring_moves_as_little_as_possible(ranks, elements):
    sent = schedules.schedule(ALL_REDUCE, "ring", ranks, ranks * elements).link_elements()
    assert sent == {(r, (r + 1) % ranks): 2 * (ranks - 1) * elements for r in range(ranks)}


@given(st.integers(1, 9), st.integers(1, 40))
def test_blocks_of_an_all_to_all_fill_each_array_and_fit_their_partner(ranks, elements):
    s = CollectiveShape(ALL_TO_ALL, "direct", ranks, elements)
    for r in range(ranks):
        parts = [schedules.block(s, r, peer) for peer in range(ranks)]
        assert [a for a, _ in parts] == [0, *(b for _, b in parts[:-1])] and parts[-1][1] == elements
        for peer, (a, b) in enumerate(parts):
            begin, end = schedules.block(s, peer, r)
            assert b - a == end - begin


def test_states_begin_with_the_input_and_end_with_the_result():
    plan = schedules.schedule(BROADCAST, "tree", 5, 3)
    arrays = executor.inputs(plan.shape)
    found = list(executor.states(plan, arrays))
    assert len(found) == 1 + len(plan.rounds)
    assert np.array_equal(found[0], arrays)
    assert np.array_equal(found[-1], [arrays[0]] * 5)


def test_refusals_name_the_rule():
    with pytest.raises(ShapeError, match=r"kind must be one of all-reduce, .* got sum"):
        schedules.schedule("sum", "ring", 2, 2)
    with pytest.raises(ShapeError, match="broadcast has the algorithms naive, tree, ring, got one-shot"):
        schedules.schedule(BROADCAST, "one-shot", 2, 2)
    with pytest.raises(ShapeError, match=r"ranks must be in 1 \.\. 1024, got 0"):
        replace(CollectiveShape(), ranks=0)
    with pytest.raises(RuleError, match="each of 2 ranks needs an array of 3 elements"):
        executor.execute(schedules.schedule(ALL_REDUCE, "ring", 2, 3), [np.ones(3), np.ones(2)])
