"""Timelines of flash attention: every column is what the emulator executed, in this order, in every warp."""

from __future__ import annotations

import pytest

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from tests.helpers.timelines import assert_folded, assert_pictured, assert_proved, assert_safe
from visuals.attention.plan import plan_of
from visuals.attention.timeline import (
    FLASH,
    KEYS,
    REGISTERS,
    RUNGS,
    TENSOR_CORES,
    VALUES_COPY,
    order_of,
    regions_of,
    shortened,
    timeline_scene,
    trace_of,
)
from visuals.scene.program_order import folded, program_order

CASES = [
    (FLASH, {"Br": 4, "Bc": 8}),
    (REGISTERS, {"Br": 32, "Bc": 8, "TM": 4}),
    (TENSOR_CORES, {"Br": 32, "Bc": 16, "WM": 16, "STAGES": 2}),
    (TENSOR_CORES, {"Br": 32, "Bc": 16, "WM": 16, "STAGES": 3}),
]


def case(rung, count, tiles, causal=0):
    """Returns (shape, tiles) of one head with `count` tiles of keys, the last of them not whole."""
    s = AttentionShape(1, 1, 8, 32, causal=causal, dtype="fp16" if rung == TENSOR_CORES else "fp32")
    tiles = find(rung).check(s, tiles)
    return s.with_(N=count * tiles["Bc"] - tiles["Bc"] // 2), tiles


def place(fill):
    """Returns the row and the lane of a copy or a use: copies of K and V share a row, scores and values another."""
    if isinstance(fill, str):
        return "scores", int(fill == "values")
    return "copy", fill.lane + (fill.stream == VALUES_COPY)


def tile_of(s, tiles):
    """Returns the tile of a byte of K or V [N, d]."""
    row = ELEMENT_BYTES[s.dtype] * s.d
    return lambda name, byte: byte // row // tiles["Bc"] + 1 if name in ("K", "V") else None


@pytest.mark.parametrize(("rung", "tiles"), CASES)
@pytest.mark.parametrize("causal", [0, 1])
def test_the_columns_are_what_each_warp_executed(rung, tiles, causal):
    s, tiles = case(rung, 4, tiles, causal)
    trace, regions = trace_of(s, rung, tiles), regions_of(plan_of(s, rung, tiles))
    order = program_order(trace, regions, 4)
    assert_proved(order, trace, regions, tile_of(s, tiles))
    assert_safe(trace, regions, tile_of(s, tiles))
    assert_pictured(timeline_scene(s, rung, tiles), order, place)


@pytest.mark.parametrize(("rung", "tiles"), CASES[:2] + CASES[3:])
def test_a_long_loop_is_folded_as_a_whole_run_shows(rung, tiles):
    s, tiles = case(rung, 9, tiles)
    cut = shortened(s, plan_of(s, rung, tiles))
    assert cut.N < s.N
    order = folded(order_of(cut, rung, tiles), 9, -(-cut.N // tiles["Bc"]))
    assert_folded(order, order_of(s, rung, tiles))
    assert_pictured(timeline_scene(s, rung, tiles), order, place)


def test_one_buffer_each_is_enough_if_keys_and_values_take_turns():
    s, tiles = case(REGISTERS, 4, CASES[1][1])
    order = order_of(s, REGISTERS, tiles)
    keys, values = ([f for f in order.fills if f.stream == stream] for stream in (KEYS, VALUES_COPY))
    for tile in range(3):
        (scores,), (sums,) = keys[tile].uses, values[tile].uses
        assert values[tile].start < scores <= values[tile].end  # V is copied during the scores
        assert keys[tile + 1].start < sums <= keys[tile + 1].end  # the next K while values are added
    assert all(f.lane == 0 for f in order.fills)


def test_the_first_flash_kernel_copies_while_nothing_is_computed():
    s, tiles = case(FLASH, 4, CASES[0][1])
    order = order_of(s, FLASH, tiles)
    assert not any(order.in_flight(n) for n, slot in enumerate(order.slots) if slot.used)


def test_a_kernel_without_tiles_of_keys_has_no_timeline():
    s = AttentionShape(1, 1, 8, 8)
    with pytest.raises(ValueError, match="no tiles"):
        timeline_scene(s, "attention/naive", find("attention/naive").default_tiles)
    assert "attention/naive" not in RUNGS
