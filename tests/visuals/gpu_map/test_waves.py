"""Blocks on SMs: each is placed once, in as few waves as fit, and a scene shows the same."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ladders import find
from kernels.memory.shape import BanksShape
from visuals.gpu_map import texts
from visuals.gpu_map.data import ONCE, Amount, Blocks, Gpu, GpuMap, Kernel, Operand, Tile, Traffic
from visuals.gpu_map.launches import blocks_of
from visuals.gpu_map.scene import FOLLOWED, MAX_CELLS, across, map_scene
from visuals.gpu_map.waves import MAX_SINGLE, all_waves, cells_of, places, sm_of, steps, wave_count, wave_of

grids = st.tuples(st.integers(1, 300), st.integers(1, 40), st.integers(1, 3))
sms = st.integers(1, 150)
residents = st.integers(1, 32)


def amount(count: int | None, limit: str = "") -> Amount:
    return Amount() if count is None else Amount(count, "predicted", limit)


amounts = st.builds(amount, st.none() | st.integers(0, 10**15), st.sampled_from(["", ONCE]))
traffics = st.builds(Traffic, st.tuples(amounts, amounts, amounts), st.tuples(amounts, amounts, amounts))


def a_map(grid, count: int, resident: int, total: Traffic, tiles: int = 1, launches: int = 1) -> GpuMap:
    """Returns a map of one tensor that is read and one that is written."""
    blocks = Blocks(grid, 128, resident, "registers")
    tile = Tile("8 × 8", (2, 2))
    x = Operand("x", "x", "input", 2, 3, "2 × 3", np.arange(tiles) % 6, np.arange(6.0), tile)
    y = Operand("y", "y", "output", 2, 2, "2 × 2", np.zeros(1, int))
    one = Traffic((Amount(64, "predicted"),) * 3)
    kernel = Kernel("sum", blocks, ("x",), "y", tiles, one, total)
    return GpuMap(
        "m",
        "a map",
        Gpu("a GPU", count, None, 10**6, 10**5, 10**5),
        (kernel,) * launches,
        {"x": x, "y": y},
        total,
        True,
    )


@settings(max_examples=25)
@given(grids, sms, residents)
def test_each_block_is_placed_once_and_no_sm_has_more_than_fit(grid, count, resident):
    n = int(np.prod(grid))
    blocks = np.arange(n)
    wave, sm = wave_of(blocks, count, resident), sm_of(blocks, count, resident)
    assert wave.max() + 1 == wave_count(n, count, resident) == -(-n // (count * resident))
    assert sm.min() >= 0 and sm.max() < count
    on_sm = np.bincount(wave * count + sm)
    assert on_sm.sum() == n and on_sm.max() <= resident
    assert (np.bincount(wave)[:-1] == places(count, resident)).all(), "only the last wave may leave places empty"


@settings(max_examples=25)
@given(grids, sms, residents)
def test_the_steps_cover_all_waves_in_order(grid, count, resident):
    n = int(np.prod(grid))
    found = steps(n, count, resident)
    assert len(found) <= MAX_SINGLE
    assert [w.start for w in found] == [0, *(w.stop for w in found[:-1])] and found[-1].stop == n
    assert [w.first for w in found] == [0, *(w.last + 1 for w in found[:-1])]
    assert all(w.on_sm.sum() == w.stop - w.last * places(count, resident) for w in found)
    assert (all_waves(n, count, resident).on_sm == found[-1].on_sm).all()


@settings(max_examples=25)
@given(grids, st.integers(1, MAX_CELLS))
def test_every_block_is_in_one_cell(grid, most):
    n, cells = int(np.prod(grid)), cells_of(grid, most)
    last = cells.last_block(n)
    assert last[-1] == n - 1 and (np.diff(last) > 0).all()
    assert len(last) <= cells.rows * cells.cols
    assert len(last) <= max(most, 1)
    if cells.each == 1 and n <= most:
        assert len(last) == n


@given(sms)
def test_sms_are_drawn_in_rows(count):
    assert across(count) * (-(-count // across(count))) >= count


@given(grids, sms, residents, traffics, st.integers(1, 5), st.integers(1, 6))
@settings(max_examples=20)
def test_a_scene_places_all_blocks_and_shows_the_bytes(grid, count, resident, total, tiles, launches):
    n = int(np.prod(grid))
    scene = map_scene(a_map(grid, count, resident, total, tiles, launches))
    shown = steps(n, count, resident)
    placed = 0
    for step, wave in enumerate(shown, 1):
        on_sms = scene.cells("sms", step)[:count]
        np.testing.assert_array_equal(on_sms, wave.on_sm)
        placed += (wave.last - wave.first) * places(count, resident) + int(on_sms.sum())
        blocks = scene.cells("blocks", step)
        assert np.nanmax(blocks, initial=0) <= wave.last + 1
    assert placed == n
    last = cells_of(grid, MAX_CELLS).last_block(n)
    np.testing.assert_array_equal(scene.cells("blocks")[: len(last)], wave_of(last, count, resident) + 1, strict=False)
    labels = [flow.texts[flow.text[-1]] for flow in scene.flows]
    expected = [
        texts.label(one, texts.ALL, written)
        for pair in zip(total.read, total.written, strict=True)
        for one, written in zip(pair, (False, True), strict=True)
    ]
    assert labels == expected
    assert np.isfinite(scene.cells("y")).all() and scene.cells("sums")[0] == tiles


@given(grids, sms, residents)
@settings(max_examples=20)
def test_the_last_wave_names_what_stays_idle(grid, count, resident):
    n = int(np.prod(grid))
    scene = map_scene(a_map(grid, count, resident, Traffic()))
    shown = steps(n, count, resident)
    text, last = scene.caption(len(shown)), shown[-1]
    idle = int((last.on_sm == 0).sum())
    if idle:
        assert f"{last.busy} of {count} SMs: {idle} have no work" in text
    elif last.on_sm.sum() < places(count, resident):
        free = places(count, resident) - int(last.on_sm.sum())
        assert f"{free:,} of {places(count, resident):,} places stay empty" in text
    else:
        assert "every SM is full" in text


def test_a_tile_lights_up_at_each_level_in_turn():
    m = a_map((3, 2, 1), 4, 2, Traffic(), tiles=3)
    scene = map_scene(m)
    first = 1 + len(steps(6, 4, 2))
    for tile in range(FOLLOWED):
        for level, name in enumerate(("l2_x", "sm_x", "sums")):
            step = first + 3 * tile + level
            written = [w for w in scene.writes if w.target == name]
            assert any((np.asarray(w.steps) == step).any() for w in written)
            expected = tile + 1 if name == "sums" else tile  # the value of the tile's piece in HBM
            assert (scene.cells(name, step) == expected).all()
            active = [flow.active[step] for flow in scene.flows]
            assert active == [int(n == 2 * level) for n in range(6)]


def test_what_is_not_known_is_said():
    scene = map_scene(a_map((1, 1, 1), 2, 1, Traffic()))
    assert {flow.texts[flow.text[-1]] for flow in scene.flows} == {"read: not known", "stored: not known"}
    assert "unknown number of bytes" in scene.caption(scene.steps - 1)


def test_sentences_are_short():
    m = a_map((64, 64, 1), 132, 2, Traffic((Amount(10**9, "predicted", ONCE),) * 3), 5)
    for scene in (map_scene(m), map_scene(replace(m, shared=False)), map_scene(replace(m, kernels=m.kernels * 3))):
        for step in range(scene.steps):
            for sentence in re.split(r"(?<=[.!?:])\s+", scene.caption(step)):
                assert len(sentence.split()) <= 28, sentence


@settings(max_examples=25)
@given(sms, residents)
def test_a_wave_has_a_block_on_each_sm_before_any_has_two(count, resident):
    assert sm_of(np.arange(count), count, resident).tolist() == list(range(count))


def test_static_shared_memory_limits_the_blocks_of_an_sm():
    rung = find("banks/plain")
    (launch,) = rung.build(BanksShape(1 << 18, 1), {"BLOCK": 64}).steps
    found = blocks_of(launch)
    assert launch.shared == 0 and found.limit == "shared memory"
    assert found.resident < 32  # as many as its threads allow
