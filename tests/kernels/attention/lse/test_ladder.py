"""Attention with L without a GPU: results at any shape and tile size and for hard scores, races, faults, rules; and the
backward pass from what it stores."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.backward import ladder as backward
from kernels.attention.backward.reference import saved
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.lse.ladder import LADDER, RUNGS
from kernels.attention.lse.reference import attention_lse
from kernels.attention.lse.shape import LseShape, parse_lse
from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees
from kernels.runner import inputs_of
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc, resources
from tests.helpers.hard_scores import side_by_side
from tests.helpers.rung_runs import verified_outputs
from tests.helpers.shapes import attention_shapes

RUNG = {rung.name.partition("/")[2]: rung for rung in RUNGS}
SMALL = {"blocked": {"TILE": 8}, "flash-registers": {"Br": 32, "Bc": 8}}
TOY = LseShape(1, 1, 8, 4)
RAGGED = LseShape(1, 2, 45, 37, causal=1)  # some tiles are partly hidden, some fully
names = pytest.mark.parametrize("name", RUNG)


def lse_shapes(**limits) -> st.SearchStrategy[LseShape]:
    return attention_shapes(**limits).map(lambda s: LseShape(**s.params()))


# -- the reference -------------------------------------------------------------------------------------
@settings(max_examples=20)
@given(s=lse_shapes(max_extent=30, max_d=12), seed=st.integers(0, 99))
def test_the_reference_is_the_definition(s, seed):
    """L is the logarithm of the plain sum of exponentials, whose derivative with respect to a score is its weight."""
    rng = np.random.default_rng(seed)
    inputs = {name: rng.standard_normal(s.qkv_shape) for name in "QKV"}
    scores = float(np.float32(s.factor)) * inputs["Q"] @ inputs["K"].swapaxes(2, 3)
    p = np.exp(scores) * (np.tril(np.ones((s.N, s.N))) if s.causal else 1)
    found = attention_lse(s, **inputs)
    np.testing.assert_allclose(found["L"][0], np.log(p.sum(axis=3)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found["O"][0], p / p.sum(axis=3, keepdims=True) @ inputs["V"], rtol=1e-9)
    assert (found["L"][1] >= np.abs(found["L"][0])).all()


@settings(max_examples=15)
@given(s=lse_shapes(max_extent=30, max_d=12))
def test_it_is_what_the_backward_pass_takes(s):
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(s.qkv_shape, np.float32) for name in "QKV"}
    kept = saved(AttentionBackwardShape(**s.params()), inputs)
    for name, (ref, scale) in attention_lse(s, **inputs).items():
        assert agrees(kept[name], ref, scale, 2.0**-23), name


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [0, 1])
def test_the_reference_equals_pytorch_in_float64(causal):
    torch = pytest.importorskip("torch")
    s = LseShape(2, 3, 29, 12, causal=causal)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(s.qkv_shape) for name in "QKV"}
    Q, K, V = (torch.tensor(inputs[name]) for name in "QKV")
    scores = float(np.float32(s.factor)) * Q @ K.transpose(2, 3)
    if causal:
        scores = scores.masked_fill(torch.ones(s.N, s.N).triu(1).bool(), -torch.inf)
    found = attention_lse(s, **inputs)
    np.testing.assert_allclose(found["L"][0], torch.logsumexp(scores, 3).numpy(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found["O"][0], (torch.softmax(scores, 3) @ V).numpy(), rtol=1e-9, atol=1e-12)


# -- results -------------------------------------------------------------------------------------------
@names
@pytest.mark.parametrize("key", ["lse-toy", "lse-toy-causal"])
def test_both_engines_are_right_at_the_toys(name, key):
    for engine in (emulator, cpu):
        outputs = verified_outputs(engine, RUNG[name], LADDER.presets[key].shape)
        assert list(outputs) == ["O", "L"]


@needs_nvrtc
@names
@settings(max_examples=3)
@given(shape=lse_shapes(max_extent=36), small=st.booleans())
def test_emulator_agrees_with_the_reference_at_any_shape(name, shape, small):
    verified_outputs(emulator, RUNG[name], shape, SMALL[name] if small else None)


@names
@settings(max_examples=12)
@given(shape=lse_shapes(max_extent=80, max_d=128), small=st.booleans())
def test_cpu_agrees_with_the_reference_at_any_shape(name, shape, small):
    verified_outputs(cpu, RUNG[name], shape, SMALL[name] if small else None)


@needs_nvrtc
@names
@pytest.mark.parametrize("d", [33, 128])
def test_wide_heads(name, d):
    """Covers copies with and without 16 bytes, and fewer rows of a lane for more columns."""
    verified_outputs(emulator, RUNG[name], LseShape(1, 1, 67, d, causal=1))


@needs_nvrtc
@names
def test_hard_scores_stay_finite_and_right(name):
    kinds = ("logits of 1e4", "all equal", "one hot", "rising", "falling")
    s, inputs = side_by_side(kinds, LseShape(1, 1, 37, 16, causal=1, scale=1))
    for engine in (emulator, cpu):
        outputs = verified_outputs(engine, RUNG[name], s, SMALL[name], inputs)
        assert all(np.isfinite(out).all() for out in outputs.values())


@names
def test_equal_keys_give_the_logarithm_of_their_number(name):
    s = LseShape(1, 2, 19, 8, causal=1)
    inputs = inputs_of(LADDER, s, RUNG[name].build(s, RUNG[name].default_tiles))
    inputs["K"][...] = 0
    outputs = verified_outputs(cpu, RUNG[name], s, SMALL[name], inputs)
    np.testing.assert_allclose(outputs["L"], np.log(np.arange(1, 20)) * np.ones((1, 2, 1)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("engine", [emulator, cpu], ids=["emulator", "cpu"])
def test_gradients_from_a_stored_row_sum_are_right(engine, causal):
    """The way of a training step: O and L of the forward kernel go to the backward kernels."""
    s = LseShape(1, 2, 13, 8, causal=causal)
    rung = RUNG["flash-registers"]
    inputs = inputs_of(LADDER, s, rung.build(s, rung.default_tiles))
    stored = verified_outputs(engine, rung, s, SMALL["flash-registers"], inputs)
    back = AttentionBackwardShape(**s.params())
    dO = np.random.default_rng(1).standard_normal(s.qkv_shape, np.float32)
    ref = backward.LADDER.reference(back, **inputs, dO=dO, **saved(back, inputs))
    two = backward.LADDER.rung("attention-backward/flash-two-kernels")
    out, _ = rung_runs.computed_outputs(engine, two, back, {"Br": 8, "Bc": 16}, {**inputs, "dO": dO, **stored})
    for name, (expected, scale) in ref.items():
        assert agrees(out[name], expected, scale, two.tolerance), name


# -- races, orders, faults -------------------------------------------------------------------------------
@needs_nvrtc
@names
def test_warp_order_changes_nothing_and_no_races(name):
    s = RAGGED if name != "blocked" else RAGGED.with_(causal=0)

    def run(options: Options) -> np.ndarray:
        outputs = verified_outputs(emulator, RUNG[name], s, SMALL[name], options=options)
        return np.concatenate([out.ravel() for out in outputs.values()])

    rung_runs.same_in_any_order(run)


FAULTS = {  # what is wrong: (rung, entry, original code, faulty code)
    "the maximum left out": ("blocked", "softmax_lse", "m + logf(l)", "logf(l)"),
    "log2 for log": ("flash-registers", "flash_registers_lse", "log2f(l[i])) * LN2", "log2f(l[i]))"),
    "the first head only": ("flash-registers", "flash_registers_lse", "L += (size_t)blockIdx.y * N", "L += 0"),
    "rows beyond the end": ("flash-registers", "flash_registers_lse", "lane_col == 0 && query < N", "lane_col == 0"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    name, entry, right, wrong = FAULTS[fault]
    rung = RUNG[name]
    program = rung.build(RAGGED, rung.check(RAGGED, SMALL[name]))
    inputs = inputs_of(LADDER, RAGGED, program)
    memory = rung_runs.memory_of(program, inputs)
    for step in program.steps:
        change = rung_runs.replace_once(wrong, right) if step.entry == entry else str
        with np.errstate(all="ignore"):
            if rung_runs.relaunched(step, change, memory) is None:
                return
    reference = LADDER.reference(RAGGED, **inputs)
    assert not all(agrees(memory.array(key), ref, scale, rung.tolerance) for key, (ref, scale) in reference.items())


# -- tile sizes and rules -----------------------------------------------------------------------------
@names
def test_every_choice_is_in_a_legal_set(name):
    for s in (TOY, LseShape(1, 1, 2048, 64), LseShape(1, 1, 2048, 128)):
        rung_runs.each_choice_is_legal(RUNG[name], s)
        assert next(iter(RUNG[name].tile_sets(s))) == RUNG[name].default_tiles


@needs_nvrtc
@pytest.mark.parametrize("d", [64, 128])
@names
def test_no_kernel_spills(name, d):
    s = LseShape(1, 1, 256, d)
    steps = {(t.source, t.defines) for tiles in RUNG[name].tile_sets(s) for t in RUNG[name].build(s, tiles).steps}
    for source, defines in steps:
        info = resources(source, defines)
        assert info["spill_bytes"] == 0 and 0 < info["registers"] <= 255, (source, defines)


@pytest.mark.parametrize(
    ("name", "shape", "rule"),
    [
        ("blocked", LseShape(1, 1, 8, 4, dtype="fp16"), "dtype must be fp32"),
        ("flash-registers", LseShape(1, 1, 8, 129), "d <= 128"),
        ("flash-registers", LseShape(1, 65536, 8, 4), "B*H (grid) <= 65535"),
    ],
)
def test_a_shape_that_breaks_a_rule_is_refused(name, shape, rule):
    with pytest.raises(RuleError, match=re.escape(rule)):
        RUNG[name].check(shape, {})


def test_the_shape_counts_one_number_more_for_each_query():
    s = LseShape(2, 3, 10, 4)
    assert s.bytes == 4 * (4 * 240 + 60) and parse_lse("B=2,H=3,N=10,d=4") == s
    with pytest.raises(ShapeError, match="N must be in 1"):
        parse_lse("B=2,H=3,N=0,d=4")
