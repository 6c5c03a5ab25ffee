"""The ladders of heads without a GPU: any shape and tile sizes, gradients, races, faults, rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, emulator
from kernels.engines.emulator.launch import Options
from kernels.heads import ladder as heads
from kernels.heads import reference
from kernels.heads.shape import HeadsShape
from kernels.ladders import ladder_of
from kernels.model.shape import ShapeError
from kernels.runner import inputs_of
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc

OURS = tuple(rung for ladder in heads.LADDERS for rung in ladder.rungs if not rung.library)
RUNGS = {rung.name: rung for rung in OURS}
ENGINES = (emulator, cpu)
SMALL = {"BLOCK": 32, "PER": 1}
extents = st.integers(1, 9)
shapes = st.builds(HeadsShape, st.integers(1, 3), extents, extents, st.integers(1, 13), st.sampled_from([1, 3]))
names = pytest.mark.parametrize("name", RUNGS)


def own(name: str, tiles: dict[str, int]) -> dict[str, int]:
    return {key: value for key, value in tiles.items() if key in RUNGS[name].tiles}


# -- results -------------------------------------------------------------------------------------------
@needs_nvrtc
@names
@settings(max_examples=5)
@given(shape=shapes, data=st.data())
def test_both_engines_copy_every_number_at_any_shape_and_tile_sizes(name, shape, data):
    tiles = data.draw(st.sampled_from(rung_runs.legal(RUNGS[name], shape)))
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, RUNGS[name], shape, tiles)


@names
@pytest.mark.parametrize("key", ["toy", "toy-qkv", "odd", "digits"])
def test_presets_are_right(name, key):
    ladder = ladder_of(name)
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, RUNGS[name], ladder.presets[f"{ladder.name}-{key}"].shape)


@settings(max_examples=20)
@given(shape=shapes)
def test_the_reference_is_the_definition(shape):
    x = np.random.default_rng(0).standard_normal(shape.rows_shape)
    split = {name: ref for name, (ref, _) in reference.split(shape, x).items()}
    for part, name in enumerate(shape.names):
        for n, head, t, dim in np.ndindex(shape.heads_shape):
            assert split[name][n, head, t, dim] == x[n, t, part, head, dim]
    merged, _ = reference.merge(shape, **split)
    np.testing.assert_array_equal(merged, x)


def test_attention_of_a_row_of_queries_keys_and_values_reads_its_head():
    """Head 1 of the keys of token 2 begins at column D + d of its row, as a product with 3 D outputs writes it."""
    shape = HeadsShape(1, 4, 2, 3, 3)
    rows = np.arange(4 * 18.0).reshape(4, 18)
    outputs = {name: ref for name, (ref, _) in reference.split(shape, rows.reshape(shape.rows_shape)).items()}
    np.testing.assert_array_equal(outputs["K"][0, 1, 2], rows[2, 6 + 3 : 6 + 6])


@settings(max_examples=15)
@given(shape=shapes, seed=st.integers(0, 99))
def test_the_gradient_of_a_split_is_a_merge_and_the_reverse(shape, seed):
    import autograd
    import autograd.numpy as anp

    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape.rows_shape)
    gradients = {name: rng.standard_normal(shape.heads_shape) for name in shape.names}

    def loss(x):
        parts = anp.transpose(x, (2, 0, 3, 1, 4))
        return sum(anp.sum(parts[n] * gradients[name]) for n, name in enumerate(shape.names))

    merged, _ = reference.merge(shape, **gradients)
    np.testing.assert_array_equal(autograd.grad(loss)(x), merged)
    back = {name: ref for name, (ref, _) in reference.split(shape, merged).items()}
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(back[name], gradient)


# -- order, faults ---------------------------------------------------------------------------------------
@names
def test_order_of_warps_changes_nothing_and_no_races(name):
    shape = HeadsShape(2, 5, 3, 7, 3)

    def run(options: Options) -> np.ndarray:
        outputs = rung_runs.verified_outputs(emulator, RUNGS[name], shape, own(name, SMALL), options=options).values()
        return np.concatenate([out.ravel() for out in outputs])

    rung_runs.same_in_any_order(run)


FAULTS = {  # what is wrong: (rung, original code, faulty code)
    "heads and tokens exchanged": (
        "split-heads/elements",
        "(size_t)sequence * shape.h + head) * shape.T + t",
        "(size_t)sequence * shape.T + t) * shape.h + head",
    ),
    "keys and values exchanged": ("split-heads/elements", "place.part == 1 ? K : V", "place.part == 1 ? V : K"),
    "the last number left out": ("split-heads/elements", "if (i >= count) return", "if (i >= count - 1) return"),
    "the unit of another turn": ("split-heads/float4", "y[place.offset] = v[k]", "y[place.offset] = v[0]"),
    "one turn left out": ("split-heads/float4", "k < PER; ++k)\n    if", "k < PER - 1; ++k)\n    if"),
    "stored in the order of heads": ("merge-heads/elements", "y[i] = x[place.offset]", "y[place.offset] = x[i]"),
    "the first sequence only": ("merge-heads/float4", "(size_t)sequence * shape.h", "(size_t)0 * shape.h"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_kernel_is_detected(fault):
    name, right, wrong = FAULTS[fault]
    rung, shape = RUNGS[name], HeadsShape(2, 5, 3, 4, 3)
    program = rung.build(shape, rung.default_tiles | own(name, {"BLOCK": 32, "PER": 2}))
    inputs = inputs_of(ladder_of(name), shape, program)
    memory = rung_runs.memory_of(program, inputs)
    (step,) = program.steps
    if rung_runs.relaunched(step, rung_runs.replace_once(wrong, right), memory) is None:
        return
    expected = ladder_of(name).reference(shape, **inputs)
    expected = expected if isinstance(expected, dict) else {"y": expected}
    assert any(not np.array_equal(memory.array(key), ref) for key, (ref, _) in expected.items())


def test_a_wide_load_reads_few_sectors():
    """Each warp of the wide kernel loads 16 bytes a lane: a quarter of the requests for the same sectors."""
    shape = HeadsShape(2, 16, 4, 8, 3)
    counts = []
    for name in ("split-heads/elements", "split-heads/float4"):
        program = RUNGS[name].build(shape, RUNGS[name].default_tiles)
        session = emulator.open(program, inputs_of(ladder_of(name), shape, program))
        session.verify_run()
        counts.append(session.counters.total)
    scalar, wide = counts
    assert scalar["sectors_ld"] == wide["sectors_ld"] == shape.elements // 8
    assert scalar["requests_ld"] == 4 * wide["requests_ld"]


# -- rules ---------------------------------------------------------------------------------------------
@names
def test_each_choice_is_legal(name):
    rung_runs.each_choice_is_legal(RUNGS[name], HeadsShape(1, 4, 2, 4))


@names
def test_a_shape_too_large_names_its_rule(name):
    shape = HeadsShape(1, 2**31 - 1, 1, 1)
    assert any("must stay below" in rule for rule in RUNGS[name].rules(shape, RUNGS[name].default_tiles))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("N=1,T=2,h=3", "missing d"),
        ("N=1,T=2,h=3,d=0", "d must be in 1"),
        ("N=1,T=2,h=3,d=4,parts=2", "parts must be 1 or 3, got 2"),
        ("N=65536,T=65536,h=1,d=1", r"N\*T\*parts\*h\*d must stay below 2\^31"),
        ("N=1,T=x,h=3,d=4", "T must be a whole number"),
    ],
)
def test_malformed_shapes_are_refused(text, rule):
    for ladder in heads.LADDERS:
        with pytest.raises(ShapeError, match=rule):
            ladder.parse(text)
