"""Threads and memory: results at any shape on both engines, and sectors and wavefronts compared with the formulas."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, emulator
from kernels.ladders import LADDERS
from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import SECTOR, AddShape, BanksShape, BranchShape, LayoutShape, StrideShape, parser
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.records.nearest import nearest
from kernels.runner import VerificationError, run, seeded_inputs
from tests.helpers.offenders import every
from tests.helpers.rung_runs import same_in_any_order, verified_output

SHAPES = st.one_of(
    st.builds(AddShape, st.integers(1, 40), st.integers(1, 70)),
    st.builds(StrideShape, st.integers(1, 700), st.integers(1, 40)),
    st.builds(BanksShape, st.integers(1, 300), st.integers(1, 32), st.integers(1, 3)),
    st.builds(BranchShape, st.integers(1, 300), st.integers(1, 40)),
    st.builds(LayoutShape, *(st.integers(1, 9),) * 4),
)
LADDER_OF = {ladder.shape: ladder for ladder in memory_ladder.LADDERS}
ENGINES = st.sampled_from([emulator, cpu])


@settings(max_examples=20)
@given(
    shape=SHAPES, engine=ENGINES, block=st.sampled_from(memory_ladder.BLOCKS), tile=st.sampled_from(memory_ladder.TILES)
)
def test_every_rung_agrees_at_any_shape(shape, engine, block, tile):
    ladder = LADDER_OF[type(shape)]
    tiles = {"BLOCK": block} | ({"TILE": tile} if ladder.name == "add" else {})
    outputs = [
        verified_output(engine, r, shape, {n: v for n, v in tiles.items() if n in r.tiles}) for r in ladder.rungs
    ]
    assert all(output.shape == outputs[0].shape for output in outputs)


@settings(max_examples=15)
@given(shape=SHAPES, seed=st.integers(0, 9))
def test_warp_order_changes_nothing_and_no_races(shape, seed):
    for rung in LADDER_OF[type(shape)].rungs:
        same_in_any_order(
            lambda options, rung=rung: verified_output(emulator, rung, shape, options=options), ("forward", seed)
        )


@settings(max_examples=20)
@given(n=st.integers(1, 600), stride=st.integers(1, 40))
def test_predicted_bytes_of_a_strided_copy_equal_counted_sectors(n, stride):
    s = StrideShape(n, stride)
    result = run("stride/copy", s, engine="emulator")
    assert SECTOR * result.counters.total["sectors_ld"] + 4 * n == s.bytes == result.predicted.bytes
    assert s.sectors == len(set(np.arange(n) * stride // 8))


@every("stride", [1, 2, 3, 4, 8, 12, 16, 31, 32])
def test_wavefronts_follow_from_the_banks(stride):
    lane = np.arange(32) * stride
    for rung, pitch in (("banks/plain", 32), ("banks/padded", 33)):
        bank_words = lane // 32 * pitch + lane % 32
        max_per_bank = np.bincount(bank_words % 32).max()  # different words of the fullest bank
        total = run(rung, BanksShape(64, stride, 2), engine="emulator").counters.total
        assert total["shared_requests_ld"] == 2 * 32 * 2  # warps, reads, turns: none was optimised away
        assert total["wavefronts_ld"] == max_per_bank * total["shared_requests_ld"]


def test_padding_helps_powers_of_two_and_harms_odd_strides():
    def wavefronts_per_request(rung, stride):
        total = run(rung, BanksShape(32, stride), engine="emulator").counters.total
        return total["wavefronts_ld"] / total["shared_requests_ld"]

    assert [wavefronts_per_request("banks/plain", s) for s in (1, 2, 8, 32)] == [1, 2, 8, 32]
    assert [wavefronts_per_request("banks/padded", s) for s in (1, 2, 8, 32)] == [1, 1, 1, 1]
    assert wavefronts_per_request("banks/plain", 3) == 1 < wavefronts_per_request("banks/padded", 3)


def test_x_down_the_column_loads_one_sector_per_lane():
    """A warp of a 32 x 32 block loads 4 sectors of each matrix along the row, 32 down the column."""
    along, down = (
        run(f"add/{name}", AddShape(64, 64), engine="emulator").counters.total
        for name in ("matrix", "matrix-transposed")
    )
    assert along["sectors_ld"] == 2 * 64 * 64 * 4 // SECTOR
    assert down["sectors_ld"] == 8 * along["sectors_ld"] and down["sectors_st"] == 8 * along["sectors_st"]


def test_wrong_thread_mapping_is_detected(monkeypatch):
    """Exchanges rows and columns of the grid, but not of the block: some elements are never written."""
    rung = LADDERS["add"].rung("add/matrix")
    build = rung.build

    def broken(s, tiles):
        program = build(s, tiles)
        (step,) = program.steps
        x, y, z = step.grid
        return dataclasses.replace(program, steps=(dataclasses.replace(step, grid=(y, x, z)),))

    object.__setattr__(rung, "build", broken)
    try:
        with pytest.raises((RuleError, VerificationError)):
            run("add/matrix", AddShape(8, 64), engine="emulator", tiles={"TILE": 8})
    finally:
        object.__setattr__(rung, "build", build)


def test_wrong_pitch_is_detected():
    """The reference does not depend on the tile's pitch: another stride gives other sums."""
    s = BanksShape(64, 5, 3)
    ladder = memory_ladder.BANKS
    x = seeded_inputs(ladder.rungs[0].build(s, ladder.rungs[0].default_tiles).of_role("input"))["x"]
    sums, _ = ladder.reference(s, x=x)
    other_sums, _ = ladder.reference(s.with_(stride=6), x=x)
    assert not np.allclose(sums, other_sums)
    y = np.zeros(64)
    for i in range(64):
        e = i % 32 * 5
        for t in range(3):
            row = e // 32 + (i // 32 + t) % 32
            y[i] += x[row : row + 32, e % 32].astype(float).sum()
    np.testing.assert_allclose(sums, y, rtol=1e-12)


@pytest.mark.parametrize("ladder", memory_ladder.LADDERS, ids=lambda ladder: ladder.name)
def test_shapes_survive_text(ladder):
    for preset in ladder.presets.values():
        text = ",".join(f"{name}={value}" for name, value in preset.shape.params().items())
        assert ladder.parse(text) == preset.shape == ladder.shape(**preset.shape.params())
        assert str(preset.shape) and preset.shape.macs > 0
        for rung in ladder.rungs:
            assert not list(rung.rules(preset.shape, rung.default_tiles)), (rung.name, preset.key)
            row = {"rung": rung.name, "mode": "cold", "shape": preset.shape.params(), "tiles": {}}
            assert nearest(rung.name, preset.shape, {}, "cold", [row]).exact


@every(
    ("cls", "text", "message"),
    [
        (StrideShape, "n=0,stride=1", "n must be in 1"),
        (StrideShape, "n=3", "missing stride"),
        (StrideShape, "n=3,stride=x", "stride must be a whole number"),
        (StrideShape, "n=3,n=4,stride=1", "n is given twice"),
        (BanksShape, "n=3,stride=33", "stride must be in 1 .. 32, got 33"),
        (LayoutShape, "N=1,C=1,H=1,K=2", "no field 'K'; there are: N, C, H, W"),
    ],
)
def test_invalid_shapes_are_explained(cls, text, message):
    with pytest.raises(ShapeError, match=message.replace(".", r"\.")):
        parser(cls)(text)


@pytest.mark.parametrize(
    ("rung", "shape", "rule"),
    [
        ("add/vector", AddShape(2**16, 2**15), "M*N must stay below 2^31"),
        ("add/matrix", AddShape(32 * 65_536, 1), "M <= 65535*TILE"),
        ("add/matrix-transposed", AddShape(1, 32 * 65_536), "N <= 65535*TILE"),
        ("layout/along-w", LayoutShape(2**8, 2**8, 2**8, 2**7), "N*C*H*W must stay below 2^31"),
    ],
)
def test_broken_rule_is_named(rung, shape, rule):
    checked_rung = LADDERS[rung.partition("/")[0]].rung(rung)
    assert any(message.startswith(rule) for message in checked_rung.rules(shape, checked_rung.default_tiles))
