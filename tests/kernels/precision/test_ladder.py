"""The ladder on instructions: exact at any shape on both engines, and each rung executes the instructions that it claims."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import run
from kernels.engines.emulator import precompiled
from kernels.model.program import INPUT, RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees
from kernels.precision import cpu, reference
from kernels.precision.ladder import INSTRUCTIONS, LADDER, macs_of
from kernels.precision.shape import MAX_TURNS, K, M, N, RateShape, parse_rate
from kernels.runner import seeded_inputs

every_rung = pytest.mark.parametrize("rung", LADDER.rungs, ids=lambda rung: rung.name)
shapes = st.builds(RateShape, st.integers(1, 9), st.integers(1, 40))
OPCODES = {
    "ffma": r"fma\.rn\.f32",
    "hfma2": r"fma\.rn\.f16x2",
    "dp4a": r"dp4a\.s32\.s32",
    "mma-fp16": r"mma\.sync\S*m16n8k16",
    "mma-int8": r"mma\.sync\S*m16n8k32",
}
COUNTER = {
    "ffma": "flops_fp",
    "hfma2": "flops_fp",
    "dp4a": "flops_dp4a",
    "mma-fp16": "flops_mma",
    "mma-int8": "flops_mma",
}
UNROLLED = 8  # turns of the tensor cores' loops
FOLDED = 8  # additions in FP32 for a lane's sums, each time that hfma2 moves them


def short(rung) -> str:
    return rung.name.partition("/")[2]


@every_rung
@settings(max_examples=3)
@given(shape=shapes, block=st.sampled_from([64, 128, 256]))
def test_every_rung_is_exact_in_the_emulator(rung, shape, block):
    result = run(rung.name, shape, engine="emulator", tiles={"BLOCK": block}, measure=False)
    assert result.error == 0


@every_rung
@settings(max_examples=15)
@given(shape=shapes)
def test_the_numpy_steps_are_exact(rung, shape):
    program = rung.build(shape, rung.default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT))
    C = np.full((shape.warps, M, N), np.nan, np.float32)
    program.steps[0].cpu(inputs["A"], inputs["B"], C, *program.steps[0].args[3:])
    np.testing.assert_array_equal(C, reference.rate(shape, **inputs)[0])


def test_a_lost_turn_would_be_found():
    inputs = seeded_inputs(LADDER.rungs[0].build(RateShape(2, 5), {"BLOCK": 64}).of_role(INPUT))
    expected, scale = reference.rate(RateShape(2, 5), **inputs)
    shorter, _ = reference.rate(RateShape(2, 4), **inputs)
    assert agrees(expected, expected, scale, 0.0) and not agrees(shorter, expected, scale, 0.0)


def test_sums_in_fp16_alone_would_stop_growing(monkeypatch):
    """Why hfma2 moves its sums to FP32: beyond 2,048 an FP16 sum of ones stays as it is."""
    A, B, C = np.ones((M, K), np.int8), np.ones((K, N), np.int8), np.zeros((1, M, N), np.float32)
    cpu.hfma2(A, B, C, 1, 100)
    assert (C == 3200).all()
    monkeypatch.setattr(cpu, "FOLD", 1000)
    cpu.hfma2(A, B, C, 1, 100)
    assert (C == 2048).all()


@every_rung
def test_the_ptx_has_the_instructions_of_one_turn(rung):
    name = short(rung)
    step = rung.build(RateShape(1, 1), rung.default_tiles).steps[0]
    found = len(re.findall(OPCODES[name], precompiled.ptx(step.source, step.defines)))
    turns = {1} if "mma" not in name else {UNROLLED, UNROLLED + 1}  # unrolled, with or without a loop for the rest
    assert found in {n * INSTRUCTIONS[name] for n in turns}
    assert macs_of(rung.name) * INSTRUCTIONS[name] == M * N * K


@every_rung
def test_the_emulator_counts_the_operations_of_the_definition(rung):
    shape = RateShape(3, 33)
    counted = run(rung.name, shape, engine="emulator", measure=False).counters.total[COUNTER[short(rung)]]
    moved = FOLDED * 32 * shape.warps * -(-shape.turns // cpu.FOLD) if short(rung) == "hfma2" else 0
    assert counted == shape.flops + moved


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("warps=0,turns=1", "warps"),
        (f"warps=1,turns={MAX_TURNS + 1}", f"turns must be at most {MAX_TURNS}"),
        ("warps=1", "turns"),
    ],
)
def test_a_malformed_shape_names_the_rule(text, rule):
    with pytest.raises(ShapeError, match=rule):
        parse_rate(text)


def test_too_many_warps_are_refused():
    with pytest.raises(RuleError, match="warps"):
        LADDER.rungs[0].check(RateShape(2**27, 1), {})


def test_numbers_beyond_two_are_refused():
    with pytest.raises(RuleError, match=r"0 \.\. 2"):
        run(LADDER.rungs[0].name, RateShape(1, 1), {"A": np.full((M, K), 3, np.int8)}, engine="cpu", measure=False)
