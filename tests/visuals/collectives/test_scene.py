"""Scenes of collectives: they end with what the kernels stored; every moved number is marked; captions and strips are true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.collectives import cost, executor, schedules
from kernels.collectives.emulated import Ranks
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, RING, CollectiveShape
from tests.helpers.offenders import every
from tests.helpers.scenes import counted_otherwise
from visuals.collectives import scene as scenes
from visuals.collectives.scene import collective_scene, numbers

PAIRS = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]
SCHEDULES = [pair for pair in PAIRS if pair != (ALL_REDUCE, RING)]  # pictures that are made by hand
shapes = st.builds(
    lambda pair, ranks, elements: CollectiveShape(*pair, ranks, elements),
    st.sampled_from(PAIRS),
    st.integers(2, 8),
    st.integers(1, 40),
)


@settings(max_examples=20)
@given(shapes.filter(lambda shape: (shape.kind, shape.algorithm) in SCHEDULES))
def test_a_scene_shows_every_state_of_the_executor(shape):
    scene = collective_scene(shape)
    states = list(executor.states(schedules.of_shape(shape), numbers(shape)))
    assert scene.steps == len(states) + 1
    for t, state in enumerate([*states, states[-1]]):
        for rank in range(shape.ranks):
            shown = scene.cells(f"gpu{rank}", t)
            written = ~np.isnan(shown)
            np.testing.assert_array_equal(shown[written], state[rank][written])
    for part in executor.expected(shape, numbers(shape)):
        end = part.begin + part.values.size
        np.testing.assert_array_equal(scene.cells(f"gpu{part.rank}")[part.begin : end], part.values)


@pytest.mark.parametrize(("ranks", "elements"), [(2, 5), (3, 12), (4, 16), (5, 7), (8, 64)])
def test_our_ring_moves_the_chunks_of_its_schedule(ranks, elements):
    shape = CollectiveShape(ALL_REDUCE, RING, ranks, elements)
    scene, plan, arrays = collective_scene(shape), schedules.of_shape(shape), numbers(shape)
    states = list(executor.states(plan, arrays))
    assert scene.steps == len(plan.rounds) + 2
    for n, moves in enumerate(plan.rounds, 1):
        for move in moves:
            cells, rank = np.arange(move.to, move.to + move.size), move.destination
            sent = states[n][rank][cells] - (
                arrays[rank][cells] if move.adds else 0
            )  # its own numbers are added when it sends
            np.testing.assert_array_equal(scene.cells(f"gpu{rank}", n)[cells], sent)
    for rank in range(ranks):
        np.testing.assert_array_equal(scene.cells(f"gpu{rank}"), sum(arrays))


@pytest.mark.parametrize("algorithm", KERNELS)
def test_a_scene_ends_with_what_our_kernel_stored(algorithm):
    shape = CollectiveShape(ALL_REDUCE, algorithm, 4, 16)
    scene = collective_scene(shape)
    results = Ranks(algorithm, numbers(shape)).run(blocks=1, threads=64).results
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(scene.cells(f"gpu{rank}"), result)


def test_a_cell_names_the_terms_of_its_sum():
    shape = CollectiveShape(ALL_REDUCE, RING, 3, 6)
    scene = collective_scene(shape)
    for annotation in scene.annotations:
        final = scene.cells(annotation.tensor)
        for cell, args in enumerate(annotation.captions.args):
            assert [*args[:-1]] == [array[cell] for array in numbers(shape)]
            assert args[:-1].sum() == args[-1] == final[cell]
    assert [a.tensor for a in scene.annotations] == ["gpu0", "gpu1", "gpu2"]


@every(("kind", "algorithm"), PAIRS)
def test_the_rounds_of_a_caption_are_not_counted_as_the_players_steps(kind, algorithm):
    assert counted_otherwise(collective_scene(CollectiveShape(kind, algorithm, 4, 12))) == []


@settings(max_examples=20)
@given(shapes.filter(lambda shape: (shape.kind, shape.algorithm) in SCHEDULES))
def test_every_move_is_read_and_written_in_its_round(shape):
    scene, plan = collective_scene(shape), schedules.of_shape(shape)
    written = {rank: scene.written(scene.write(f"gpu{rank}")) for rank in range(shape.ranks)}
    reads = {read.source: read for read in scene.reads}
    for n, moves in enumerate(plan.rounds, 1):
        for move in moves:
            steps, cells, _ = written[move.destination]
            assert set(range(move.to, move.to + move.size)) <= set(cells[steps == n])
            read = reads[f"gpu{move.source}"]
            assert set(range(move.begin, move.end)) <= set(read.cells[read.start[n] : read.start[n + 1]])


@settings(max_examples=20)
@given(shapes)
def test_readings_count_the_port_and_the_final_numbers(shape):
    scene, plan = collective_scene(shape), schedules.of_shape(shape)
    port, final = (reading.values for reading in scene.readings)
    assert port[-1] == sum(n * b for n, b in cost.of_schedule(plan)) and port[0] == 0
    wanted = sum(part.values.size for part in executor.expected(shape, numbers(shape)))
    assert final[-1] == wanted and (np.diff(final) >= 0).all()


@every(("kind", "algorithm"), PAIRS)
def test_every_caption_is_filled(kind, algorithm):
    scene = collective_scene(CollectiveShape(kind, algorithm, 4, 16))
    texts = [scene.caption(t) for t in range(scene.steps)]
    assert all(text and "{" not in text for text in texts)
    assert all(f"Round {t} of {scene.steps - 2}" in texts[t] for t in range(1, scene.steps - 1))


def test_the_ring_s_sentences_name_the_chunk_that_moves():
    shape = CollectiveShape(ranks=4, elements=16)
    scene, plan = collective_scene(shape), schedules.of_shape(shape)
    chunks = [schedules.chunk(shape, n) for n in range(4)]
    for n, moves in enumerate(plan.rounds, 1):
        move = next(m for m in moves if m.source == 0)
        assert f"chunk {chunks.index((move.begin, move.end))} from GPU 0" in scene.caption(n)
        arrow = next(f for f in scene.flows if (f.source, f.target) == (0, 1))
        assert arrow.texts[arrow.text[n]] == f"GPU 0 → 1: chunk {chunks.index((move.begin, move.end))}"


def test_the_lit_line_of_the_ring_is_the_branch_that_runs():
    scene = collective_scene(CollectiveShape(ranks=4, elements=16))
    lit = [scene.source_at(t)[1] for t in range(scene.steps)]
    lines = sources.text(KERNELS[RING].source).splitlines()
    shown = [lines[n - 1].strip() for n in lit[1:-1]]
    assert [text.partition("(")[2].partition(", begin")[0] for text in shown] == [
        "next_out, nullptr, in, nullptr",
        "next_out, nullptr, out, in",
        "next_out, nullptr, out, in",
        "next_out, out, out, in",
        "next_out, nullptr, out, nullptr",
        "next_out, nullptr, out, nullptr",
    ]


@given(shapes)
def test_arrows_are_few(shape):
    assert len(collective_scene(shape).flows) <= min(scenes.MAX_FLOWS, 2 * (shape.ranks - 1))


def test_the_start_shows_only_what_counts():
    gather = collective_scene(CollectiveShape("all-gather", RING, 4, 16))
    for rank in range(4):
        shown = ~np.isnan(gather.cells(f"gpu{rank}", 0))
        assert list(np.flatnonzero(shown)) == list(range(4 * rank, 4 * rank + 4))
