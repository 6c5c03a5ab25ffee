"""Decoding in one launch without a GPU: results at any shape and tile size, parts, counters, bytes, races, faults, rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import decode, variants
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import attention as reference
from kernels.attention.shape import MASKS, AttentionShape
from kernels.attention.traffic import requested_bytes
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import device_memory
from kernels.engines.emulator.memory import Global
from kernels.model.program import INPUT, RuleError
from kernels.model.verify import agrees
from kernels.runner import run, seeded_inputs
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.rung_runs import verified_output

RUNG = decode.RUNGS[0]
SMALL = {"WARPS": 2, "STAGES": 2, "BLOCKS": 8}
LONG_TILES = {"WARPS": 2, "TILE": 32, "STAGES": 2, "BLOCKS": 8}
# Each warp fills a stage again.
CACHE = AttentionShape(1, 8, 1, 64, causal=1, M=300, kv_heads=4, dtype="fp16")
SHAPES = (
    CACHE,
    AttentionShape(2, 8, 3, 64, causal=1, M=130, kv_heads=2, window=70, dtype="bf16", scale=-0.3),  # two bands of rows
    AttentionShape(1, 4, 9, 24, causal=1, M=133, kv_heads=2, dtype="fp16"),  # two blocks of rows, the last not full
    AttentionShape(1, 1, 11, 8, M=97, softcap=2.0, mask="bias", dtype="bf16"),
    AttentionShape(1, 2, 14, 40, M=61, mask="bool", causal=1, dtype="fp16"),
    AttentionShape(1, 1, 1, 128, M=50, dtype="fp16"),
    AttentionShape(1, 1, 9, 8, M=5, causal=1, dtype="fp16"),  # the first queries see no key
)


def built(s: AttentionShape, tiles):
    return RUNG.build(s, RUNG.check(s, tiles))


def inputs_of(s: AttentionShape):
    return seeded_inputs([b for b in variants.buffers(s) if b.role == INPUT], 0)


@st.composite
def shapes(draw) -> AttentionShape:
    """Draws few queries of one or more heads that share up to 90 keys, with any of the variants."""
    groups = draw(st.integers(1, 2))
    return AttentionShape(
        draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 4)),
        draw(st.integers(1, 6)),
        8 * draw(st.integers(1, 16)),
        causal=draw(st.integers(0, 1)),
        scale=draw(st.sampled_from([0.0, -0.5])),
        M=draw(st.integers(7, 90)),
        kv_heads=groups,
        window=draw(st.sampled_from([0, 1, 5, 40])),
        softcap=draw(st.sampled_from([0.0, 1.5])),
        mask=draw(st.sampled_from(MASKS)),
        dtype=draw(st.sampled_from(["fp16", "bf16"])),
    )


# -- results ---------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_both_engines_agree_with_the_reference_and_the_requested_bytes_are_counted(s):
    for tiles in (LONG_TILES, SMALL) if s in SHAPES[:2] else ({}, SMALL):
        verified_output(cpu, RUNG, s, tiles)
        tiles = RUNG.default_tiles | tiles
        total = run(RUNG.name, s, engine="emulator", tiles=tiles).counters.total  # verifies each element
        counted = sum(total[name] for name in ("bytes_ld", "bytes_st", "bulk_bytes_ld"))
        assert counted == requested_bytes(RUNG, s, tiles)


@needs_nvrtc
@settings(max_examples=5)
@given(s=shapes())
def test_any_shape(s):
    verified_output(emulator, RUNG, s, SMALL)


@needs_nvrtc
def test_warp_order_changes_nothing_and_no_races():
    s = SHAPES[1].with_(mask="bool")
    assert decode.parts(s, RUNG.check(s, SMALL)) > 1
    rung_runs.same_in_any_order(lambda options: verified_output(emulator, RUNG, s, SMALL, options=options))


@needs_nvrtc
def test_large_scores_are_exact_at_their_maximum():
    """One key has a score above 2^20, and its weight is 1."""
    s = AttentionShape(1, 2, 1, 64, M=50, kv_heads=1, dtype="fp16", scale=1.0)
    inputs = inputs_of(s)
    inputs["Q"][:] = 200
    inputs["K"][..., 33, :] = 200
    verified_output(emulator, RUNG, s, SMALL, inputs=inputs)


# -- parts and counters ----------------------------------------------------------------------------------
def test_parts_fill_the_multiprocessors():
    one, many = (ATTENTION_PRESETS[key].shape for key in ("llama-decode", "llama-decode-16"))
    for s, blocks in ((one, 132), (many, 264), (many, 528)):
        tiles = RUNG.check(s, {"BLOCKS": blocks})
        launched = decode.parts(s, tiles) * s.B * s.groups
        assert 0.96 * blocks < launched <= blocks
        assert decode.part(s, tiles) % (tiles["WARPS"] * tiles["TILE"]) == 0


@needs_nvrtc
def test_a_launch_leaves_the_counters_at_zero():
    """Then the next launch computes the same result."""
    session = emulator.Session(built(CACHE, SMALL), inputs_of(CACHE), rung_runs.UNCOUNTED)
    first = session.verify_run().copy()
    assert not session.fetch("counters").any()
    np.testing.assert_array_equal(session.verify_run(), first)


@needs_nvrtc
def test_numpy_stores_the_same_parts_as_the_kernel():
    program, inputs = built(CACHE, SMALL), inputs_of(CACHE)
    sessions = cpu.Session(program, inputs), emulator.Session(program, inputs, rung_runs.UNCOUNTED)
    for session in sessions:
        session.verify_run()
    for name in ("part_ml", "part_o"):
        np.testing.assert_allclose(*(session.fetch(name) for session in sessions), rtol=2e-3, atol=2e-3, err_msg=name)


# -- rules -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "rule"),
    [({"d": 12}, r"d % 8 == 0, got 12 % 8"), ({"N": 33}, r"H/kv_heads\*N <= 64, got 66"), ({"dtype": "fp32"}, "dtype")],
)
def test_a_shape_that_it_does_not_run_breaks_a_rule(fields, rule):
    with pytest.raises(RuleError, match=rule):
        RUNG.check(CACHE.with_(**fields), None)


# -- faults ----------------------------------------------------------------------------------------------
FAULTS = {  # what is wrong: (original code, faulty code)
    "a stage that is not filled again": ("if (lane == 0 && next < end)", "if (lane == 0 && next < first)"),
    "no wait for a stage": ("    wait(full + stage, parity);\n", ""),
    "hidden keys after the last": ("key + TILE > keys.end(0)", "false"),
    "no barrier before the warps merge": ("  __syncthreads();\n\n  // Merges the warps", "\n  // Merges the warps"),
    "a block that merges too early": ("== count - 1", "== count - 2"),
    "no swizzle of keys": (
        "load_matrices(keys, at(tile_k, n * 16 + row, k * 16 + col));",
        "load_matrices(keys, tile_k + (n * 16 + row) * BOX + (k * 16 + col) % BOX);",
    ),
}


STOPS = "out-of-bounds|never written|before the copy|deadlock|no thread can run|wrong number of bytes|still w"


def faulty(right: str, wrong: str, memory: Global):
    """Returns the races of a launch with a fault; None if it is stopped."""
    (step,) = built(CACHE, SMALL).steps
    run = rung_runs.relaunched(step, rung_runs.replace_once(wrong, right), memory, STOPS)
    return run and run.races


def is_right(memory: Global) -> bool:
    return agrees(memory.array("O"), *reference(CACHE, **inputs_of(CACHE)), RUNG.tolerance)


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_kernel_is_detected(fault):
    memory = rung_runs.memory_of(built(CACHE, SMALL), inputs_of(CACHE))
    with np.errstate(all="ignore"):
        races = faulty(*FAULTS[fault], memory)
    assert races is None or races or not is_right(memory)


@needs_nvrtc
def test_a_counter_that_is_not_reset_is_detected():
    """The first launch is right. In the next one no block merges, and O is not written."""
    program, inputs, fault = built(CACHE, SMALL), inputs_of(CACHE), ("if (last) *counter = 0;", "")
    memory = rung_runs.memory_of(program, inputs)
    assert not faulty(*fault, memory) and is_right(memory)
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.buffers if b.role != INPUT}
    again = device_memory(inputs | zeros | {"counters": memory.array("counters")}, [*inputs, "counters"])
    assert not faulty(*fault, again) and not is_right(again)
